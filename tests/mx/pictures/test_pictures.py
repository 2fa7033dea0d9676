"""Pictures, their iterators and data sets: what MXNet 1.9.1 gives on seeded pictures (``record_pictures.py``)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import requant.mx as mx
from requant.errors import InputError, ShapeError, UnsupportedError

pytest.importorskip("PIL", reason="needs Pillow")
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import picture_cases  # noqa: E402

#: What differs on purpose: MXNet says pad 0 for a short last batch, and leaves old memory behind its pictures.
UNSET = {"records, short last batch": ("data0.2", "label0.2", "pad0.2", "data1.2", "label1.2", "pad1.2")}
#: Interpolations of OpenCV that are not computed bit for bit: largest difference of a pixel value.
PIXEL = 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = tmp_path_factory.mktemp("pictures")
    picture_cases.prepare(mx, str(made))
    return str(made)


@pytest.fixture(scope="module")
def recorded() -> Iterator[Any]:
    with np.load(HERE / "data" / "pictures.npz") as found:
        yield found


def test_everything_was_recorded(recorded: Any) -> None:
    assert json.loads((HERE / "data" / "failures.json").read_text()) == {}
    assert {k.split("|")[0] for k in recorded.files} == set(picture_cases.CASES)


@pytest.mark.parametrize("name", list(picture_cases.CASES))
def test_as_in_mxnet(name: str, folder: str, recorded: Any) -> None:
    found = picture_cases.CASES[name](mx, folder)
    wanted = {k.split("|", 1)[1]: recorded[k] for k in recorded.files if k.split("|")[0] == name}
    assert set(found) == set(wanted)
    for key, theirs in wanted.items():
        mine = np.asarray(found[key])
        if key in UNSET.get(name, ()):
            continue
        assert mine.shape == theirs.shape, key
        if theirs.dtype.kind in "US" or "label" in key or "pad" in key:
            np.testing.assert_array_equal(mine, theirs, err_msg=key)
            continue
        assert mine.dtype == theirs.dtype or key.endswith(" y"), (key, mine.dtype, theirs.dtype)
        off = np.abs(mine.astype(np.float64) - theirs.astype(np.float64))
        step = float(np.ptp(theirs)) / 255 if theirs.size else 0.0  # of a pixel, also where values are normalized
        if theirs.dtype.kind in "iu" or key == "gray":
            step = 1.0
        assert off.max(initial=0) <= PIXEL * max(1.1 * step, 1e-6), (key, off.max(), step)


def test_threads_and_order_do_not_change_batches(folder: str) -> None:
    """Shuffled passes hold every picture once, in an order that the seed decides."""

    def labels(threads: int) -> list[float]:
        it = mx.io.ImageRecordIter(
            f"{folder}/one.rec", (3, 24, 24), 2, shuffle=True, seed=5, preprocess_threads=threads, round_batch=False
        )
        return [v for _ in range(2) for b in (it, it.reset())[0] for v in b.label[0].asnumpy()[: 2 - b.pad]]

    one, four = labels(1), labels(4)
    assert one == four
    assert sorted(one[:7]) == list(range(7))


def test_parts_hold_everything_once(folder: str) -> None:
    found = []
    for index in range(3):
        it = mx.io.ImageRecordIter(
            f"{folder}/one.rec", (3, 24, 24), 1, num_parts=3, part_index=index, round_batch=False
        )
        found += [float(b.label[0].asnumpy()[0]) for b in it]
    assert found == list(range(7))


def test_misuse(folder: str) -> None:
    records = f"{folder}/one.rec"
    with pytest.raises(ShapeError, match="smaller than the shape"):
        next(iter(mx.io.ImageRecordIter(records, (3, 60, 60), 2)))
    with pytest.raises(InputError, match="augmentation of training"):
        mx.io.ImageRecordIter(records, (3, 24, 24), 2, max_rotate_angle=10)
    with pytest.raises(InputError, match="unknown argument"):
        mx.io.ImageRecordIter(records, (3, 24, 24), 2, rezise=10)
    with pytest.raises(InputError, match="no such part"):
        mx.io.ImageRecordIter(records, (3, 24, 24), 2, num_parts=2, part_index=2)
    with pytest.raises(ShapeError, match="not a label of boxes"):
        mx.image.ImageDetIter(2, (3, 16, 16), path_imgrec=records)
    with pytest.raises(UnsupportedError, match="belong to training"):
        mx.image.CreateDetAugmenter((3, 16, 16), rand_crop=0.5)


def test_boxes_turn_around_with_their_picture(folder: str) -> None:
    plain, turned = (
        next(iter(mx.io.ImageDetRecordIter(f"{folder}/boxes.rec", (3, 24, 20), 3, mirror=m))) for m in (False, True)
    )
    np.testing.assert_array_equal(turned.data[0].asnumpy(), plain.data[0].asnumpy()[..., ::-1])
    a, b = (v.label[0].asnumpy()[:, 6:11] for v in (plain, turned))
    np.testing.assert_allclose(b[:, [1, 3]], 1 - a[:, [3, 1]], rtol=1e-6)
    np.testing.assert_array_equal(b[:, [0, 2, 4]], a[:, [0, 2, 4]])


def test_images_iterators_calibrate(folder: str) -> None:
    """A record iterator is calibration data for ``quantize_net``, as in MXNet's own example."""
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Conv2D(4, 3, activation="relu"), mx.gluon.nn.GlobalAvgPool2D(), mx.gluon.nn.Dense(3))
    net.initialize(mx.init.Xavier())
    data = mx.io.ImageRecordIter(f"{folder}/one.rec", (3, 24, 24), 2, std_r=64.0, std_g=64.0, std_b=64.0)
    int8 = mx.contrib.quantization.quantize_net_v2(net, quantize_mode="smart", calib_data=data, calib_mode="naive")
    data.reset()
    x = next(iter(data)).data[0]
    wanted, got = net(x).asnumpy(), int8(x).asnumpy()
    assert np.abs(wanted - got).max() < 0.05 * np.abs(wanted).max()
