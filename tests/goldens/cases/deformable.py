"""Golden cases of deformable convolution."""

from case import Case, In


def size(n, kernel, stride, dilate, pad):
    return (n + 2 * pad - dilate * (kernel - 1) - 1) // stride + 1


def deformable(op, shape, filters, kernel=(3, 3), spread=1.0, dtype="float32", **attrs):
    batch, channels, height, width = shape
    groups = attrs.get("num_deformable_group", 1)
    steps = [attrs.get(k, (d, d)) for k, d in (("stride", 1), ("dilate", 1), ("pad", 0))]
    out = tuple(size(n, k, *[s[i] for s in steps]) for i, (n, k) in enumerate(zip((height, width), kernel)))
    taps = groups * kernel[0] * kernel[1]
    inputs = [In(*shape, dtype=dtype), In(batch, 2 * taps, *out, scale=spread, dtype=dtype)]
    if op.startswith("_contrib_Mod"):
        inputs.append(In(batch, taps, *out, kind="uniform", low=0, dtype=dtype))
    inputs.append(In(filters, channels // attrs.get("num_group", 1), *kernel, dtype=dtype))
    if not attrs.get("no_bias"):
        inputs.append(In(filters, dtype=dtype))
    attrs.update(kernel=kernel, num_filter=filters)
    # Positions go through relative coordinates, which costs some digits of the samples.
    return Case(op, inputs, attrs, rtol=1e-3, atol=1e-4)


CASES = [
    case
    for op in ("_contrib_DeformableConvolution", "_contrib_ModulatedDeformableConvolution")
    for case in (
        deformable(op, (1, 3, 8, 9), 4, pad=(1, 1)),
        deformable(op, (2, 3, 8, 9), 4, pad=(1, 1), spread=4.0),
        deformable(op, (2, 4, 9, 8), 4, stride=(2, 2), pad=(1, 1), no_bias=True),
        deformable(op, (2, 4, 9, 11), 6, stride=(2, 1), dilate=(2, 2), pad=(2, 1), num_group=2),
        deformable(op, (2, 4, 7, 6), 2, pad=(1, 1), num_deformable_group=2),
        deformable(op, (2, 4, 7, 6), 4, pad=(1, 1), num_deformable_group=4, num_group=2, spread=3.0),
        deformable(op, (1, 2, 5, 6), 3, kernel=(1, 1)),
        deformable(op, (1, 2, 5, 6), 3, kernel=(2, 3), spread=2.0),
        deformable(op, (1, 2, 1, 6), 3, kernel=(1, 3), pad=(0, 1)),
    )
] + [
    deformable("_contrib_DeformableConvolution", (1, 2, 5, 6), 3, dtype="float64"),
]
