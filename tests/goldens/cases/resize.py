"""AdaptiveAvgPooling2D, BilinearResize2D, UpSampling, Pad, Crop."""

from case import Case, In


def resize(data, dtype="float32", like=None, **attrs):
    loose = {"rtol": 5e-3, "atol": 5e-3} if dtype == "float16" else {}
    inputs = [In(*data, dtype=dtype)] + ([] if like is None else [In(*like, dtype=dtype)])
    return Case("_contrib_BilinearResize2D", inputs, attrs, **loose)


def adaptive(data, dtype="float32", **attrs):
    return Case("_contrib_AdaptiveAvgPooling2D", [In(*data, dtype=dtype)], attrs)


def nearest(*shapes, **attrs):
    full = dict(attrs, sample_type="nearest", num_args=len(shapes))
    return Case("UpSampling", [In(*s) for s in shapes], full)


def bilinear(data, scale):
    k = 2 * scale - scale % 2
    attrs = {"scale": scale, "sample_type": "bilinear", "num_filter": data[1], "num_args": 2}
    return Case("UpSampling", [In(*data), In(data[1], 1, k, k)], attrs)


def pad(data, width, mode, dtype="float32", **attrs):
    return Case("Pad", [In(*data, dtype=dtype)], dict(attrs, mode=mode, pad_width=width))


def crop(*shapes, **attrs):
    return Case("Crop", [In(*s) for s in shapes], dict(attrs, num_args=len(shapes)))


CASES = [
    adaptive((2, 3, 5, 6)),
    adaptive((2, 3, 5, 6), output_size=1),
    adaptive((2, 3, 5, 6), output_size=(2,)),
    adaptive((2, 3, 5, 6), output_size=(2, 3)),
    adaptive((2, 3, 5, 6), output_size=(5, 6)),
    adaptive((1, 2, 5, 6), output_size=(7, 9)),
    adaptive((1, 2, 6, 9), output_size=3),
    adaptive((1, 2, 7, 7), output_size=6),
    adaptive((1, 2, 13, 11), output_size=(6, 1)),
    adaptive((1, 2, 7, 5), output_size=(3, 3), dtype="float64"),
    adaptive((1, 2, 1, 1), output_size=(2, 3)),
    resize((2, 3, 5, 6), height=3, width=4),
    resize((2, 3, 5, 6), height=9, width=11),
    resize((2, 3, 5, 6), height=10, width=12, align_corners=False),
    resize((2, 3, 5, 6), height=3, width=4, align_corners=False),
    resize((1, 2, 5, 6), height=5, width=6),
    resize((1, 2, 5, 6), height=1, width=1),
    resize((1, 2, 5, 6), height=1, width=7, align_corners=False),
    resize((1, 2, 1, 1), height=3, width=4),
    resize((1, 2, 5, 6), height=3),
    resize((1, 2, 5, 6), scale_height=1.5, scale_width=2),
    resize((1, 2, 5, 6), scale_height=0.5, scale_width=0.35, align_corners=False),
    resize((1, 2, 5, 6), mode="size", height=4, width=4, scale_height=2, scale_width=2),
    resize((1, 2, 5, 6), mode="odd_scale", scale_height=2, scale_width=3),
    resize((1, 2, 5, 6), mode="odd_scale", scale_height=0.6, scale_width=0.5),
    resize((1, 2, 5, 6), mode="to_even_down"),
    resize((1, 2, 5, 6), mode="to_even_up"),
    resize((1, 2, 5, 6), mode="to_odd_down"),
    resize((1, 2, 5, 6), mode="to_odd_up"),
    resize((1, 2, 5, 6), mode="to_odd_up", align_corners=False),
    resize((1, 2, 5, 6), mode="like", like=(1, 3, 7, 3)),
    resize((1, 2, 5, 6), mode="like", like=(1, 1, 2, 9), align_corners=False),
    resize((1, 2, 5, 6), height=7, width=3, dtype="float64"),
    resize((1, 2, 5, 6), height=7, width=3, dtype="float16"),
    nearest((2, 3, 2, 3), scale=2),
    nearest((1, 2, 3, 2), scale=3),
    nearest((1, 2, 3, 2), scale=1),
    nearest((1, 2, 2, 4), (1, 1, 4, 8), (1, 3, 1, 2), scale=2),
    nearest((1, 2, 2, 4), (1, 2, 4, 8), (1, 2, 1, 2), scale=2, multi_input_mode="sum"),
    nearest((1, 2, 3, 4), (1, 2, 3, 4), scale=2, multi_input_mode="concat"),
    bilinear((1, 2, 3, 4), 1),
    bilinear((1, 2, 3, 4), 2),
    bilinear((2, 3, 2, 3), 3),
    bilinear((1, 2, 2, 2), 4),
    pad((1, 2, 3, 4), (0, 0, 0, 0, 1, 2, 2, 1), "constant"),
    pad((1, 2, 3, 4), (0, 0, 0, 0, 3, 0, 0, 5), "constant", constant_value=-1.5),
    pad((1, 2, 3, 4), (0, 0, 0, 0, 0, 0, 0, 0), "constant", constant_value=1),
    pad((1, 2, 3, 4), (0, 0, 0, 0, 3, 4, 5, 1), "edge"),
    pad((1, 2, 3, 4), (0, 0, 0, 0, 2, 1, 3, 0), "reflect"),
    pad((1, 2, 2, 3, 4), (0, 0, 0, 0, 1, 1, 1, 2, 2, 1), "constant", constant_value=5),
    pad((1, 2, 2, 3, 4), (0, 0, 0, 0, 1, 1, 1, 2, 2, 1), "edge"),
    pad((1, 2, 2, 3, 4), (0, 0, 0, 0, 1, 1, 1, 2, 2, 1), "reflect"),
    pad((1, 2, 3, 4), (0, 0, 0, 0, 1, 2, 2, 1), "constant", dtype="float64", constant_value=0.1),
    pad((1, 2, 3, 4), (0, 0, 0, 0, 1, 2, 2, 1), "edge", dtype="float16"),
    crop((1, 2, 5, 6), h_w=(2, 3)),
    crop((1, 2, 5, 6), h_w=(2, 3), offset=(1, 2)),
    crop((1, 2, 5, 6), h_w=(4, 4), offset=(1, 2)),
    crop((1, 2, 5, 6), h_w=(2, 3), offset=(1, 2), center_crop=True),
    crop((1, 2, 5, 6), h_w=(2, 2), center_crop=True),
    crop((1, 2, 5, 6), h_w=(5, 6)),
    crop((2, 2, 5, 6), (1, 3, 2, 3)),
    crop((2, 2, 5, 6), (1, 3, 2, 3), offset=(2, 2)),
    crop((2, 2, 5, 6), (1, 3, 2, 2), center_crop=True),
]
