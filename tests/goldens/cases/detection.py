"""Golden cases of non-maximum suppression."""

from case import Case, In


def boxes(n, classes=0, batch=(), seed_note="", wide=0, dtype="float32"):
    """Rows [id, score, xmin, ymin, xmax, ymax, ...] that overlap each other, as values."""
    import numpy as np

    rng = np.random.RandomState(n * 7 + classes + len(batch))
    shape = tuple(batch) + (n,)
    low = rng.uniform(0, 50, shape + (2,))
    size = rng.uniform(5, 40, shape + (2,))
    ids = rng.randint(0, max(classes, 1), shape + (1,))
    score = rng.uniform(-0.2, 1, shape + (1,))
    parts = [ids, score, low, low + size] + ([rng.uniform(0, 1, shape + (wide,))] if wide else [])
    value = np.concatenate(parts, axis=-1).astype("float32")
    return In(*value.shape, value=value.tolist(), dtype=dtype)


def nms(data, note="", **attrs):
    return Case("_contrib_box_nms", [data], attrs, note=note)


TIES = [
    [0, 0.5, 10, 10, 20, 20],
    [1, 0.5, 11, 11, 21, 21],
    [0, 0.5, 11, 11, 21, 21],
    [2, 0.5, 50, 50, 60, 60],
    [0, 0.9, 40, 40, 30, 30],
    [0, 0.8, 30, 30, 40, 40],
    [0, 0.7, 30, 30, 30, 40],
    [0, 0.7, 30, 30, 30, 40],
    [-1, 0.6, 31, 31, 41, 41],
    [-1, 0.0, 31, 31, 41, 41],
    [-0.4, 0.5, 10, 10, 20, 20],
    [7, float("nan"), 1, 1, 2, 2],
]
EDGES = In(12, 6, value=TIES)
CASES = [
    nms(boxes(12)),
    nms(boxes(40), overlap_thresh=0.3),
    nms(boxes(40), overlap_thresh=0.3, valid_thresh=0.2),
    nms(boxes(40), overlap_thresh=0.7, topk=10),
    nms(boxes(40), overlap_thresh=0.7, topk=100),
    nms(boxes(40), topk=0),
    nms(boxes(40), overlap_thresh=0, valid_thresh=-1),
    nms(boxes(40), overlap_thresh=1, valid_thresh=0.1),
    nms(boxes(40), overlap_thresh=1.5),
    nms(boxes(40), valid_thresh=2, note="none valid"),
    nms(boxes(40), valid_thresh=0.99, topk=3, note="hardly any valid"),
    nms(boxes(60, 4), overlap_thresh=0.2, id_index=0),
    nms(boxes(60, 4), overlap_thresh=0.2, id_index=0, force_suppress=True),
    nms(boxes(60, 4), overlap_thresh=0.2, id_index=0, topk=20, valid_thresh=0.3),
    nms(boxes(60, 4), overlap_thresh=0.2, id_index=0, background_id=1),
    nms(boxes(60, 4), overlap_thresh=0.2, id_index=0, background_id=0, force_suppress=True),
    nms(boxes(60, 4), overlap_thresh=0.2, id_index=0, background_id=9),
    nms(boxes(60, 4), overlap_thresh=0.2, background_id=0),
    nms(boxes(30, 3, (2,)), overlap_thresh=0.2, id_index=0),
    nms(boxes(30, 3, (2,)), overlap_thresh=0.2, id_index=0, topk=12, valid_thresh=0.4),
    nms(boxes(30, 3, (3,)), overlap_thresh=0.2, topk=12),
    nms(boxes(20, 3, (2, 3)), overlap_thresh=0.2, id_index=0, topk=12),
    nms(boxes(20, 3, (1, 2)), overlap_thresh=0.2),
    nms(boxes(20, 3, (1,)), overlap_thresh=0.2, id_index=0),
    nms(boxes(20, 3, wide=3), overlap_thresh=0.2, id_index=0, topk=12),
    nms(boxes(20, 3, wide=3), overlap_thresh=0.2, coord_start=3, score_index=8, id_index=0),
    nms(boxes(20, 3, (2,)), overlap_thresh=0.2, in_format="center", topk=9),
    nms(boxes(20, 3, (2,)), overlap_thresh=0.2, in_format="center", out_format="center", id_index=0),
    nms(boxes(20, 3, (2,)), overlap_thresh=0.2, out_format="center", topk=9),
    nms(boxes(20, 3, wide=2), overlap_thresh=0.2, out_format="center", note="more columns"),
    nms(In(6, 5, value=[[0.5, 1, 1, 5, 5], [0.4, 1, 1, 5, 6]] * 3), coord_start=1, score_index=0, note="ties"),
    nms(boxes(1)),
    nms(boxes(1, 1, (2,)), id_index=0, topk=5),
    nms(EDGES, note="ties, inside out, no area, negative class, nan"),
    nms(EDGES, id_index=0, note="ties, inside out, no area, negative class, nan"),
    nms(EDGES, id_index=0, background_id=0, note="ties, inside out, no area, negative class, nan"),
    nms(EDGES, id_index=0, background_id=9, note="ties, inside out, no area, negative class, nan"),
    nms(EDGES, id_index=0, topk=7, note="ties, inside out, no area, negative class, nan"),
    nms(boxes(20, 3, dtype="float64"), overlap_thresh=0.2, id_index=0),
    nms(boxes(20, 3, dtype="float16"), overlap_thresh=0.2, id_index=0),
]
