"""The CTC loss."""

from case import Case, In


def ctc(steps, classes, label, data_lengths=None, label_lengths=None, dtype="float32", note="", **attrs):
    inputs = [In(steps, len(label), classes, dtype=dtype), In(value=label, dtype=dtype)]
    if data_lengths is not None:
        inputs.append(In(value=data_lengths, dtype=dtype))
        attrs["use_data_lengths"] = True
    if label_lengths is not None:
        inputs.append(In(value=label_lengths, dtype=dtype))
        attrs["use_label_lengths"] = True
    return Case("CTCLoss", inputs, attrs, note=note or "steps %d label %s" % (steps, str(label).replace(" ", "")))


CASES = [
    ctc(5, 4, [[1, 2], [3, 1]]),
    ctc(5, 4, [[1, 2, 0], [3, 0, 0]]),
    ctc(6, 4, [[1, 1, 2], [2, 2, 2]], note="repeated labels"),
    ctc(5, 4, [[0, 0], [3, 1]], note="an empty label"),
    ctc(5, 4, [[1, 2], [0, 1]], blank_label="last"),
    ctc(5, 4, [[0, -1, -1], [2, 0, 1]], blank_label="last"),
    ctc(6, 4, [[1, 2], [3, 1]], data_lengths=[4, 6]),
    ctc(6, 4, [[1, 2, 3], [3, 1, 1]], label_lengths=[2, 1]),
    ctc(6, 4, [[1, 2, 3], [3, 1, 1]], data_lengths=[4, 6], label_lengths=[2, 3]),
    ctc(6, 4, [[1, 2, 0], [0, 1, 1]], data_lengths=[4, 6], label_lengths=[2, 3], blank_label="last"),
    ctc(12, 3, [[1], [2], [1]]),
]
