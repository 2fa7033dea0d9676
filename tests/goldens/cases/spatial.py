"""GridGenerator, BilinearSampler, SpatialTransformer."""

from case import Case, In

IDENTITY = [[1, 0, 0, 0, 1, 0], [0.5, 0.1, -0.2, -0.3, 0.8, 0.3]]


def transform(data, target, theta=None, note="", **attrs):
    loc = In(data[0], 6) if theta is None else In(value=theta)
    full = dict(attrs, transform_type="affine", sampler_type="bilinear", target_shape=target)
    return Case("SpatialTransformer", [In(*data), loc], full, note=note)


CASES = [
    Case("GridGenerator", [In(2, 6)], {"transform_type": "affine", "target_shape": (3, 4)}),
    Case("GridGenerator", [In(value=IDENTITY)], {"transform_type": "affine", "target_shape": (5, 2)}),
    Case("GridGenerator", [In(2, 2, 3, 4)], {"transform_type": "warp"}),
    Case("GridGenerator", [In(1, 2, 5, 2, scale=3)], {"transform_type": "warp", "target_shape": (0, 0)}),
    Case("BilinearSampler", [In(2, 3, 4, 5), In(2, 2, 3, 6, kind="uniform")]),
    Case("BilinearSampler", [In(2, 3, 4, 5), In(2, 2, 3, 6, kind="uniform", low=-2, high=2)], note="beyond the border"),
    Case("BilinearSampler", [In(1, 1, 4, 5), In(1, 2, 1, 1)], {"cudnn_off": True}),
    Case("BilinearSampler", [In(1, 2, 3, 3), In(value=[[[[-1, 0, 1]], [[-1, 0, 1]]]])], note="corners"),
    Case("BilinearSampler", [In(1, 2, 4, 5, dtype="float64"), In(1, 2, 3, 3, kind="uniform", dtype="float64")]),
    transform((2, 3, 4, 5), (3, 6), theta=IDENTITY),
    transform((2, 3, 4, 5), (4, 5), theta=IDENTITY, note="same size"),
    transform((2, 2, 6, 6), (3, 3)),
    transform((1, 1, 3, 3), (5, 7), cudnn_off=True),
]
