"""Golden cases of the MultiBox operators."""

from case import Case, In


def prior(h, w, **attrs):
    return Case("_contrib_MultiBoxPrior", [In(2, 3, h, w)], attrs)


def detection(batch, classes, n, **attrs):
    import numpy as np

    rng = np.random.RandomState(batch * 100 + classes * 10 + n)
    raw = np.exp(rng.normal(0, 2, (batch, classes, n)))
    low = rng.uniform(0, 0.7, (1, n, 2))
    inputs = [
        In(batch, classes, n, value=(raw / raw.sum(1, keepdims=True)).astype("float32").tolist()),
        In(batch, 4 * n),
        In(1, n, 4, value=np.concatenate([low, low + rng.uniform(0.1, 0.4, (1, n, 2))], 2).astype("float32").tolist()),
    ]
    return Case("_contrib_MultiBoxDetection", inputs, attrs)


def target(batch, classes, n, **attrs):
    inputs = [In(1, n, 4), In(batch, 3, 5, value=[[[-1] * 5] * 3] * batch), In(batch, classes, n)]
    return Case("_contrib_MultiBoxTarget", inputs, attrs, note="no objects")


CASES = [
    prior(2, 3),
    prior(3, 2, sizes=(0.5, 0.2), ratios=(1, 2, 0.5)),
    prior(3, 2, sizes=(0.5, 0.2), ratios=(2,)),
    prior(3, 2, sizes=(0.5, 0.2), ratios=(2, 3, 1)),
    prior(3, 4, sizes=(0.5, 0.9), ratios=(1, 2), clip=True),
    prior(1, 1, sizes=(0.5,), clip=True),
    prior(2, 5, steps=(0.3, 0.4), offsets=(0.1, 0.6)),
    prior(2, 5, sizes=(0.3, 0.4), ratios=(1, 3), steps=(0.5, 0.4)),
    detection(1, 4, 20),
    detection(2, 4, 20),
    detection(2, 2, 15, force_suppress=True),
    detection(2, 5, 30, nms_threshold=0.2),
    detection(2, 5, 30, nms_threshold=1, clip=False),
    detection(2, 5, 30, nms_threshold=-1),
    detection(2, 5, 30, nms_threshold=2),
    detection(2, 5, 30, threshold=0.6),
    detection(2, 5, 30, threshold=0.6, nms_threshold=0),
    detection(2, 5, 30, threshold=1.1),
    detection(2, 5, 30, nms_topk=10, threshold=0.3),
    detection(1, 5, 30, nms_topk=7, force_suppress=True),
    detection(1, 5, 30, nms_topk=100),
    detection(2, 5, 30, nms_topk=10, threshold=0.8),
    detection(2, 5, 30, variances=(0.2, 0.3, 0.1, 0.4), background_id=2),
    target(2, 3, 6),
    target(1, 3, 6, ignore_label=-5, negative_mining_ratio=3),
]
