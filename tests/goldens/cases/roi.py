"""Golden cases of pooling over regions of interest."""

from case import Case, In

ROIS = [
    [0, 2, 3, 10, 9],
    [1, 0, 0, 20, 20],
    [1, -4, -4, 6, 7],
    [0, 5, 5, 5, 5],
    [0, 3.3, 4.6, 29.1, 21.7],
    [1, 10, 9, 2, 3],
    [0, -9, -9, -5, -5],
    [1, 25, 3, 60, 17],
]
#: ``aligned`` has MXNet abort where a region is not wider and higher than 0.
WIDE = [ROIS[i] for i in (0, 1, 2, 4, 6, 7)]
PADDED = [*ROIS[:3], [-1, 2, 2, 9, 9]]


def rois(rows=ROIS, dtype="float32"):
    return In(len(rows), 5, value=rows, dtype=dtype)


def align(channels=3, rows=ROIS, dtype="float32", **attrs):
    attrs.setdefault("spatial_scale", 0.5)
    tolerance = 1e-4 if dtype != "float16" else 3e-2  # MXNet adds samples up in float16
    return Case(
        "_contrib_ROIAlign",
        [In(2, channels, 12, 16, dtype=dtype), rois(rows, dtype)],
        attrs,
        rtol=tolerance,
        atol=tolerance / 10,
    )


def pool(rows=ROIS, dtype="float32", **attrs):
    attrs.setdefault("spatial_scale", 0.5)
    return Case("ROIPooling", [In(2, 3, 12, 16, dtype=dtype), rois(rows, dtype)], attrs)


def psroi(channels, **attrs):
    attrs.setdefault("spatial_scale", 0.5)
    return Case("_contrib_PSROIPooling", [In(2, channels, 12, 16), rois(ROIS[:5])], attrs)


CASES = [
    align(pooled_size=(3, 2)),
    align(pooled_size=(7, 7)),
    align(pooled_size=(1, 1), spatial_scale=0.25),
    align(pooled_size=(3, 2), sample_ratio=2),
    align(pooled_size=(3, 2), sample_ratio=1),
    align(pooled_size=(3, 2), rows=WIDE, aligned=True),
    align(pooled_size=(3, 2), rows=WIDE, aligned=True, sample_ratio=2),
    align(pooled_size=(2, 2), channels=8, position_sensitive=True),
    align(pooled_size=(2, 3), rows=WIDE, channels=12, position_sensitive=True, sample_ratio=2, aligned=True),
    align(pooled_size=(2, 2), dtype="float64"),
    align(pooled_size=(2, 2), dtype="float16"),
    pool(pooled_size=(3, 2)),
    pool(pooled_size=(7, 7)),
    pool(pooled_size=(1, 1), spatial_scale=0.0625),
    pool(pooled_size=(2, 5), spatial_scale=1.0),
    pool(pooled_size=(3, 2), rows=PADDED),
    pool(pooled_size=(3, 2), dtype="float64"),
    pool(pooled_size=(3, 2), dtype="float16"),
    psroi(8, pooled_size=2, output_dim=2),
    psroi(27, pooled_size=3, output_dim=3, group_size=3),
    psroi(8, pooled_size=4, output_dim=2, group_size=2),
    psroi(18, pooled_size=5, output_dim=2, group_size=3, spatial_scale=1.0),
    psroi(3, pooled_size=1, output_dim=3, spatial_scale=0.25),
]
