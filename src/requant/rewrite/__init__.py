"""Symbol to symbol, in MXNet's own int8 words: fusion, the quantization pass, calibration attributes, plans as symbols.

This room knows names of MXNet operators, which passes over ONNX do not; and it decides by MXNet's rules, node for node
and name for name, so that scripts and files that expect MXNet's result find it. It runs no model.
"""
