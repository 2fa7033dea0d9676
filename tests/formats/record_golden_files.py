"""Record small files written by MXNet 1.9.1, and what it reads from files of older versions.

Run it with a Python that has mxnet 1.9.1 and opencv-python, from anywhere::

    MXNET_SUBGRAPH_BACKEND=NONE python tests/formats/record_golden_files.py

It writes ``tests/formats/data``. The tests read that folder; they never need MXNet.
"""

import json
import os
import struct
import subprocess
import sys

import cv2
import mxnet as mx
import numpy as np

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
MAGIC = struct.pack("<I", 0xCED7230A)


def path(name):
    return os.path.join(DATA, name)


def plain(array):
    """An array as JSON: dtype, shape, values."""
    return {"dtype": str(array.dtype), "shape": list(array.shape), "values": array.reshape(-1).tolist()}


def record_params():
    """Array lists: what MXNet writes, and hand-made V0 and V1 files that it must be able to read."""
    expected = {}
    dtypes = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool")
    dense = {}
    for i, dtype in enumerate(dtypes):
        values = (np.arange(3 + i) - 2).astype(dtype) if dtype != "bool" else np.array([True, False, True])
        dense["arg:" + dtype] = mx.nd.array(values, dtype=dtype)
    dense["aux:matrix"] = mx.nd.array(np.arange(6).reshape(2, 3) / 4)
    mx.nd.save(path("dense_v2.params"), dense)
    expected["dense_v2.params"] = {name: plain(array.asnumpy()) for name, array in dense.items()}
    mx.nd.save(path("list_v2.params"), [mx.nd.array([1, 2, 3]), mx.nd.array([[4]], dtype="int8")])
    expected["list_v2.params"] = [plain(a.asnumpy()) for a in mx.nd.load(path("list_v2.params"))]
    sparse = {
        "rows": mx.nd.sparse.row_sparse_array((np.ones((2, 2), np.float32) * 3, [1, 3]), shape=(5, 2)),
        "csr": mx.nd.sparse.csr_matrix((np.array([1, 2, 3], np.float32), [0, 2, 1], [0, 2, 2, 3]), shape=(3, 4)),
        "no_rows": mx.nd.sparse.zeros("row_sparse", (4, 2)),
        "no_csr": mx.nd.sparse.zeros("csr", (4, 2)),
    }
    mx.nd.save(path("sparse_v2.params"), sparse)
    expected["sparse_v2.params"] = {name: plain(array.asnumpy()) for name, array in sparse.items()}
    context = struct.pack("<iii", 1, 0, 0)
    data = struct.pack("<6f", *range(6))
    v0 = struct.pack("<III", 2, 2, 3) + context + data
    v1 = struct.pack("<Iiqq", 0xF993FAC8, 2, 3, 2) + context + data
    for name, array in (("handmade_v0.params", v0), ("handmade_v1.params", v1)):
        with open(path(name), "wb") as file:
            file.write(struct.pack("<QQQ", 0x112, 0, 1) + array + struct.pack("<QQ", 1, 5) + b"arg:w")
        expected[name] = {key: plain(value.asnumpy()) for key, value in mx.nd.load(path(name)).items()}
    mx.npx.set_np()
    scalars = {"scalar": mx.np.array(2.5), "empty": mx.np.zeros((0, 3)), "vector": mx.np.array([1, 2], dtype="int32")}
    mx.npx.save(path("scalars_v3.params"), scalars)
    expected["scalars_v3.params"] = {name: plain(array.asnumpy()) for name, array in scalars.items()}
    mx.npx.reset_np()
    with open(path("params.json"), "w") as file:
        json.dump(expected, file, indent=1, sort_keys=True)


def picture():
    """A small picture with a smooth gradient in each channel, so that JPEG keeps it well."""
    y, x = np.mgrid[0:12, 0:16]
    return np.stack([x * 15, y * 20, 255 - x * 7 - y * 7], axis=2).astype(np.uint8)


