"""INT8 operators: into integers and back, and layers on integers. Integers must be exact, ranges to one rounding."""

from case import Case, In

EXACT = {"rtol": 1e-6, "atol": 0}


def one(value):
    return In(1, value=[value])


def u8(*shape):
    return In(*shape, kind="ints", dtype="uint8", low=0, high=256)


def s8(*shape):
    return In(*shape, kind="ints", dtype="int8", low=-128, high=128)


def s32(*shape, **kw):
    reach = kw.get("reach", 100000)
    return In(*shape, kind="ints", dtype="int32", low=-reach, high=reach)


def case(op, inputs, note="", skip=None, **attrs):
    values = [i.value for i in inputs if i.value is not None]
    if values:  # a case is told from others by its id, which does not show values
        note = (note + " " + " ".join("%g" % v for value in values for v in value[:3])).strip()
    return Case("_contrib_" + op, inputs, attrs, note=note, skip=skip, **EXACT)


def data(kind, *shape):
    return s8(*shape) if kind == "int8" else u8(*shape)


def span(kind, reach):
    """A range of that type: signed types go below zero, by less than they go above."""
    return [one(-0.75 * reach if kind == "int8" else 0.0), one(reach)]


NOT_EXACT = {"openvino": "it fuses products and sums in one rounding: what lies halfway between integers may differ"}
TYPES = ("int8", "uint8")
CASES = []

# --- quantize, quantize_v2, dequantize, requantize
for kind in TYPES:
    for low, high in ((-3.3, 4.1), (-4.1, 3.3), (0.0, 2.5), (-1e-3, 1e-3), (-300.0, 20.0)):
        scale = max(-low, high) / 2
        CASES += [
            case("quantize", [In(2, 3, 5, 7, scale=scale), one(low), one(high)], out_type=kind),
            case(
                "quantize_v2", [In(2, 3, 5, 7, scale=scale)], out_type=kind, min_calib_range=low, max_calib_range=high
            ),
        ]
    CASES += [
        # without calibration the largest number always lies halfway between two integers
        case("quantize_v2", [In(2, 3, 4)], skip=NOT_EXACT, out_type=kind),
        case("quantize_v2", [In(7, scale=20)], skip=NOT_EXACT, out_type=kind),
        case("quantize_v2", [In(4, 9, kind="positive")], skip=NOT_EXACT, out_type=kind),
        case("quantize_v2", [In(3, 4, kind="uniform", low=-5, high=-1)], skip=NOT_EXACT, out_type=kind),
        case("quantize_v2", [In(3, 4)], skip=NOT_EXACT, out_type=kind, min_calib_range=-1.0),
        case("quantize_v2", [In(3, 4)], skip=NOT_EXACT, out_type=kind, max_calib_range=1.0),
        # exact ties: the multiplier is 1
        case(
            "quantize_v2",
            [In(9, value=[-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 126.5, 127.4, 300.0])],
            out_type=kind,
            min_calib_range=-127.5 if kind == "int8" else 0.0,
            max_calib_range=127.5 if kind == "int8" else 255.5,
        ),
        case(
            "quantize_v2",
            [In(4, value=[float("nan"), float("inf"), float("-inf"), 0.0])],
            note="not numbers",
            skip={"openvino": "NaN has no place in its quantizer"},
            out_type=kind,
            min_calib_range=-1.0,
            max_calib_range=1.0,
        ),
        case("quantize_v2", [data("int8", 3, 5)], out_type=kind),
        case("quantize_v2", [data("uint8", 3, 5)], out_type=kind),
        case("quantize_v2", [data(kind, 3, 5)], out_type=kind, min_calib_range=-2.0, max_calib_range=3.0),
        case("dequantize", [data(kind, 2, 3, 5), one(-3.3), one(4.1)]),
        case("dequantize", [data(kind, 300), one(0.0), one(2.5)]),
        case("dequantize", [data(kind, 4, 4), one(-7.0), one(-1.0)]),
    ]
    for calib in (
        {},
        {"min_calib_range": -1.5, "max_calib_range": 2.5},
        {"min_calib_range": 0.0, "max_calib_range": 2.0},
    ):
        CASES += [
            case("requantize", [s32(4, 9), one(-7e4), one(6e4)], out_type=kind, **calib),
            case("requantize", [s32(2, 3, 4, 5, reach=30), one(-9.5e8), one(9.5e8)], out_type=kind, **calib),
        ]
for low, high in ((0.0, 2.5), (-0.0, 2.5), (-1.0, 2.5)):
    CASES += [
        case("quantize_v2", [In(3, 6)], out_type="auto", min_calib_range=low, max_calib_range=high),
        case(
            "requantize", [s32(3, 6), one(-7e4), one(7e4)], out_type="auto", min_calib_range=low, max_calib_range=high
        ),
    ]
CASES += [
    case("quantize_v2", [In(3, 6)], skip=NOT_EXACT, out_type="auto"),
    case("quantize_v2", [In(3, 6)], skip=NOT_EXACT),
    case("requantize", [s32(3, 6), one(-7e4), one(7e4)]),
    case("requantize", [s32(3, 6), one(-7e4), one(7e4)], out_type="auto"),
    case("quantize", [In(3, 6, kind="positive"), one(0.0), one(3.0)]),
    case("quantize_asym", [In(2, 3, 5)], skip=NOT_EXACT),
    case("quantize_asym", [In(4, 3, 50, kind="uniform", low=2, high=7)], skip=NOT_EXACT),
    case("quantize_asym", [In(4, 3, 5)], min_calib_range=-1.5, max_calib_range=2.0),
    case("quantize_asym", [In(4, 3, 5)], min_calib_range=-1.5),
]

