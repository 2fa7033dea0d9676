"""Detect objects with an SSD of GluonCV, float or int8, and draw them into a PNG file.

    pip install requant[image] gluoncv==0.10.5.post0 matplotlib
    python demo_ssd.py --params ssd_512_resnet50_v1_voc.params --image street.jpg
    python demo_ssd.py --params ssd_512_resnet50_v1_voc.params --image street.jpg --quantized --calibrate photos/

All but the first lines is what a user of GluonCV writes. Without ``--params`` the weights are seeded, and know two
photos of scikit-image alone; the picture shows that the way works, not what an SSD can.
"""

import argparse
import logging
from pathlib import Path

import requant.mx

requant.mx.install()  # the one line: from here on, mxnet is requant

import matplotlib  # noqa: E402
import mxnet as mx  # noqa: E402
from mxnet.contrib.quantization import quantize_net_v2  # noqa: E402

from gluoncv import data, model_zoo, utils  # noqa: E402

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

NAME = "ssd_512_resnet50_v1_voc"


def photos():
    """The folder with the photos of scikit-image."""
    import skimage

    return Path(skimage.__file__).parent / "data"


def pictures(folder, limit):
    """The first pictures of a folder that are large enough to be photos."""
    found = sorted(p for p in Path(folder).iterdir() if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
    found = [p for p in found if p.stat().st_size > 50_000][:limit]
    if not found:
        raise SystemExit(f"no pictures in {folder}: give a folder with .jpg or .png files")
    return [str(p) for p in found]


def load(args):
    """The network with its parameters."""
    net = model_zoo.get_model(args.network, pretrained=False, pretrained_base=False)
    if args.params:
        net.load_parameters(args.params)
    else:
        import taught_ssd

        print("no --params: the weights are seeded, and know the objects of two photos alone")
        taught_ssd.seed(net)
        lessons = [
            (data.transforms.presets.ssd.load_test(str(photos() / name), short=args.short)[0], marked)
            for name, marked in taught_ssd.MARKED.items()
        ]
        taught_ssd.teach(net, lessons)
    net.hybridize(static_alloc=True, static_shape=True)
    return net


def quantize(net, args):
    """The network in int8, calibrated on the pictures of a folder; the predictors stay float."""
    files = pictures(args.calibrate or photos(), args.pictures)
    batches = [data.transforms.presets.ssd.load_test(f, short=args.short)[0] for f in files]
    print(f"calibrating on {len(batches)} pictures, mode {args.calib_mode}")
    made = quantize_net_v2(
        net,
        quantized_dtype="auto",
        quantize_mode="smart",
        exclude_layers_match=["predictor"],
        calib_data=batches,
        calib_mode=args.calib_mode,
        num_calib_examples=len(batches),
        ctx=mx.cpu(),
        logger=logging,
    )
    made.classes = net.classes
    return made


def detect(net, image, short):
    """Class numbers, scores and boxes of a picture, and the picture as it was shown to the network."""
    x, shown = data.transforms.presets.ssd.load_test(image, short=short)
    ids, scores, boxes = net(x)
    return ids[0], scores[0], boxes[0], shown


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default=NAME)
    parser.add_argument("--params", help="file of trained parameters")
    parser.add_argument("--image", help="the picture; a photo of scikit-image by default")
    parser.add_argument("--short", type=int, default=512, help="pixels of the shorter side")
    parser.add_argument("--quantized", action="store_true", help="run in int8")
    parser.add_argument("--calibrate", help="folder of pictures to calibrate on; scikit-image's by default")
    parser.add_argument("--pictures", type=int, default=8, help="how many of them")
    parser.add_argument("--calib-mode", choices=["naive", "entropy"], default="naive")
    parser.add_argument("--threshold", type=float, default=0.5, help="least score that is shown")
    parser.add_argument("--export", help="prefix for the symbol and the parameters of the network that ran")
    parser.add_argument("-o", "--output", default="detections.png")
    args = parser.parse_args(words)

    net = load(args)
    if args.quantized:
        net = quantize(net, args)
    ids, scores, boxes, shown = detect(net, args.image or str(photos() / "astronaut.png"), args.short)
    for i in range(len(ids)):
        if scores[i].asscalar() >= args.threshold:
            corners = ", ".join(f"{v:.0f}" for v in boxes[i].asnumpy())
            print(f"{net.classes[int(ids[i].asscalar())]:12s} {scores[i].asscalar():.3f}  at {corners}")
    utils.viz.plot_bbox(shown, boxes, scores, ids, class_names=net.classes, thresh=args.threshold)
    plt.savefig(args.output, bbox_inches="tight")
    print(f"wrote {args.output}")
    if args.export:
        net.export(args.export, epoch=0)
        print(f"wrote {args.export}-symbol.json and {args.export}-0000.params")
    return ids, scores, boxes


if __name__ == "__main__":
    main()