def record_records():
    """Record files: payloads with the magic inside, and images."""
    payloads = [b"", b"abc", MAGIC, MAGIC + MAGIC, b"a" + MAGIC, b"abcd" + MAGIC + b"xy", b"abcd" + MAGIC, b"x" * 61]
    writer = mx.recordio.MXIndexedRecordIO(path("plain.idx"), path("plain.rec"), "w")
    for i, payload in enumerate(payloads):
        writer.write_idx(i * 10, payload)
    writer.close()
    header = mx.recordio.IRHeader
    images = [
        mx.recordio.pack_img(header(0, 3.0, 7, 0), picture(), quality=95, img_fmt=".jpg"),
        mx.recordio.pack_img(header(0, [1.0, 2.5, -1.0], 8, 1), picture(), quality=9, img_fmt=".png"),
        mx.recordio.pack_img(header(0, 4, 9, 0), picture()[:, :, 0], quality=9, img_fmt=".png"),
        mx.recordio.pack(header(0, 5, 10, 0), b"not an image"),
    ]
    writer = mx.recordio.MXIndexedRecordIO(path("images.idx"), path("images.rec"), "w")
    for i, image in enumerate(images):
        writer.write_idx(i, image)
    writer.close()
    decoded = {}
    for i, image in enumerate(images[:3]):
        for iscolor in (-1, 0, 1):
            decoded["%d_%d" % (i, iscolor)] = mx.recordio.unpack_img(image, iscolor)[1]
    np.savez_compressed(path("images.npz"), **decoded)
    assert cv2.__version__


def written_symbols():
    """Symbols as MXNet writes them: every part of the layout once."""
    sym = mx.sym
    data = sym.Variable("data", shape=(1, 3, 8, 8), lr_mult=2.0)
    conv = sym.Convolution(data, kernel=(3, 3), num_filter=4, name='odd "name"\\ \t\u00e9\n')
    norm = sym.BatchNorm(conv, name="bn")
    mean = norm.get_internals()["bn_moving_mean"]
    shared = sym.BatchNorm(sym.relu(norm), name="bn2", gamma=sym.Variable("g2"), moving_mean=mean)
    many = sym.Concat(*[sym.Variable("v%d" % i) for i in range(12)], name="many")
    out, state = sym.contrib.foreach(lambda d, s: (d + s, s * 2), sym.Variable("x"), sym.Variable("s"))
    plain_conv = sym.Convolution(sym.Variable("data"), kernel=(3, 3), num_filter=4, name="conv0")
    block = sym.Activation(sym.BatchNorm(plain_conv, name="bn"), act_type="relu", name="relu0")
    found = {
        "shared state": sym.Group([shared, norm[0], mean]).tojson(),
        "many inputs": sym.Group([many] * 11).tojson(),
        "foreach": sym.Group([out, state]).tojson(),
        "fused": block.get_backend_symbol("MKLDNN").tojson(),
        "variable": sym.Variable("alone").tojson(),
    }
    with mx.util.np_shape(True):
        found["np shape"] = (sym.Variable("q") * 2).tojson()
    return found


def var(name, **keys):
    return dict(op="null", name=name, inputs=[], **keys)


def graph(nodes, heads, version, **keys):
    found = dict(nodes=nodes, arg_nodes=[i for i, n in enumerate(nodes) if n["op"] == "null"], heads=heads, **keys)
    if version is not None:
        found["attrs"] = {"mxnet_version": ["int", version]}
    return json.dumps(found)


