"""Train the project's own small model with MXNet 1.9.1, on the 8x8 digits that come with scikit-learn.

The digits are UCI's, CC BY 4.0. ``python record_digits.py`` writes ``digits-symbol.json``, ``digits-0000.params`` and
``digits.npz`` (test images, labels and images for calibration) beside this file. The network has what quantization
meets: a residual add, a depthwise convolution, batch normalization, pooling, a fully connected layer and a softmax head
with a free label.
"""

import os

os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"

import mxnet as mx
import numpy as np
from sklearn.datasets import load_digits

HERE = os.path.dirname(os.path.abspath(__file__))
S = mx.sym


def conv(x, name, filters, kernel=3, stride=1, groups=1, relu=True):
    x = S.Convolution(
        x,
        kernel=(kernel, kernel),
        stride=(stride, stride),
        pad=(kernel // 2, kernel // 2),
        num_filter=filters,
        num_group=groups,
        no_bias=True,
        name=name,
    )
    x = S.BatchNorm(x, fix_gamma=False, eps=1e-5, name=name + "_bn")
    return S.Activation(x, act_type="relu", name=name + "_relu") if relu else x


def network():
    x = conv(S.Variable("data"), "conv0", 16)
    y = conv(conv(x, "conv1", 16), "conv2", 16, relu=False)
    x = S.Activation(S.elemwise_add(y, x, name="add0"), act_type="relu", name="relu0")
    x = S.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool0")
    x = conv(conv(x, "depthwise", 16, groups=16), "pointwise", 32, kernel=1)
    x = S.Flatten(S.Pooling(x, global_pool=True, kernel=(1, 1), pool_type="avg", name="pool1"), name="flat")
    return S.SoftmaxOutput(S.FullyConnected(x, num_hidden=10, name="fc"), name="softmax")


if __name__ == "__main__":
    mx.random.seed(1)
    np.random.seed(1)
    x, y = load_digits(return_X_y=True)
    x = x.reshape(-1, 1, 8, 8).astype(np.uint8)  # 0..16
    order = np.random.RandomState(0).permutation(len(x))
    train, test = order[:1297], order[1297:]

    def scale(a):
        return a.astype(np.float32) / 16

    data = mx.io.NDArrayIter(scale(x[train]), y[train], 50, shuffle=True)
    mod = mx.mod.Module(network(), context=mx.cpu())
    mod.fit(
        data,
        num_epoch=30,
        optimizer="adam",
        initializer=mx.init.Xavier(),
        optimizer_params={"learning_rate": 3e-3, "wd": 1e-4},
    )
    print(mod.score(mx.io.NDArrayIter(scale(x[test]), y[test], 50), "acc"))
    mod.save_checkpoint(os.path.join(HERE, "digits"), 0)
    np.savez_compressed(
        os.path.join(HERE, "digits.npz"), x=x[test], y=y[test].astype(np.uint8), calibration=x[train][:200]
    )
    # As the network takes them: for the documents' commands.
    np.savez_compressed(os.path.join(HERE, "calibration.npz"), data=scale(x[train][:200]))
