"""Gluon programs that run on MXNet and on requant alike: the recorder and the test both call them with their ``mx``."""

import hashlib
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "zoo"))

import seeded  # noqa: E402

VISION = [
    "alexnet",
    "densenet121",
    "densenet161",
    "densenet169",
    "densenet201",
    "inceptionv3",
    "mobilenet0.25",
    "mobilenet0.5",
    "mobilenet0.75",
    "mobilenet1.0",
    "mobilenetv2_0.25",
    "mobilenetv2_0.5",
    "mobilenetv2_0.75",
    "mobilenetv2_1.0",
    "resnet101_v1",
    "resnet101_v2",
    "resnet152_v1",
    "resnet152_v2",
    "resnet18_v1",
    "resnet18_v2",
    "resnet34_v1",
    "resnet34_v2",
    "resnet50_v1",
    "resnet50_v2",
    "squeezenet1.0",
    "squeezenet1.1",
    "vgg11",
    "vgg11_bn",
    "vgg13",
    "vgg13_bn",
    "vgg16",
    "vgg16_bn",
    "vgg19",
    "vgg19_bn",
]


def array(mx, name, shape):
    return mx.nd.array(seeded.image(name, shape))


def fill(mx, net):
    for name, p in net.collect_params().items():
        p.set_data(mx.nd.array(seeded.parameter(name, p.shape)))