def old_symbols():
    """Files that older versions wrote (or could have), by name."""
    relu = dict(op="relu", name="r", inputs=[[0, 0]])
    fc = dict(op="FullyConnected", name="fc", inputs=[[0, 0], [1, 0]])
    fc_attrs = {"num_hidden": "3", "no_bias": "True"}
    norm = dict(op="BatchNorm", name="bn", inputs=[[0, 0], [1, 0], [2, 0]])
    argmax = dict(op="argmax", name="m", inputs=[[0, 0]])
    one = '{"nodes":[{"op":"null","name":"a",%s"inputs":[]}],"arg_nodes":[0],"heads":[[0,0]],%s}'
    now = '"attrs":{"mxnet_version":["int",10901]}'
    moved = dict(fc_attrs, weight_lr_mult="0.1", ctx_group="g", data_wd_mult="3", force_mirroring="1", mirror_stage="2")
    return {
        "hidden keys": graph([var("a", attrs={"lr_mult": "2"}), var("w"), dict(fc, attrs=moved)], [[2, 0]], 10800),
        "hidden keys of today": graph([var("a", attrs={"lr_mult": "2"}), relu], [[1, 0]], 10901),
        "hidden keys of tomorrow": graph([var("a", attrs={"lr_mult": "2"}), relu], [[1, 0]], 20000),
        "hidden key for a node": graph(
            [var("a"), var("w"), relu, dict(fc, inputs=[[0, 0], [2, 0]], attrs=dict(fc_attrs, weight_lr_mult="1"))],
            [[3, 0]],
            10800,
        ),
        "keys that only look hidden": graph(
            [var("a", attrs={"lr_multx": "2", "x_lr_mult": "5", "_lr_mult": "6"}), relu], [[1, 0]], 10800
        ),
        "hidden key twice": graph(
            [
                var("a", attrs={"lr_mult": "2", "__lr_mult__": "7"}),
                var("w", attrs={"__lr_mult__": "8"}),
                dict(fc, attrs=dict(fc_attrs, weight_lr_mult="0.1")),
            ],
            [[2, 0]],
            10800,
        ),
        "missing states": graph(
            [var("a"), var("g"), var("b"), dict(norm, param={"eps": "0.1"}, attr={"ctx_group": "z", "__foo__": "1"})],
            [[3, 0]],
            None,
        ),
        "missing states twice": graph(
            [var("a"), var("g"), var("b"), norm, dict(norm, name="bn_2", inputs=[[3, 0], [1, 0], [2, 0]]), relu],
            [[4, 0], [3, 0], [5, 0]],
            800,
        ),
        "missing parameters": graph([var("a"), dict(fc, inputs=[[0, 0]], param={"num_hidden": "3"})], [[1, 0]], None),
        "states listed": graph(
            [var("a"), var("g"), var("b"), var("m"), var("v"), dict(norm, inputs=[[i, 0] for i in range(5)])],
            [[5, 0]],
            903,
        ),
        "argmax of 0.9.4": graph([var("a"), dict(argmax, attr={"axis": "-1", "keepdims": "True"})], [[1, 0]], 904),
        "argmax of 0.9.5": graph([var("a"), dict(argmax, attr={"axis": "-1"})], [[1, 0]], 905),
        "attr, param, attrs": one % ('"attr":{"__p__":"1"},"param":{"__q__":"2"},"attrs":{"__r__":"3"},', now),
        "attrs, attr, param": one
        % ('"attrs":{"__p__":"1"},"attr":{"__r__":"3"},"param":{"__r__":"2","__q__":"2"},', now),
        "param alone": one % ('"param":{"__r__":"2","__q__":"2"},"backward_source_id":-1,', now),
        "attr twice": one % ('"attr":{"__r__":"2"},"attr":{"__q__":"2"},', now),
        "attrs twice around attr": one % ('"attrs":{"__r__":"2"},"attr":{"__s__":"2"},"attrs":{"__q__":"2"},', now),
        "attr, empty attrs": one % ('"attr":{"__r__":"2"},"attrs":{},', now),
        "duplicate names": graph(
            [var("a"), var("a"), dict(op="elemwise_add", name="p", inputs=[[0, 0], [1, 0]])], [[2, 0]], 10901
        ),
        "control dependency": graph([var("a"), relu, dict(relu, name="r2", control_deps=[1])], [[2, 0]], 10901),
        "unknown key": graph([var("a"), dict(relu, foo=1)], [[1, 0]], 10901),
        "number as attribute": graph([var("a", attrs={"__x__": 1}), relu], [[1, 0]], 10901),
        "entry of one": graph([var("a"), dict(relu, inputs=[[0]])], [[1, 0]], 10901),
        "entry of four": graph([var("a"), dict(relu, inputs=[[0, 0, 0, 0]])], [[1, 0]], 10901),
        "operator among arg_nodes": graph([var("a"), relu], [[1, 0]], 10901).replace("[0], ", "[1], ", 1),
        "unknown graph attribute type": graph([var("a"), relu], [[1, 0]], 10901).replace('"int"', '"double"'),
        "control character": one.replace('"a"', '"a\x01b"') % ("", now),
    }


def load_one(name):
    """What MXNet writes after it loaded an old file; run in a process of its own, for it may crash."""
    try:
        sys.stdout.buffer.write(mx.sym.load_json(old_symbols()[name]).tojson().encode())
    except Exception:
        sys.exit(3)


def record_symbols():
    upgraded = {}
    for name, text in old_symbols().items():
        done = subprocess.run([sys.executable, __file__, name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert done.returncode in (0, 3), (name, done.returncode)
        upgraded[name] = [text, done.stdout.decode() if done.returncode == 0 else None]
    with open(path("symbols.json"), "w") as file:
        json.dump({"written": written_symbols(), "upgraded": upgraded}, file, indent=1, sort_keys=True)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        load_one(sys.argv[1])
    else:
        os.makedirs(DATA, exist_ok=True)
        record_params()
        record_records()
        record_symbols()
