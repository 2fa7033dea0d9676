"""Pack the symbol files of ``gluoncv`` 0.10.5.post0: ``python pack.py <its folder model_zoo/quantized>``."""

import ast
import base64
import io
import os
import sys
import tarfile
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))


def graphs(folder):
    """Name and text of each: six files, and a dictionary of compressed ones in the source."""
    for file in os.listdir(folder):
        if file.endswith("-symbol.json"):
            with open(os.path.join(folder, file), "rb") as opened:
                yield file[: -len("-symbol.json")], opened.read()
    with open(os.path.join(folder, "quantized.py")) as opened:
        tree = ast.parse(opened.read())
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_compressed_int8_json":
            for name, packed in ast.literal_eval(node.value).items():
                yield name, zlib.decompress(base64.b64decode(packed))


if __name__ == "__main__":
    with tarfile.open(os.path.join(HERE, "data", "graphs.tar.xz"), "w:xz") as tar:
        for name, text in sorted(graphs(sys.argv[1])):
            info = tarfile.TarInfo(name + ".json")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))
            print(name, len(text))
