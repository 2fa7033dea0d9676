from __future__ import annotations

import os
import pickle
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from damage import damaged, small_memory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from requant.errors import FormatError, InputError, UnsupportedError
from requant.formats.image_codec import decode_image, encode_image
from requant.formats.recordio import IRHeader, MXIndexedRecordIO, MXRecordIO, pack, pack_img, unpack, unpack_img

DATA = Path(__file__).parent / "data"
MAGIC = struct.pack("<I", 0xCED7230A)
PAYLOADS = [b"", b"abc", MAGIC, MAGIC + MAGIC, b"a" + MAGIC, b"abcd" + MAGIC + b"xy", b"abcd" + MAGIC, b"x" * 61]


def picture():
    """The picture of ``record_golden_files.py``."""
    y, x = np.mgrid[0:12, 0:16]
    return np.stack([x * 15, y * 20, 255 - x * 7 - y * 7], axis=2).astype(np.uint8)


def records(path):
    with MXRecordIO(path, "r") as file:
        return list(iter(file.read, None))


# -- containers ------------------------------------------------------------------------------------------------------


def test_reads_what_mxnet_wrote():
    assert records(DATA / "plain.rec") == PAYLOADS
    with MXIndexedRecordIO(DATA / "plain.idx", DATA / "plain.rec", "r") as file:
        assert file.keys == [i * 10 for i in range(len(PAYLOADS))]
        assert [file.read_idx(key) for key in reversed(file.keys)] == PAYLOADS[::-1]
        with pytest.raises(KeyError):
            file.read_idx(5)


def test_writes_the_bytes_of_mxnet(tmp_path):
    with MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "w") as file:
        for i, payload in enumerate(PAYLOADS):
            file.write_idx(i * 10, payload)
        assert file.tell() == (DATA / "plain.rec").stat().st_size
    assert (tmp_path / "a.rec").read_bytes() == (DATA / "plain.rec").read_bytes()
    assert (tmp_path / "a.idx").read_bytes() == (DATA / "plain.idx").read_bytes()


PIECES = st.lists(st.sampled_from([MAGIC, MAGIC[:2], b"abcd", b"x", b"", MAGIC[::-1]]), max_size=8).map(b"".join)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(payloads=st.lists(PIECES | st.binary(max_size=40), max_size=6))
def test_round_trip(tmp_path, payloads):
    with MXRecordIO(tmp_path / "a.rec", "w") as file:
        for payload in payloads:
            file.write(payload)
    assert records(tmp_path / "a.rec") == payloads


def test_reset_reads_again_and_truncates(tmp_path):
    path = tmp_path / "a.rec"
    with MXRecordIO(path, "w") as file:
        file.write(b"one")
        file.reset()
        file.write(b"two")
    with MXRecordIO(path, "r") as file:
        assert file.read() == b"two"
        assert file.read() is None and file.read() is None
        file.reset()
        assert file.read() == b"two"


def test_a_reader_can_be_pickled():
    file = MXIndexedRecordIO(DATA / "plain.idx", DATA / "plain.rec", "r")
    with pickle.loads(pickle.dumps(file)) as copy:
        assert copy.read_idx(50) == PAYLOADS[5]
    assert not file.is_open  # as in MXNet
    closed = pickle.loads(pickle.dumps(file))
    assert not closed.is_open


@pytest.mark.skipif(not hasattr(os, "fork") or sys.version_info >= (3, 12), reason="forking a process warns or fails")
def test_a_forked_reader_opens_the_file_again():
    with MXIndexedRecordIO(DATA / "plain.idx", DATA / "plain.rec", "r") as file:
        child = os.fork()
        if child == 0:
            os._exit(0 if file.read_idx(10) == b"abc" else 1)
        assert os.waitpid(child, 0)[1] == 0
        file.pid = -1  # a plain read must not go on at a shared position
        with pytest.raises(RuntimeError, match="multiple processes"):
            file.read()
        file.pid = os.getpid()


def test_other_keys(tmp_path):
    with MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "w", key_type=str) as file:
        file.write_idx("first", b"1")
        file.write_idx("second", b"2")
    with MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "r", key_type=str) as file:
        assert file.keys == ["first", "second"] and file.read_idx("second") == b"2"


