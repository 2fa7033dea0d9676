"""What MXNet's picture functions, iterators and data sets give on small seeded pictures: the same cases on both sides.

Each case is a function of (mx, folder) that returns arrays by name; ``folder`` is where ``prepare`` wrote pictures and
records. Pictures are PNG, so that decoding is exact.
"""

# ruff: noqa: UP031

import io
import os

import numpy as np
from PIL import Image

SIZES = [(30, 40), (40, 30), (32, 32), (50, 36), (28, 61), (33, 47), (44, 29)]  # height, width


def picture(i):
    """A smooth seeded picture, (H, W, 3) uint8."""
    h, w = SIZES[i % len(SIZES)]
    coarse = np.random.RandomState(100 + i).randint(0, 256, (h // 4 + 1, w // 4 + 1, 3))
    return coarse.repeat(4, 0).repeat(4, 1)[:h, :w].astype(np.uint8)


def png(i):
    """Its PNG file."""
    buffer = io.BytesIO()
    Image.fromarray(picture(i)).save(buffer, "PNG")
    return buffer.getvalue()


def objects(i):
    """A detection label: header of 2, then class and corners of i % 3 + 1 boxes."""
    random = np.random.RandomState(200 + i)
    rows = [2.0, 5.0]
    for _ in range(i % 3 + 1):
        x, y = random.uniform(0, 0.5, 2)
        w, h = random.uniform(0.2, 0.5, 2)
        rows += [float(random.randint(5)), x, y, x + w, y + h]
    return np.array(rows, np.float32)


def prepare(mx, folder):
    """Write seven pictures as files and as records: with one label, with two, and with boxes."""
    for i in range(len(SIZES)):
        for sub, name in (("flat", "p%d.png" % i), (os.path.join("classes", "abc"[i % 3]), "p%d.png" % i)):
            os.makedirs(os.path.join(folder, sub), exist_ok=True)
            with open(os.path.join(folder, sub, name), "wb") as file:
                file.write(png(i))
    for name, label in (
        ("one", lambda i: float(i)),
        ("two", lambda i: np.array([i, 10 * i], np.float32)),
        ("boxes", objects),
    ):
        path = os.path.join(folder, name)
        writer = mx.recordio.MXIndexedRecordIO(path + ".idx", path + ".rec", "w")
        for i in range(len(SIZES)):
            writer.write_idx(i, mx.recordio.pack(mx.recordio.IRHeader(0, label(i), i, 0), png(i)))
        writer.close()
    with open(os.path.join(folder, "list.lst"), "w") as file:
        for i in range(len(SIZES)):
            file.write("%d\t%f\tp%d.png\n" % (i, i % 3, i))


def _batches(it, passes=1):
    found = {}
    for turn in range(passes):
        for k, batch in enumerate(it):
            found["data%d.%d" % (turn, k)] = batch.data[0].asnumpy()
            found["label%d.%d" % (turn, k)] = batch.label[0].asnumpy()
            found["pad%d.%d" % (turn, k)] = np.array(batch.pad)
        it.reset()
    return found


def _records(name="one", passes=1, **kwargs):
    def case(mx, folder):
        options = dict(data_shape=(3, 24, 24), batch_size=3, preprocess_threads=1, **kwargs)
        path = os.path.join(folder, name)
        return _batches(mx.io.ImageRecordIter(path_imgrec=path + ".rec", **options), passes)

    return case


def _boxes(passes=1, **kwargs):
    def case(mx, folder):
        path = os.path.join(folder, "boxes")
        options = dict(data_shape=(3, 24, 20), batch_size=3, preprocess_threads=1, **kwargs)
        return _batches(mx.io.ImageDetRecordIter(path_imgrec=path + ".rec", **options), passes)

    return case


def _image_iter(kind="rec", passes=1, **kwargs):
    def case(mx, folder):
        if kind == "rec":
            kwargs.update(path_imgrec=os.path.join(folder, "one.rec"), path_imgidx=os.path.join(folder, "one.idx"))
        else:
            kwargs.update(path_imglist=os.path.join(folder, "list.lst"), path_root=os.path.join(folder, "flat"))
        return _batches(mx.image.ImageIter(3, (3, 24, 24), **kwargs), passes)

    return case


def _det_iter(passes=1, **kwargs):
    def case(mx, folder):
        path = os.path.join(folder, "boxes")
        it = mx.image.ImageDetIter(3, (3, 24, 20), path_imgrec=path + ".rec", path_imgidx=path + ".idx", **kwargs)
        found = {"label_shape": np.array(it.label_shape)}
        found.update(_batches(it, passes))
        return found

    return case


def det_reshape(mx, folder):
    """Label shapes grow; two iterators agree on one."""
    path = os.path.join(folder, "boxes")
    first, second = (
        mx.image.ImageDetIter(2, (3, 16, 16), path_imgrec=path + ".rec", path_imgidx=path + ".idx") for _ in "ab"
    )
    first.reshape(label_shape=(5, 5))
    second = first.sync_label_shape(second)
    found = _batches(first)
    found["second"] = np.array(second.label_shape)
    return found


def functions(mx, folder):
    """Functions on one picture."""
    src = mx.nd.array(picture(0), dtype="uint8")
    found = {}
    for interp in range(5):
        for w, h in ((20, 15), (57, 45), (31, 50)):
            found["imresize %d %dx%d" % (interp, w, h)] = mx.image.imresize(src, w, h, interp).asnumpy()
    found["resize_short"] = mx.image.resize_short(src, 20, 1).asnumpy()
    found["resize_short 2"] = mx.image.resize_short(src, 45, 2).asnumpy()
    found["fixed_crop"] = mx.image.fixed_crop(src, 3, 5, 20, 18).asnumpy()
    found["fixed_crop resized"] = mx.image.fixed_crop(src, 3, 5, 20, 18, (10, 12), 1).asnumpy()
    crop, where = mx.image.center_crop(src, (21, 17), 1)
    found["center_crop"], found["center_crop at"] = crop.asnumpy(), np.array(where)
    crop, where = mx.image.center_crop(src, (100, 50), 1)
    found["center_crop large"], found["center_crop large at"] = crop.asnumpy(), np.array(where)
    found["scale_down"] = np.array([mx.image.scale_down((360, 1000), (480, 500)), mx.image.scale_down((9, 9), (3, 4))])
    mean, std = mx.nd.array([123.0, 117.0, 104.0]), mx.nd.array([58.0, 57.0, 56.0])
    found["color_normalize"] = mx.image.color_normalize(src.astype("float32"), mean, std).asnumpy()
    found["border"] = mx.image.copyMakeBorder(src, 2, 3, 4, 5).asnumpy()
    found["gray"] = mx.image.imdecode(png(0), flag=0).asnumpy()
    found["bgr"] = mx.image.imdecode(png(0), to_rgb=False).asnumpy()
    found["imread"] = mx.image.imread(os.path.join(folder, "flat", "p1.png")).asnumpy()
    return found


def augmenters(mx, folder):
    """Augmenters that do nothing at random."""
    src = mx.nd.array(picture(3), dtype="uint8")
    found = {}
    for name, arguments in (
        ("plain", {}),
        ("resize", {"resize": 30}),
        ("normalized", {"resize": 28, "mean": True, "std": True}),
        ("bilinear", {"resize": 40, "inter_method": 1, "mean": np.array([1.0, 2.0, 3.0])}),
    ):
        out = src
        made = mx.image.CreateAugmenter((3, 24, 22), **arguments)
        for one in made:
            out = one(out)
        found[name] = out.asnumpy()
        found[name + " names"] = np.array([type(a).__name__ for a in made])
    return found


def samplers(mx, folder):
    """Which samples come when."""
    data = mx.gluon.data
    found = {"sequential": np.array(list(data.SequentialSampler(5)))}
    for last in ("keep", "discard", "rollover"):
        sampler = data.BatchSampler(data.SequentialSampler(7), 3, last)
        for turn in range(2):
            for k, batch in enumerate(sampler):
                found["%s %d.%d" % (last, turn, k)] = np.array(batch)
        found[last + " len"] = np.array(len(sampler))
    return found


def loader(mx, folder):
    """Batches of arrays."""
    x = np.arange(35, dtype=np.float32).reshape(7, 5)
    y = np.arange(7, dtype=np.int32)
    found = {}
    for last in ("keep", "discard", "rollover"):
        made = mx.gluon.data.DataLoader(mx.gluon.data.ArrayDataset(x, y), 3, last_batch=last)
        for k, (a, b) in enumerate(made):
            found["%s %d x" % (last, k)], found["%s %d y" % (last, k)] = a.asnumpy(), b.asnumpy()
            found["%s %d types" % (last, k)] = np.array([np.dtype(v.dtype).name for v in (a, b)])
    simple = mx.gluon.data.SimpleDataset(list(range(6))).transform(lambda v: v * 2)
    found["simple"] = np.array([simple[i] for i in range(len(simple))])
    for k, batch in enumerate(mx.gluon.data.DataLoader(simple, 4)):
        found["simple %d" % k] = batch.asnumpy()
    found["filtered"] = np.array(list(mx.gluon.data.SimpleDataset(list(range(9))).filter(lambda v: v % 3 == 0)))
    found["taken"] = np.array(list(mx.gluon.data.SimpleDataset(list(range(9))).take(4)))
    shards = [mx.gluon.data.SimpleDataset(list(range(10))).shard(3, i) for i in range(3)]
    found["shards"] = np.array([len(s) for s in shards] + [v for s in shards for v in s])
    return found


def transforms(mx, folder):
    """Transforms of pictures that do nothing at random."""
    t = mx.gluon.data.vision.transforms
    src = mx.nd.array(picture(4), dtype="uint8")
    found = {
        "to_tensor": t.ToTensor()(src).asnumpy(),
        "cast": t.Cast("float32")(src).asnumpy(),
        "resize": t.Resize((20, 16))(src).asnumpy(),
        "resize keep": t.Resize(16, keep_ratio=True)(src).asnumpy(),
        "resize square": t.Resize(18)(src).asnumpy(),
        "center": t.CenterCrop(18)(src).asnumpy(),
        "center large": t.CenterCrop((40, 40))(src).asnumpy(),
        "crop": t.CropResize(2, 3, 17, 14)(src).asnumpy(),
        "crop resize": t.CropResize(2, 3, 17, 14, (10, 8), 1)(src).asnumpy(),
    }
    steps = [t.Resize(26), t.CenterCrop(24), t.ToTensor(), t.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))]
    found["composed"] = t.Compose(steps)(src).asnumpy()
    batch = mx.nd.stack(*[mx.nd.array(picture(i)[:28, :29], dtype="uint8") for i in range(3)])
    found["batch to_tensor"] = t.ToTensor()(batch).asnumpy()
    found["batch normalize"] = t.Normalize(0.5, 0.25)(t.ToTensor()(batch)).asnumpy()
    return found


