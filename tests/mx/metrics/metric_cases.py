"""Metrics on seeded batches: the same program on both sides. ``run(mx)`` gives figures by case."""

import numpy as np


def batches(kind):
    """Three batches of labels and predictions, of different sizes."""
    r = np.random.RandomState(sum(map(ord, kind)))
    for size in (6, 9, 4):
        if kind == "two":
            yield r.randint(0, 2, size).astype(np.float32), r.uniform(0, 1, (size, 2)).astype(np.float32)
        elif kind == "many":
            pred = r.uniform(0.01, 1, (size, 4)).astype(np.float32)
            yield r.randint(0, 4, size).astype(np.float32), pred / pred.sum(axis=1, keepdims=True)
        elif kind == "numbers":
            label = r.normal(0, 2, (size, 3)).astype(np.float32)
            yield label, (label + r.normal(0, 1, (size, 3))).astype(np.float32)


#: Name of the case -> (metric, arguments, kind of data).
CASES = {
    "accuracy": ("acc", {}, "many"),
    "top 2": ("top_k_accuracy", {"top_k": 2}, "many"),
    "f1": ("f1", {}, "two"),
    "f1 micro": ("f1", {"average": "micro"}, "two"),
    "mcc": ("mcc", {}, "two"),
    "mcc micro": ("mcc", {"average": "micro", "name": "m"}, "two"),
    "pcc": ("pcc", {}, "two"),
    "pcc of four": ("pcc", {}, "many"),
    "pearson": ("pearsonr", {}, "numbers"),
    "pearson micro": ("pearsonr", {"average": "micro"}, "numbers"),
    "perplexity": ("perplexity", {"ignore_label": 2}, "many"),
    "cross entropy": ("ce", {}, "many"),
    "nll": ("nll_loss", {}, "many"),
    "mae": ("mae", {}, "numbers"),
    "mse": ("mse", {}, "numbers"),
    "rmse": ("rmse", {}, "numbers"),
    "loss": ("loss", {}, "numbers"),
}


def run(mx):
    """Figure, global figure and configuration: after one batch, after a local reset and two more, after a reset."""
    found = {}
    for case, (name, arguments, kind) in CASES.items():
        metric = mx.metric.create(name, **arguments)
        data = [(mx.nd.array(label), mx.nd.array(pred)) for label, pred in batches(kind)]
        steps = []
        metric.update([data[0][0]], [data[0][1]])
        micro = case == "pearson micro"  # its global figure is always 0 in MXNet, and a local reset keeps its moments
        steps.append([*metric.get(), *(() if micro else metric.get_global())])
        metric.reset_local()
        for label, pred in data[1:]:
            metric.update([label], [pred])
        if not micro:
            steps.append([*metric.get(), *metric.get_global()])
        metric.reset()
        metric.update([label for label, _ in data], [pred for _, pred in data])
        steps.append([*metric.get(), metric.get_config()["metric"], metric.get_config()["name"]])
        found[case] = [[v if isinstance(v, str) else float(v) for v in step] for step in steps]
    both = mx.metric.create(["acc", "f1"])
    for label, pred in batches("two"):
        both.update([mx.nd.array(label)], [mx.nd.array(pred)])
    found["composite"] = [[list(part) for part in both.get()], [list(part) for part in both.get_global()]]
    found["composite"].append([m["metric"] for m in both.get_config()["metrics"]])
    return found