def vision(mx, name):
    """Names of arguments, states and parameters, flat and by place, of a network."""
    with mx.name.NameManager():
        net = mx.gluon.model_zoo.vision.get_model(name)
    out = net(mx.sym.var("data"))
    size = 299 if "inception" in name else 224
    args, _, aux = out.infer_shape(data=(1, 3, size, size))
    facts = [
        [[n, list(s)] for n, s in zip(out.list_arguments(), args)],
        [[n, list(s)] for n, s in zip(out.list_auxiliary_states(), aux)],
        list(net.collect_params().keys()),
        sorted(net._collect_params_with_prefix()),
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def cells(mx):
    """Outputs of recurrent cells and layers."""
    rnn = mx.gluon.rnn

    def both():
        return rnn.BidirectionalCell(rnn.LSTMCell(5), rnn.GRUCell(4))

    def stack():
        s = rnn.HybridSequentialRNNCell()
        s.add(rnn.LSTMCell(5))
        s.add(rnn.ResidualCell(rnn.GRUCell(5)))
        return s

    x = array(mx, "x", (2, 6, 3))
    found = {}
    makers = {"lstm": lambda: rnn.LSTMCell(5), "gru": lambda: rnn.GRUCell(5), "rnn": lambda: rnn.RNNCell(5)}
    makers.update(both=both, stack=stack)
    for name, make in makers.items():
        with mx.name.NameManager():
            cell = make()
        cell.initialize()
        cell.unroll(6, x)
        fill(mx, cell)
        for what, lengths in (("", None), ("masked ", mx.nd.array([6, 4]))):
            out, states = cell.unroll(6, x, layout="NTC", merge_outputs=True, valid_length=lengths)
            found[f"{name} {what}output"] = out
            found[f"{name} {what}state"] = states[0]
    layers = {
        "LSTM": lambda: rnn.LSTM(5, 2, bidirectional=True, layout="NTC"),
        "GRU": lambda: rnn.GRU(5, 2),
        "RNN": lambda: rnn.RNN(5, 1),
        "LSTMP": lambda: rnn.LSTM(5, 1, projection_size=3),
    }
    for name, make in layers.items():
        with mx.name.NameManager():
            layer = make()
        layer.initialize()
        layer(x)
        fill(mx, layer)
        found[name] = layer(x)
        out, states = layer(x, layer.begin_state(2 if name == "LSTM" else 6))
        found[name + " with states"], found[name + " state"] = out, states[0]
        layer.hybridize()
        found[name + " hybrid"] = layer(x)
    return found


def losses(mx):
    """Losses on seeded predictions and labels."""
    loss = mx.gluon.loss
    pred, label = array(mx, "pred", (4, 5)), array(mx, "label", (4, 5))
    some, positive = array(mx, "third", (4, 5)), mx.nd.abs(array(mx, "positive", (4, 5)))
    classes, weight = mx.nd.array([0, 4, 2, 1]), mx.nd.array([[1.0], [0.5], [2.0], [0.0]])
    signs, probability = mx.nd.sign(label), mx.nd.softmax(label)
    return {
        "l1": loss.L1Loss()(pred, label),
        "l2": loss.L2Loss()(pred, label, weight),
        "bce": loss.SigmoidBCELoss()(pred, mx.nd.sigmoid(label)),
        "bce weighed": loss.SigmoidBCELoss()(pred, mx.nd.sigmoid(label), None, positive),
        "bce of sigmoid": loss.SigmoidBCELoss(from_sigmoid=True)(mx.nd.sigmoid(pred), mx.nd.sigmoid(label)),
        "ce": loss.SoftmaxCELoss()(pred, classes),
        "ce dense": loss.SoftmaxCELoss(sparse_label=False, weight=2.0)(pred, probability),
        "kl": loss.KLDivLoss(from_logits=False)(pred, probability),
        "huber": loss.HuberLoss(rho=0.5)(pred, label),
        "hinge": loss.HingeLoss()(pred, signs),
        "squared hinge": loss.SquaredHingeLoss()(pred, signs),
        "logistic": loss.LogisticLoss()(pred, signs),
        "triplet": loss.TripletLoss()(pred, label, some),
        "poisson": loss.PoissonNLLLoss(compute_full=True)(pred, positive),
        "cosine": loss.CosineEmbeddingLoss()(pred, label, mx.nd.array([1, -1, 1, -1])),
        "ctc": loss.CTCLoss()(array(mx, "ctc", (2, 6, 4)), mx.nd.array([[1, 2], [0, -1]])),
    }


def layers(mx):
    """Layers on seeded inputs, with names of nodes and parameters."""
    nn, contrib = mx.gluon.nn, mx.gluon.contrib
    x, v, s = array(mx, "image", (2, 6, 9, 8)), array(mx, "volume", (1, 4, 5, 6, 7)), array(mx, "line", (2, 6, 9))
    makers = {
        "conv": (lambda: nn.Conv2D(4, 3, 2, 1, activation="relu"), x),
        "grouped": (lambda: nn.Conv2D(4, (3, 2), dilation=2, groups=2, use_bias=False), x),
        "conv1": (lambda: nn.Conv1D(4, 3), s),
        "deconv": (lambda: nn.Conv2DTranspose(4, 3, 2, 1, output_padding=1), x),
        "deconv1": (lambda: nn.Conv1DTranspose(4, 3, 2), s),
        "dense": (lambda: nn.Dense(7, activation="tanh"), x),
        "dense last": (lambda: nn.Dense(7, flatten=False, use_bias=False), x),
        "batchnorm": (lambda: nn.BatchNorm(), x),
        "batchnorm last": (lambda: nn.BatchNorm(axis=-1, scale=False), x),
        "sync": (lambda: contrib.nn.SyncBatchNorm(), x),
        "instance": (lambda: nn.InstanceNorm(scale=True), x),
        "instance last": (lambda: nn.InstanceNorm(axis=3), x),
        "layernorm": (lambda: nn.LayerNorm(), x),
        "groupnorm": (lambda: nn.GroupNorm(3), x),
        "embedding": (lambda: nn.Embedding(5, 3), mx.nd.array([[0, 4], [2, 1]])),
        "max": (lambda: nn.MaxPool2D(3, 2, ceil_mode=True), x),
        "avg": (lambda: nn.AvgPool2D(3, 2, 1, count_include_pad=False), x),
        "avg3": (lambda: nn.AvgPool3D(), v),
        "max1": (lambda: nn.MaxPool1D(3), s),
        "global": (lambda: nn.GlobalMaxPool2D(), x),
        "reflect": (lambda: nn.ReflectionPad2D(2), x),
        "prelu": (lambda: nn.PReLU(), x),
        "leaky": (lambda: nn.LeakyReLU(0.1), x),
        "elu": (lambda: nn.ELU(0.7), x),
        "selu": (lambda: nn.SELU(), x),
        "gelu": (lambda: nn.GELU(), x),
        "swish": (lambda: nn.Swish(1.5), x),
        "lambda": (lambda: nn.HybridLambda(lambda F, a: F.relu(a) * 2), x),
        "named": (lambda: nn.HybridLambda("tanh"), x),
        "dropout": (lambda: nn.Dropout(0.5), x),
        "flatten": (lambda: nn.Flatten(), x),
        "shuffle1": (lambda: contrib.nn.PixelShuffle1D(3), s),
        "shuffle2": (lambda: contrib.nn.PixelShuffle2D((2, 3)), x),
        "shuffle3": (lambda: contrib.nn.PixelShuffle3D((1, 2, 2)), v),
        "deformable": (lambda: contrib.cnn.DeformableConvolution(4, (3, 3), padding=(1, 1)), x),
    }
    found, names = {}, {}
    for name, (make, data) in makers.items():
        with mx.name.NameManager():
            layer = make()
        layer.initialize()
        layer(data)
        fill(mx, layer)
        found[name] = layer(data)
        with mx.name.NameManager():
            out = layer(mx.sym.var("data"))
        names[name] = [layer.prefix, list(layer.collect_params().keys()), out.list_outputs()]
    return found, names
