"""Record what MXNet 1.9.1 gives for the trained models: ``python record_trained.py FOLDER_OF_MODELS``.

Through SymbolBlock, whose graphs are not repartitioned. Writes ``trained.npz`` beside this file.
"""

import os
import sys
import warnings

os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"

import mxnet as mx
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPES = {"efficientnet_lite0": (3, 224, 224), "mnist-lenet-0": (1, 28, 28)}
for depth in ("20_v1", "20_v2", "56_v1", "56_v2"):
    SHAPES["cifar_resnet" + depth] = (3, 32, 32)

found = {}
warnings.simplefilter("ignore")
for name, shape in SHAPES.items():
    epoch = 10 if name.startswith("mnist") else 0
    sym, args, aux = mx.model.load_checkpoint(os.path.join(sys.argv[1], name), epoch)
    inputs = [mx.sym.var(n) for n in sym.list_arguments() if n not in args]
    net = mx.gluon.SymbolBlock(sym, inputs)
    for key, value in list(args.items()) + list(aux.items()):
        if key in net.collect_params():
            net.collect_params()[key]._load_init(value, mx.cpu())
    x = np.random.RandomState(7).normal(0, 1, (16,) + shape).astype(np.float32)
    feeds = [mx.nd.array(x) if v.name == "data" else mx.nd.zeros((16,)) for v in inputs]
    found[name] = net(*feeds).asnumpy()[: 2 if name == "efficientnet_lite0" else 16]
    print(name, found[name].shape)
np.savez_compressed(os.path.join(HERE, "trained.npz"), **found)