def test_wrong_use(tmp_path):
    with pytest.raises(ValueError, match="Invalid flag x"):
        MXRecordIO(tmp_path / "a.rec", "x")
    with pytest.raises(FileNotFoundError):
        MXRecordIO(tmp_path / "none.rec", "r")
    with pytest.raises(FileNotFoundError):
        MXIndexedRecordIO(tmp_path / "none.idx", DATA / "plain.rec", "r")
    reader = MXRecordIO(DATA / "plain.rec", "r")
    with pytest.raises(InputError, match="for reading only"):
        reader.write(b"x")
    reader.close()
    reader.close()
    with pytest.raises(InputError, match="closed"):
        reader.read()


PART = struct.Struct("<4sI")
FAULTS = {
    "no record": (b"RIFFxxxxxxxx", "this is not the start of a record"),
    "half a header": (MAGIC + b"ab", "inside a record's header"),
    "cut": (PART.pack(MAGIC, 8) + b"abcd", "the file ends inside a record"),
    "no padding": (PART.pack(MAGIC, 5) + b"abcde", "the file ends inside a record"),
    "absurd length": (PART.pack(MAGIC, (1 << 29) - 1) + b"abcd", "the file ends inside a record"),
    "no last part": (PART.pack(MAGIC, 1 << 29 | 4) + b"abcd", "several parts"),
    "starts in the middle": (PART.pack(MAGIC, 2 << 29 | 4) + b"abcd", "out of order"),
    "starts at the end": (PART.pack(MAGIC, 3 << 29 | 4) + b"abcd", "out of order"),
    "whole after first": ((PART.pack(MAGIC, 1 << 29 | 4) + b"abcd") + (PART.pack(MAGIC, 4) + b"abcd"), "out of order"),
    "unknown kind": (PART.pack(MAGIC, 5 << 29 | 4) + b"abcd", "out of order"),
}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_faults_are_told(name, tmp_path):
    path = tmp_path / "bad.rec"
    path.write_bytes(FAULTS[name][0])
    with pytest.raises(FormatError, match=FAULTS[name][1]) as fault, small_memory(1 << 20):
        records(path)
    assert f"{path}, byte 0" in str(fault.value)


@pytest.mark.parametrize("text", ["0\t0\n1\n", "a\t0\n", "0\tx\n", "0\t-1\n", "0\t99999\n", "0 0\n", "\n"])
def test_a_bad_index_is_told(tmp_path, text):
    (tmp_path / "a.idx").write_text(text)
    with pytest.raises(FormatError, match=r"a\.idx, line"):
        MXIndexedRecordIO(tmp_path / "a.idx", DATA / "plain.rec", "r")
    with pytest.raises(FormatError, match=r"the \.idx file first"):
        MXIndexedRecordIO(DATA / "images.rec", DATA / "images.rec", "r")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(blob=damaged([(DATA / "plain.rec").read_bytes(), (DATA / "images.rec").read_bytes()]))
def test_damaged_files_are_refused_or_read(tmp_path, blob):
    (tmp_path / "a.rec").write_bytes(blob)
    try:
        found = records(tmp_path / "a.rec")
        for record in found:
            unpack_img(record)
    except FormatError:
        return
    assert sum(map(len, found)) <= len(blob)


# -- image records ---------------------------------------------------------------------------------------------------


def test_headers():
    assert pack(IRHeader(5, 2.0, 7, 9), b"x") == struct.pack("<IfQQ", 0, 2.0, 7, 9) + b"x"
    several = pack(IRHeader(0, [1, 2, 3], 7, 0), b"x")
    assert several == struct.pack("<IfQQ3f", 3, 0, 7, 0, 1, 2, 3) + b"x"
    header, payload = unpack(several)
    assert (header.flag, header.id, header.id2, payload) == (3, 7, 0, b"x")
    assert header.label.dtype == np.float32 and header.label.tolist() == [1, 2, 3]
    assert unpack(pack((0, 3, 4, 5), b"y")) == (IRHeader(0, 3.0, 4, 5), b"y")
    # MXNet counts an array without dimensions as one label of several
    assert unpack(pack(IRHeader(0, np.array(2.0), 1, 0), b""))[0].flag == 1


