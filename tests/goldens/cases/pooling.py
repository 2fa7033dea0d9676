"""Pooling in all conventions, types, ranks and layouts; Flatten."""

from case import Case, In

PLAIN = (("MXNET_MKLDNN_ENABLED", "0"),)


def pool(data, op="Pooling", dtype="float32", note="", env=(), low=None, **attrs):
    loose = {"rtol": 5e-3, "atol": 5e-3} if dtype == "float16" else {}
    recipe = {} if low is None else {"kind": "uniform", "low": low, "high": low + 2}
    return Case(op, [In(*data, dtype=dtype, **recipe)], attrs, note=note, env=env, **loose)


CASES = []
# every type and convention, where the last window fits and where it does not, with and without padding
for kind in ("max", "avg", "sum"):
    for convention in ("valid", "full"):
        for size, pad in ((7, 0), (8, 0), (8, 1), (9, 1)):
            CASES.append(
                pool(
                    (1, 2, size, size + 1),
                    kernel=(3, 3),
                    stride=(2, 2),
                    pad=(pad, pad),
                    pool_type=kind,
                    pooling_convention=convention,
                )
            )
for convention in ("valid", "full"):
    for include in (True, False):
        for pad in (0, 1, 2):
            CASES.append(
                pool(
                    (1, 1, 8, 7),
                    kernel=(3, 4),
                    stride=(3, 2),
                    pad=(pad, pad),
                    pool_type="avg",
                    pooling_convention=convention,
                    count_include_pad=include,
                )
            )
for p in (1, 2, 3):
    CASES += [
        pool((1, 2, 6, 5), kernel=(2, 3), pool_type="lp", p_value=p, pad=(1, 1), stride=(2, 2)),
        pool((1, 2, 6, 5), kernel=(2, 3), pool_type="lp", p_value=p, stride=(3, 2), pooling_convention="full"),
        pool((1, 2, 4, 5), global_pool=True, pool_type="lp", p_value=p),
    ]
