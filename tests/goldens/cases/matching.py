"""Golden cases of bipartite matching."""

from case import Case, In


def matching(*shape, **attrs):
    value = attrs.pop("value", None)
    data = In(*shape, value=value) if value else In(*shape, kind="uniform", low=0)
    return Case("_contrib_bipartite_matching", [data], attrs, note="ties" if value else "")


TIES = [[0.5, 0.5, 0.1], [0.5, 0.5, 0.7], [0.7, 0.5, 0.7], [0.5, 0.2, 0.7]]
CASES = [
    matching(5, 3, threshold=1e-12),
    matching(3, 5, threshold=0.5),
    matching(4, 4, threshold=0.5, is_ascend=True),
    matching(6, 5, threshold=1e-12, topk=1),
    matching(6, 5, threshold=1e-12, topk=3),
    matching(6, 5, threshold=1e-12, topk=30),
    matching(3, 6, 4, threshold=0.3),
    matching(2, 2, 3, 5, threshold=0.7, is_ascend=True),
    matching(2, 7, 1, threshold=0.1),
    matching(3, 3, threshold=2),
    matching(4, 3, value=TIES, threshold=0.15),
    matching(4, 3, value=TIES, threshold=0.5),
    matching(4, 3, value=TIES, threshold=0.6, is_ascend=True),
    Case("_contrib_bipartite_matching", [In(5, 3, kind="uniform", low=0, dtype="float64")], {"threshold": 0.1}),
]
