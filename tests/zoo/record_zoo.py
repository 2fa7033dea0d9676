"""Export classification networks with MXNet 1.9.1 and GluonCV, and record what they compute on seeded weights.

Run with the Python that has both: ``python record_zoo.py [name ...]``. Writes ``data/<name>.json.gz`` (the symbol) and
``data/outputs.npz``. Weights are made from a seed on both sides (``seeded.py``).
"""

import gzip
import os
import sys

os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"

import mxnet as mx
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import seeded

GLUONCV = (
    "resnet18_v1 resnet50_v1 resnet18_v1b resnet50_v1b resnet50_v1d resnet18_v2 resnet50_v2 mobilenet1.0 "
    "mobilenetv2_1.0 mobilenetv3_large mobilenetv3_small densenet121 inceptionv3 vgg16_bn squeezenet1.0 "
    "resnext50_32x4d se_resnext50_32x4d senet_154 xception darknet53 alexnet googlenet resnest50 resnet50_v1s "
    "residualattentionnet56 nasnet_4_1056 cifar_resnet20_v1 cifar_wideresnet16_10 hrnet_w18_small_v1_c shufflenet_v1"
).split()
VISION = (
    "resnet18_v1 resnet50_v2 vgg11 alexnet densenet121 squeezenet1.1 inceptionv3 mobilenet0.5 mobilenetv2_0.5".split()
)
SIZES = {"inceptionv3": 299, "xception": 299}


def networks(words):
    for name in GLUONCV:
        if not words or name in words:
            yield "gluoncv-" + name, name, "gluoncv"
    for name in VISION:
        if not words or name in words:
            yield "vision-" + name, name, "vision"


def build(name, source):
    if source == "gluoncv":
        import gluoncv

        return gluoncv.model_zoo.get_model(name, pretrained=False)
    return mx.gluon.model_zoo.vision.get_model(name, pretrained=False)


def record(key, name, source):
    with mx.name.NameManager():
        net = build(name, source)
    size = 32 if name.startswith("cifar") else SIZES.get(name, 224)
    shape = (1, 3, size, size)
    net.initialize(mx.init.Zero())
    net.hybridize()
    x = mx.nd.array(seeded.image(key, shape))
    net(x)
    prefix = net.prefix
    params = net.collect_params()
    short = {n: (n[len(prefix) :] if n.startswith(prefix) else n) for n in params.keys()}
    for n, p in params.items():
        p.set_data(mx.nd.array(seeded.parameter(short[n], p.shape)))
    outs = net(x)
    outs = outs if isinstance(outs, (list, tuple)) else [outs]
    text = net(mx.sym.var("data"))
    text = (mx.sym.Group(text) if isinstance(text, (list, tuple)) else text).tojson()
    # Prefixes count networks made in this process; without them the file is the same at every recording.
    for n in sorted(short, key=len, reverse=True):
        text = text.replace('"' + n + '"', '"' + short[n] + '"')
    path = os.path.join(HERE, "data", key + ".json.gz")
    with open(path, "wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as file:
        file.write(text.encode())
    return {key + "|%d" % i: o.asnumpy() for i, o in enumerate(outs)}


if __name__ == "__main__":
    path = os.path.join(HERE, "data", "outputs.npz")
    kept = dict(np.load(path)) if os.path.exists(path) else {}
    for key, name, source in networks(sys.argv[1:]):
        try:
            kept.update(record(key, name, source))
            print("recorded", key, [v.shape for k, v in kept.items() if k.startswith(key + "|")])
        except Exception as fault:
            print("FAILED", key, str(fault).split("\n")[0])
        np.savez_compressed(path, **kept)
