"""Golden cases of region proposals."""

from case import Case, In


def proposal(batch, height, width, image=None, note="", **attrs):
    attrs.setdefault("scales", (2, 4))
    attrs.setdefault("ratios", (0.5, 1, 2))
    attrs.setdefault("rpn_post_nms_top_n", 12)
    count = len(attrs["scales"]) * len(attrs["ratios"])
    stride = attrs.get("feature_stride", 16)
    info = [list(image or (height * stride, width * stride, 1.0))] * batch
    inputs = [
        In(batch, 2 * count, height, width, kind="uniform", low=0),
        In(batch, 4 * count, height, width, scale=0.2),
        In(batch, 3, value=info),
    ]
    op = "_contrib_Proposal" if batch == 1 else "_contrib_MultiProposal"
    return Case(op, inputs, attrs, note=note, rtol=1e-4, atol=1e-3)  # coordinates are of hundreds of pixels


CASES = [
    proposal(1, 5, 6),
    proposal(1, 5, 6, output_score=True),
    proposal(1, 5, 6, threshold=0.3, output_score=True),
    proposal(1, 5, 6, rpn_pre_nms_top_n=20, threshold=0.5, output_score=True),
    proposal(1, 5, 6, rpn_pre_nms_top_n=20, threshold=0.2, rpn_post_nms_top_n=30, note="fewer than wanted"),
    proposal(1, 5, 6, rpn_pre_nms_top_n=-1, rpn_post_nms_top_n=40),
    proposal(1, 6, 5, image=(70, 60, 1.5), output_score=True),
    proposal(1, 4, 4, feature_stride=8, rpn_min_size=12, scales=(1, 3), ratios=(1,), output_score=True),
    proposal(1, 4, 4, iou_loss=True, output_score=True),
    proposal(1, 4, 4, scales=(8,), ratios=(0.3, 1.7)),
    proposal(2, 5, 6),
    proposal(2, 5, 6, output_score=True, threshold=0.4, rpn_pre_nms_top_n=30),
    proposal(3, 4, 3, image=(50, 40, 0.8), threshold=0.2, output_score=True, note="fewer than wanted"),
]
