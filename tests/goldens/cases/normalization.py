"""BatchNorm and its kin, LayerNorm, InstanceNorm, GroupNorm, L2Normalization, LRN."""

from case import Case, In

PLAIN = (("MXNET_MKLDNN_ENABLED", "0"),)


def bn(data, op="BatchNorm", dtype="float32", note="", env=(), outputs=None, **attrs):
    channels = data[attrs.get("axis", 1)]
    params = "float32" if dtype == "float16" else dtype
    stats = [In(channels, dtype=params), In(channels, dtype=params), In(channels, dtype=params)]
    variance = In(channels, kind="positive", dtype=params)
    loose = {"rtol": 5e-3, "atol": 5e-3} if dtype == "float16" else {}
    return Case(op, [In(*data, dtype=dtype)] + stats + [variance], attrs, note=note, env=env, outputs=outputs, **loose)


def affine(op, data, size, dtype="float32", **attrs):
    loose = {"rtol": 1e-2, "atol": 1e-2} if dtype == "float16" else {}
    return Case(op, [In(*data, dtype=dtype), In(size, dtype=dtype), In(size, dtype=dtype)], attrs, **loose)


CASES = [
    bn((2, 3, 4, 5)),
    bn((2, 3, 4, 5), fix_gamma=False),
    bn((2, 3, 4, 5), fix_gamma=False, eps=2e-5, momentum=0.99, use_global_stats=True, cudnn_off=True),
    bn((2, 3, 4, 5), fix_gamma=False, eps=0.1),
    bn((2, 3, 4, 5), fix_gamma=False, axis=-1),
    bn((2, 3, 4, 5), fix_gamma=False, axis=3),
    bn((2, 3, 4, 5), fix_gamma=True, axis=2),
    bn((2, 3, 4, 5), fix_gamma=False, axis=0),
    bn((4, 3), fix_gamma=False),
    bn((4, 3), fix_gamma=True, axis=-1),
    bn((2, 3, 5), fix_gamma=False),
    bn((2, 3, 5), fix_gamma=False, axis=2),
    bn((2, 3, 2, 3, 2), fix_gamma=False),
    bn((2, 3, 4, 5), fix_gamma=False, output_mean_var=True),
    bn((2, 3, 4, 5), output_mean_var=True, eps=0.01, axis=2, env=PLAIN),
    bn((2, 3, 4, 5), fix_gamma=False, min_calib_range=-1.0, max_calib_range=1.0),
    bn((2, 3, 4), fix_gamma=False, dtype="float64"),
    bn((2, 3, 4), fix_gamma=False, dtype="float16"),
    bn((2, 3, 4, 5), op="BatchNorm_v1"),
    bn((2, 3, 4, 5), op="BatchNorm_v1", fix_gamma=False, eps=0.01, use_global_stats=True),
    bn((4, 3), op="BatchNorm_v1", fix_gamma=False),
    bn((2, 3, 4, 5), op="_contrib_SyncBatchNorm", key="a"),
    bn((2, 3, 4, 5), op="_contrib_SyncBatchNorm", key="a", fix_gamma=False, eps=1e-5, ndev=2),
    bn((2, 3, 4, 5), op="_contrib_BatchNormWithReLU"),
    bn((2, 3, 4, 5), op="_contrib_BatchNormWithReLU", fix_gamma=False, output_mean_var=True),
    # LayerNorm
    affine("LayerNorm", (2, 3, 5), 5),
    affine("LayerNorm", (2, 3, 5), 3, axis=1),
    affine("LayerNorm", (2, 3, 5), 2, axis=0, eps=0.1),
    affine("LayerNorm", (4, 6), 6, axis=1, eps=1e-3),
    affine("LayerNorm", (2, 3, 4, 5), 4, axis=-2),
    affine("LayerNorm", (2, 3, 4, 5), 5, output_mean_var=True),
    affine("LayerNorm", (2, 3, 4, 5), 3, output_mean_var=True, axis=1, eps=0.5),
    affine("LayerNorm", (2, 3, 5), 5, dtype="float64"),
    affine("LayerNorm", (2, 3, 5), 5, dtype="float16"),
    affine("LayerNorm", (7,), 7),
    # InstanceNorm
    affine("InstanceNorm", (2, 3, 4, 5), 3),
    affine("InstanceNorm", (2, 3, 7), 3, eps=0.1),
    affine("InstanceNorm", (2, 3, 2, 3, 4), 3, eps=1e-5),
    # GroupNorm
    affine("GroupNorm", (2, 4, 3, 5), 1),
    affine("GroupNorm", (2, 4, 3, 5), 2, num_groups=2),
    affine("GroupNorm", (2, 4, 3, 5), 4, num_groups=4, eps=0.1),
    affine("GroupNorm", (2, 6, 5), 3, num_groups=3),
    affine("GroupNorm", (3, 6, 2, 2, 2), 3, num_groups=3),
    affine("GroupNorm", (2, 4, 3, 5), 2, num_groups=2, output_mean_var=True, eps=0.5),
    affine("GroupNorm", (2, 4, 3), 2, num_groups=2, dtype="float64"),
    # L2Normalization
    Case("L2Normalization", [In(3, 4)]),
    Case("L2Normalization", [In(3)]),
    Case("L2Normalization", [In(2, 3, 4, 5)], {"mode": "instance", "eps": 0.5}),
    Case("L2Normalization", [In(2, 3, 4, 5)], {"mode": "channel"}),
    Case("L2Normalization", [In(2, 3, 4, 5)], {"mode": "channel", "eps": 0.5}),
    Case("L2Normalization", [In(2, 3, 4, 5)], {"mode": "spatial", "eps": 1e-3}),
    Case("L2Normalization", [In(2, 3, 4)], {"mode": "spatial"}),
    Case("L2Normalization", [In(2, 3, 4)], {"mode": "channel"}),
    Case("L2Normalization", [In(2, 3, 2, 2, 2)], {"mode": "spatial"}),
    Case("L2Normalization", [In(2, 3, 4, dtype="float64")], {"mode": "channel"}),
    Case("L2Normalization", [In(2, 3, value=[[0, 0, 0], [1e-8, 0, 0]])], note="zeros"),
    # LRN
    Case("LRN", [In(2, 7, 3, 4, scale=3)], {"nsize": 5}),
    Case("LRN", [In(2, 7, 3, 4, scale=3)], {"nsize": 3, "alpha": 0.1, "beta": 0.5, "knorm": 1}),
    Case("LRN", [In(1, 2, 3, 4, scale=3)], {"nsize": 5, "alpha": 1.5, "beta": 1.25, "knorm": 0.5}),
    Case("LRN", [In(1, 4, 2, 2)], {"nsize": 1, "alpha": 1.0, "beta": 0.75, "knorm": 2}),
    Case("LRN", [In(1, 5, 2, 2, scale=3)], {"nsize": 4, "alpha": 1.0, "beta": 0.75, "knorm": 2}),
    Case("LRN", [In(1, 5, 2, 2, scale=3)], {"nsize": 4, "alpha": 1.0, "beta": 0.5, "knorm": 2.5}),
]