def datasets(mx, folder):
    """Data sets of files and records."""
    vision = mx.gluon.data.vision
    files = vision.ImageFolderDataset(os.path.join(folder, "classes"))
    records = vision.ImageRecordDataset(os.path.join(folder, "one.rec"))
    found = {"synsets": np.array(files.synsets), "items": np.array([os.path.basename(f) for f, _ in files.items])}
    for name, made in (("folder", files), ("records", records)):
        found[name + " len"] = np.array(len(made))
        for i in range(0, len(made), 3):
            x, y = made[i]
            found["%s %d x" % (name, i)] = x.asnumpy()
            found["%s %d y" % (name, i)] = np.asarray(y.asnumpy() if hasattr(y, "asnumpy") else y, np.float64)
    return found


CASES = {
    "records": _records(passes=2),
    "records, normalized": _records(mean_r=120.0, mean_g=115.0, mean_b=105.0, std_r=58.0, std_g=57.0, std_b=56.0),
    "records, scaled": _records(scale=1 / 255.0, mean_r=10.0, mean_g=20.0, mean_b=30.0),
    "records, resized": _records(resize=26),
    "records, resized, cubic": _records(resize=26, inter_method=2),
    "records, mirrored": _records(mirror=True),
    "records, two labels": _records("two", label_width=2),
    "records, short last batch": _records(round_batch=False, passes=2),
    "records, second part": _records(num_parts=2, part_index=1),
    "records, bytes": _records(dtype="uint8"),
    "boxes": _boxes(passes=2),
    "boxes, normalized": _boxes(mean_r=120.0, mean_g=115.0, mean_b=105.0, std_r=58.0, std_g=57.0, std_b=56.0),
    "boxes, wide labels": _boxes(label_pad_width=30, label_pad_value=-2.0),
    "image iter": _image_iter(passes=2),
    "image iter, list": _image_iter("list", passes=2),
    "image iter, discard": _image_iter(last_batch_handle="discard", passes=2),
    "image iter, roll over": _image_iter(last_batch_handle="roll_over", passes=3),
    "image iter, normalized": _image_iter(resize=26, mean=True, std=True),
    "det iter": _det_iter(passes=2),
    "det iter, discard": _det_iter(last_batch_handle="discard"),
    "det iter, normalized": _det_iter(mean=True, std=True),
    "det iter, reshaped": det_reshape,
    "functions": functions,
    "augmenters": augmenters,
    "samplers": samplers,
    "loader": loader,
    "transforms": transforms,
    "data sets": datasets,
}