@pytest.mark.parametrize("record", [b"", b"x" * 23, struct.pack("<IfQQ", 3, 0, 0, 0) + b"12345678"])
def test_short_records(record):
    with pytest.raises(FormatError, match="too short"):
        unpack(record)
    with pytest.raises(FormatError, match="too short"), small_memory(1 << 20):
        unpack(struct.pack("<IfQQ", 0xFFFFFFFF, 0, 0, 0) + b"1234")


def test_decodes_what_mxnet_packed():
    expected = np.load(DATA / "images.npz")
    with MXIndexedRecordIO(DATA / "images.idx", DATA / "images.rec", "r") as file:
        packed = [file.read_idx(i) for i in range(4)]
    for i in range(3):
        for iscolor in (-1, 0, 1):
            _, image = unpack_img(packed[i], iscolor)
            want = expected[f"{i}_{iscolor}"]
            assert image.dtype == np.uint8 and image.shape == want.shape
            # PNG is exact but for the rounding of gray; JPEG decoders may differ in the last bits
            slack = 0 if i == 2 or (i == 1 and iscolor != 0) else 2
            assert np.abs(image.astype(int) - want.astype(int)).max() <= slack
    assert unpack_img(packed[0])[0] == IRHeader(0, 3.0, 7, 0)
    assert unpack_img(packed[1])[0].label.tolist() == [1.0, 2.5, -1.0]
    header, payload = unpack(packed[3])
    assert (header.label, payload) == (5.0, b"not an image")
    with pytest.raises(FormatError, match="cannot be decoded"):
        unpack_img(packed[3])


def test_packed_images_come_back():
    _, image = unpack_img(pack_img(IRHeader(0, 1, 2, 0), picture(), 9, ".PNG"))
    assert np.array_equal(image, picture())
    _, image = unpack_img(pack_img(IRHeader(0, 1, 2, 0), picture()))
    assert np.abs(image.astype(int) - picture()).max() < 24
    alpha = np.dstack([picture(), picture()[:, :, 0]])
    assert np.array_equal(decode_image(encode_image(alpha, 3, ".png")), alpha)
    assert np.array_equal(decode_image(encode_image(alpha, 3, ".png"), 1), picture())
    assert np.array_equal(decode_image(encode_image(picture()[:, :, :1], 3, ".png")), picture()[:, :, 0])


def test_images_that_are_turned():
    from io import BytesIO

    from PIL import Image

    out = BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned by 90 degrees
    Image.fromarray(picture()).save(out, "JPEG", exif=exif, quality=95)
    assert decode_image(out.getvalue(), -1).shape == (12, 16, 3)
    assert decode_image(out.getvalue(), 1).shape == (16, 12, 3)
    assert decode_image(out.getvalue(), 0).shape == (16, 12)


def test_gray_images_of_16_bits():
    from io import BytesIO

    from PIL import Image

    deep = (np.arange(12, dtype=np.uint16) * 5000).reshape(3, 4)
    out = BytesIO()
    Image.fromarray(deep).save(out, "PNG")
    found = decode_image(out.getvalue())
    assert found.dtype == np.uint16 and np.array_equal(found, deep)
    assert np.array_equal(decode_image(out.getvalue(), 0), deep >> 8)
    assert decode_image(out.getvalue(), 1).shape == (3, 4, 3)


@pytest.mark.parametrize(
    ("image", "quality", "fmt", "message"),
    [
        (np.zeros((4, 4, 3), np.float32), 95, ".jpg", "float32"),
        (np.zeros((4, 4, 2), np.uint8), 95, ".jpg", r"\(4, 4, 2\)"),
        (np.zeros((0, 4, 3), np.uint8), 95, ".jpg", r"\(0, 4, 3\)"),
        (np.zeros((4, 4, 3), np.uint8), 95, ".png", "quality"),
        (np.zeros((4, 4, 3), np.uint8), 0, ".jpg", "quality"),
        (np.zeros((4, 4, 3), np.uint8), 95, ".eps", "format"),
    ],
)
def test_images_that_cannot_be_packed(image, quality, fmt, message):
    with pytest.raises(InputError, match=message):
        pack_img(IRHeader(0, 0, 0, 0), image, quality, fmt)


def test_only_harmless_formats_are_decoded():
    with pytest.raises(FormatError, match="cannot be decoded"):
        decode_image(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n")


def test_pillow_is_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'requant\[image\]'"):
        decode_image(b"")
