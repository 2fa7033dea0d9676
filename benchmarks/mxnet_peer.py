"""MXNet 1.9.1 as a peer in a benchmark. Runs under a Python that has it, and times what it is told, when it is told.

``python mxnet_peer.py float|int8 PREFIX N C H W`` loads PREFIX-symbol.json and PREFIX-0000.params, then answers each
line on stdin with the seconds of one forward pass. So the caller can interleave it with others in one run. ``int8``
quantizes first, as MXNet's own examples do: fused, smart, naive calibration, unsigned where that fits.
"""

import os
import sys
import time

form, prefix, shape = sys.argv[1], sys.argv[2], tuple(int(d) for d in sys.argv[3:])
# The graph partitioner is what makes MXNet fast on CPUs; it is right for the networks measured here. An int8 graph is
# fused already.
os.environ.setdefault("MXNET_SUBGRAPH_BACKEND", "NONE" if form == "int8" else "MKLDNN")

import mxnet as mx  # noqa: E402
import numpy as np  # noqa: E402

symbol, args, aux = mx.model.load_checkpoint(prefix, 0)
if form == "int8":
    from mxnet.contrib.quantization import quantize_model_mkldnn

    coarse = np.random.RandomState(0).normal(0, 1, (8, shape[1], shape[2] // 8, shape[3] // 8)).astype(np.float32)
    images = np.repeat(np.repeat(coarse, 8, axis=2), 8, axis=3)
    symbol, args, aux = quantize_model_mkldnn(
        symbol,
        args,
        aux,
        ctx=mx.cpu(),
        label_names=None,
        calib_mode="naive",
        calib_data=mx.io.NDArrayIter(images, batch_size=4),
        num_calib_examples=8,
        quantized_dtype="auto",
        quantize_mode="smart",
    )
executor = symbol.simple_bind(mx.cpu(), grad_req="null", data=shape, type_dict={"data": "float32"})
executor.copy_params_from(args, aux, allow_extra_params=True)
x = mx.nd.array(np.random.RandomState(0).normal(0, 1, shape).astype(np.float32))
for _ in range(3):
    executor.forward(is_train=False, data=x)[0].wait_to_read()
print("ready", flush=True)
for _ in sys.stdin:
    start = time.perf_counter()
    executor.forward(is_train=False, data=x)[0].asnumpy()
    print(time.perf_counter() - start, flush=True)
