"""Top-1 and top-5 of a classifier of GluonCV on labelled pictures, float or int8.

    pip install requant[image] gluoncv==0.10.5.post0
    python eval_classification.py --model resnet50_v1b --params resnet50_v1b.params --data val/
    python eval_classification.py --model resnet50_v1b --params resnet50_v1b.params --data val.rec --quantized

``--data`` is a folder with one folder of pictures per class, in the order of their names, or a RecordIO file. All but
the first lines is what a user of GluonCV writes. Without ``--params`` the weights are seeded: accuracy means nothing.
"""

import argparse
import logging
import os
import time

import requant.mx

requant.mx.install()  # the one line: from here on, mxnet is requant

import mxnet as mx  # noqa: E402
from gluoncv.model_zoo import get_model  # noqa: E402
from mxnet.contrib.quantization import quantize_net_v2  # noqa: E402
from mxnet.gluon.data.vision import ImageFolderDataset, ImageRecordDataset, transforms  # noqa: E402

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def dataset(path):
    """Labelled pictures: (H, W, 3) uint8 and a class number."""
    return ImageRecordDataset(path) if path.endswith(".rec") else ImageFolderDataset(path)


def batches(args):
    """Pictures as the network takes them, in batches."""
    resize = int(args.size / 0.875 + 0.5)
    steps = transforms.Compose(
        [
            transforms.Resize(resize, keep_ratio=True),
            transforms.CenterCrop(args.size),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    return mx.gluon.data.DataLoader(
        dataset(args.data).transform_first(steps), args.batch_size, shuffle=False, num_workers=args.workers
    )


def load(args):
    """The network with its parameters."""
    net = get_model(args.model, pretrained=False)
    if args.params:
        net.load_parameters(args.params)
    else:
        print("no --params: the weights are seeded, and accuracy means nothing")
        mx.random.seed(7)
        net.initialize(mx.init.MSRAPrelu(slope=0))
    net.hybridize(static_alloc=True, static_shape=True)
    return net


def quantize(net, data, args):
    """The network in int8, calibrated on the first batches."""
    return quantize_net_v2(
        net,
        quantized_dtype="auto",
        quantize_mode="smart",
        exclude_layers=args.exclude,
        calib_data=data,
        calib_mode=args.calib_mode,
        num_calib_examples=args.calib_examples,
        ctx=mx.cpu(),
        logger=logging,
    )


def evaluate(net, data):
    """Top-1 and top-5 over all pictures, and pictures a second in the network alone."""
    top1, top5 = mx.metric.Accuracy(), mx.metric.TopKAccuracy(5)
    seconds = count = 0.0
    for pictures, labels in data:
        start = time.perf_counter()
        scores = net(pictures)
        scores.wait_to_read()
        seconds += time.perf_counter() - start
        count += len(labels)
        top1.update([labels], [scores])
        top5.update([labels], [scores])
    return top1.get()[1], top5.get()[1], count / seconds


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18_v1b")
    parser.add_argument("--params", help="file of trained parameters")
    parser.add_argument("--data", required=True, help="folder of one folder per class, or a .rec file")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--quantized", action="store_true", help="run in int8")
    parser.add_argument("--calib-mode", choices=["naive", "entropy"], default="entropy")
    parser.add_argument("--calib-examples", type=int, default=128)
    parser.add_argument("--exclude", nargs="*", default=[], help="names of layers that stay float")
    args = parser.parse_args(words)

    data = batches(args)
    net = load(args)
    if args.quantized:
        net = quantize(net, data, args)
    top1, top5, speed = evaluate(net, data)
    kind = "int8" if args.quantized else "float"
    print(f"{args.model} {kind}: top-1 {100 * top1:.2f} %, top-5 {100 * top5:.2f} %, {speed:.1f} pictures/s")
    return top1, top5


if __name__ == "__main__":
    main()