CASES += [
    # windows that lie beside the data
    pool((1, 1, 3, 3), kernel=(1, 1), stride=(4, 4), pooling_convention="full"),
    pool((1, 1, 3, 3), kernel=(1, 1), stride=(4, 4), pooling_convention="full", pool_type="avg"),
    pool((1, 1, 5, 4), kernel=(2, 2), stride=(2, 2), pad=(1, 1), pooling_convention="full"),
    pool((1, 1, 5, 4), kernel=(2, 2), stride=(2, 2), pad=(1, 1), pooling_convention="full", pool_type="avg"),
    pool((1, 1, 3, 3), kernel=(2, 2), stride=(2, 2), pad=(2, 2), pooling_convention="full", pool_type="avg"),
    pool((1, 1, 3, 3), kernel=(2, 2), stride=(2, 2), pad=(2, 2), pool_type="avg", env=PLAIN),
    pool((1, 1, 3, 3), kernel=(2, 2), stride=(2, 2), pad=(2, 2), pool_type="max", env=PLAIN),
    pool((1, 1, 4, 4), kernel=(1, 1), stride=(3, 3), pad=(2, 2), pool_type="sum", env=PLAIN),
    pool((1, 1, 9, 9), kernel=(2, 2), stride=(4, 4), pad=(3, 3), pool_type="max", env=PLAIN),
    pool((1, 1, 7, 9), kernel=(1, 2), stride=(4, 4), pad=(2, 3), pool_type="avg", env=PLAIN),
    pool((1, 1, 7, 9), kernel=(1, 2), stride=(4, 4), pad=(2, 3), pool_type="avg", count_include_pad=False, env=PLAIN),
    # all negative data: padding must not win the maximum
    pool((1, 1, 5, 5), kernel=(3, 3), stride=(2, 2), pad=(1, 1), low=-4),
    pool((1, 1, 6, 6), kernel=(3, 3), stride=(2, 2), pad=(1, 1), low=-4, pooling_convention="full"),
    # defaults and odd sizes
    pool((2, 3, 4, 5), kernel=(2, 2)),
    pool((2, 3, 4, 5), kernel=(4, 5), pool_type="avg"),
    pool((1, 2, 6, 7), kernel=(1, 3), stride=(2, 1), pad=(0, 1)),
    pool((1, 2, 6, 7), kernel=(1, 1), stride=(2, 2), pool_type="avg"),
    pool((1, 2, 4, 5), kernel=(2, 2), dtype="float64"),
    pool((1, 2, 4, 5), kernel=(2, 2), dtype="float64", pool_type="avg", pad=(1, 1)),
    pool((1, 2, 4, 5), kernel=(2, 2), dtype="float16"),
    pool((1, 2, 4, 5), kernel=(2, 2), dtype="float16", pool_type="avg"),
    # global: kernel, stride and pad do not count
    pool((2, 3, 4, 5), global_pool=True),
    pool((2, 3, 4, 5), global_pool=True, pool_type="avg", kernel=(2, 2), stride=(2, 2), pad=(1, 1)),
    pool((2, 3, 4, 5), global_pool=True, pool_type="max", kernel=(7, 7)),
    pool((2, 3, 4, 5), global_pool=True, pool_type="sum"),
    pool((2, 3, 6), global_pool=True, pool_type="avg"),
    pool((2, 3, 2, 3, 4), global_pool=True, pool_type="avg"),
    pool((2, 3, 2, 3, 4), global_pool=True, pool_type="max", pooling_convention="full"),
    # 1-D and 3-D
    pool((2, 3, 9), kernel=(3,)),
    pool((2, 3, 9), kernel=(2,), stride=(2,), pool_type="avg", pooling_convention="full"),
    pool((2, 3, 10), kernel=(3,), stride=(2,), pad=(1,), pool_type="avg", pooling_convention="full"),
    pool((2, 3, 10), kernel=(3,), stride=(2,), pad=(1,), pool_type="avg", count_include_pad=False),
    pool((1, 2, 5, 4, 6), kernel=(2, 2, 2)),
    pool((1, 2, 5, 4, 6), kernel=(3, 2, 3), stride=(2, 2, 2), pad=(1, 0, 1), pooling_convention="full"),
    pool((1, 2, 5, 4, 6), kernel=(3, 2, 3), stride=(2, 2, 2), pad=(1, 0, 1), pool_type="avg"),
    pool(
        (1, 2, 6, 4, 6), kernel=(3, 3, 3), stride=(2, 2, 2), pad=(1, 0, 1), pool_type="avg", pooling_convention="full"
    ),
    pool((1, 2, 5, 4, 6), kernel=(2, 2, 2), pool_type="sum"),
    # channels last
    pool((2, 9, 3), kernel=(3,), layout="NWC", stride=(2,)),
    pool((2, 6, 7, 3), kernel=(3, 3), layout="NHWC", stride=(2, 2), pad=(1, 1)),
    pool((2, 6, 7, 3), kernel=(3, 3), layout="NHWC", stride=(2, 2), pad=(1, 1), pool_type="avg"),
    pool((2, 6, 7, 3), global_pool=True, layout="NHWC", pool_type="avg"),
    pool((1, 4, 5, 4, 2), kernel=(2, 2, 2), layout="NDHWC", pool_type="avg"),
    pool((1, 2, 6, 7), kernel=(3, 3), layout="NCHW"),
    # the operator of old files
    pool((1, 2, 7, 8), op="Pooling_v1", kernel=(3, 3), stride=(2, 2)),
    pool((1, 2, 7, 8), op="Pooling_v1", kernel=(3, 3), stride=(2, 2), pad=(1, 1), low=-4),
    pool((1, 2, 8, 8), op="Pooling_v1", kernel=(3, 3), stride=(2, 2), pad=(1, 1), low=-4, pooling_convention="full"),
    pool((1, 2, 8, 8), op="Pooling_v1", kernel=(3, 3), stride=(2, 2), pooling_convention="full"),
    pool((1, 2, 8, 8), op="Pooling_v1", kernel=(3, 3), stride=(2, 2), pooling_convention="full", pool_type="avg"),
    pool((1, 2, 8, 7), op="Pooling_v1", kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="avg"),
    pool((1, 2, 8, 7), op="Pooling_v1", kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="sum"),
    pool((1, 2, 4, 5), op="Pooling_v1", kernel=(2, 2), global_pool=True, pad=(1, 1), stride=(3, 3)),
    pool((1, 2, 4, 5), op="Pooling_v1", kernel=(2, 2), global_pool=True, pool_type="avg"),
    Case("Flatten", [In(2, 3, 4, 5)]),
    Case("Flatten", [In(2, 3)]),
    Case("Flatten", [In(4)]),
    Case("Flatten", [In(2, 3, 4, dtype="int32", kind="ints", low=0, high=9)]),
]