# --- convolution without bias (MXNet adds a bias unscaled) and range for int8 data alone: see test_quantized.py
CONV = [one(-0.4), one(0.5)]
# --- fully connected
for kind in TYPES:
    for rows, columns in ((3, 8), (1, 65), (5, 16)):
        for bias in (True, False):
            inputs = [data(kind, rows, columns), s8(6, columns)] + ([s8(6)] if bias else [])
            inputs += span(kind, 2.0) + CONV + ([one(-1.0), one(3.0)] if bias else [])
            CASES.append(case("quantized_fully_connected", inputs, num_hidden=6, no_bias=not bias))
    CASES += [
        case(
            "quantized_fully_connected",
            [data(kind, 2, 3, 2, 2), s8(4, 12), s8(4)] + span(kind, 7.5) + CONV + [one(-0.1), one(0.1)],
            num_hidden=4,
        ),
        case(
            "quantized_fully_connected",
            [data(kind, 2, 3, 5), s8(4, 5), s8(4)] + span(kind, 7.5) + CONV + [one(-0.1), one(0.1)],
            num_hidden=4,
            flatten=False,
        ),
    ]

# --- pooling, activation, shapes
for kind in TYPES:
    for pool in ("max", "avg"):
        CASES += [
            case("quantized_pooling", [data(kind, 2, 3, 8, 9)] + span(kind, 2.0), pool_type=pool, **attrs)
            for attrs in (
                {"kernel": (2, 2), "stride": (2, 2)},
                {"kernel": (2, 3), "stride": (1, 2)},
                {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)},
                {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "count_include_pad": False},
                {"kernel": (2, 3), "stride": (2, 2), "pooling_convention": "full", "count_include_pad": False},
                {"kernel": (2, 2), "stride": (2, 2), "layout": "NCHW"},
                {"kernel": (7, 7), "global_pool": True},
            )
        ]
        CASES.append(
            case("quantized_pooling", [data(kind, 1, 2, 4, 6, 5)] + span(kind, 2.0), pool_type=pool, kernel=(2, 3, 2))
        )
    CASES += [
        case("quantized_flatten", [data(kind, 2, 3, 4, 5)] + span(kind, 2.0)),
        case("quantized_flatten", [data(kind, 2, 3)] + span(kind, 2.0)),
    ]
CASES.append(case("quantized_act", [s8(2, 3, 4)] + span("int8", 2.0), act_type="relu"))

for first in TYPES:
    for second in TYPES:
        two = [data(first, 2, 3, 4), data(second, 2, 3, 4)] + span(first, 2.0) + span(second, 1.25)
        CASES += [
            case("quantized_concat", two, num_args=2),
            case("quantized_concat", [data(first, 2, 1, 4), data(second, 2, 3, 4)] + two[2:], num_args=2, dim=1),
            case("quantized_concat", [data(first, 2, 3, 4), data(second, 2, 3, 1)] + two[2:], num_args=2, dim=2),
            case("quantized_elemwise_add", two, skip=NOT_EXACT, min_calib_range=-2.5, max_calib_range=3.0),
            case("quantized_elemwise_add", two, skip=NOT_EXACT, min_calib_range=0.0, max_calib_range=1.5),
        ]
        if first == second:
            CASES.append(case("quantized_elemwise_add", two))
CASES += [
    case(
        "quantized_concat",
        [u8(2, 3, 4), s8(2, 2, 4), u8(2, 1, 4), one(0.0), one(2.0), one(-1.0), one(1.0), one(0.0), one(0.5)],
        num_args=3,
    ),
    case(
        "quantized_concat", [u8(2, 3), u8(2, 3), one(0.0), one(2.0), one(0.0), one(2.0)], num_args=2, note="one scale"
    ),
    case("quantized_concat", [s8(2, 3), s8(2, 3), one(1.0), one(2.0), one(-3.0), one(-1.0)], num_args=2),
]
for attrs in ({"min_calib_range": -9.0, "max_calib_range": 7.0}, {"enable_float_output": True}, {}):
    CASES.append(
        case("quantized_elemwise_mul", [s8(2, 3, 4), s8(2, 3, 4)] + span("int8", 2.0) + span("int8", 3.0), **attrs)
    )

# --- batch normalization: oneDNN rounds some integers to the other side
for kind in TYPES:
    for eps in (1e-3, 1e-5):
        CASES.append(
            Case(
                "_contrib_quantized_batch_norm",
                [data(kind, 2, 5, 3, 4), In(5, kind="positive"), In(5), In(5), In(5, kind="positive")]
                + span(kind, 2.0),
                {"fix_gamma": False, "eps": eps, "min_calib_range": -6.0, "max_calib_range": 5.0},
                note="one step",
                rtol=1e-6,
                atol=1,
            )
        )

# --- embedding
for dtype in ("float32", "int32"):
    CASES.append(
        case(
            "quantized_embedding",
            [In(2, 4, kind="ints", low=-2, high=12, dtype=dtype), s8(9, 5), one(-0.4), one(0.5)],
            input_dim=9,
            output_dim=5,
        )
    )
