from __future__ import annotations

import contextlib
import gzip
import io
import os
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import pytest
from damage import damaged, small_memory
from hypothesis import HealthCheck, given, settings

from requant.errors import FormatError
from requant.formats.archive import locate
from requant.formats.params import params_bytes, read_params

SYMBOL = b'{\n  "nodes": [{"op": "null", "name": "data", "inputs": []}], "arg_nodes": [0], "heads": [[0, 0, 0]]}'
PARAMS = params_bytes({"arg:w": np.arange(3, dtype=np.float32)})


def fill(folder: Path, *names: str) -> Path:
    """Make files; their content follows from their ending."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(PARAMS if name.endswith(".params") else SYMBOL if name.endswith(".json") else b"x")
    return folder


def found(files):
    return files.symbol.name, files.params and files.params.name, files.epoch


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "model", "params", "epoch", "expected"),
    [
        ("net-symbol.json net-0000.params", "net-symbol.json", None, None, ("net-symbol.json", "net-0000.params", 0)),
        ("net-symbol.json net-0000.params", "net", None, None, ("net-symbol.json", "net-0000.params", 0)),
        (
            "net-symbol.json net-0002.params net-0010.params net-0009.params",
            "net",
            None,
            None,
            ("net-symbol.json", "net-0010.params", 10),
        ),
        (
            "net-symbol.json net-0002.params net-0010.params",
            "net",
            None,
            2,
            ("net-symbol.json", "net-0002.params", 2),
        ),
        # '%04d' % -1 is '-001'
        ("net-symbol.json net--001.params", "net", None, None, ("net-symbol.json", "net--001.params", -1)),
        (
            "net-symbol.json net--001.params net-0001.params",
            "net",
            None,
            -1,
            ("net-symbol.json", "net--001.params", -1),
        ),
        ("net-symbol.json net-12345.params", "net", None, None, ("net-symbol.json", "net-12345.params", 12345)),
        # another model whose name only begins like this one
        ("a-symbol.json a-0001.params a-b-0009.params", "a", None, None, ("a-symbol.json", "a-0001.params", 1)),
        (
            "a.b-symbol.json a.b-0001.params axb-0009.params",
            "a.b",
            None,
            None,
            ("a.b-symbol.json", "a.b-0001.params", 1),
        ),
        ("net.json net.params", "net", None, None, ("net.json", "net.params", None)),
        ("net.json net-0003.params", "net.json", None, None, ("net.json", "net-0003.params", 3)),
        (
            "net_deploy.json iter_5000.params",
            "net_deploy.json",
            "iter_5000.params",
            None,
            ("net_deploy.json", "iter_5000.params", None),
        ),
        ("x-symbol.json y-0007.params", "x", "y-0007.params", None, ("x-symbol.json", "y-0007.params", 7)),
        ("net-symbol.json", "net-symbol.json", None, None, ("net-symbol.json", None, None)),
        ("net_deploy.json iter_5000.params", ".", None, None, ("net_deploy.json", "iter_5000.params", None)),
        ("n-symbol.json n-0001.params n-0002.params", ".", None, None, ("n-symbol.json", "n-0002.params", 2)),
        ("n-symbol.json n-0001.params n-0002.params", ".", None, 1, ("n-symbol.json", "n-0001.params", 1)),
    ],
)
def test_mxnet_models(tmp_path, names, model, params, epoch, expected):
    fill(tmp_path, *names.split())
    files = locate(tmp_path / model, params and tmp_path / params, epoch)
    assert files.kind == "mxnet" and found(files) == expected


def test_onnx_models(tmp_path):
    fill(tmp_path, "net.onnx", "net.onnx.data")
    for name in ("net.onnx", "net", "."):
        with locate(tmp_path / name) as files:
            assert (files.kind, files.symbol.name, files.params) == ("onnx", "net.onnx", None)
    assert (tmp_path / "net.onnx").exists()


def test_names_relative_to_the_working_directory(tmp_path, monkeypatch):
    fill(tmp_path, "net-symbol.json", "net-0001.params")
    monkeypatch.chdir(tmp_path)
    assert found(locate("net")) == found(locate("net-symbol.json")) == ("net-symbol.json", "net-0001.params", 1)
    with pytest.raises(FormatError, match=r"'net-0001\.params', 'net-symbol\.json' in \."):
        locate("nat")


def test_other_json_files_are_no_models(tmp_path):
    fill(tmp_path, "net-symbol.json", "net-0000.params")
    (tmp_path / "net-shapes.json").write_text('[{"shape": [1, 3, 224, 224], "name": "data"}]')
    (tmp_path / "config.json").write_text('{"nodes_per_job": 3, "labels": ["nodes"]}')
    assert locate(tmp_path).symbol.name == "net-symbol.json"


@pytest.mark.parametrize(
    ("names", "model", "keys", "messages"),
    [
        ("", "net", {}, ["no model of this name", "nothing"]),
        ("resnet-symbol.json resnet-0000.params", "resmet", {}, ["did you mean 'resnet'"]),
        ("a-symbol.json b-symbol.json a-0000.params", ".", {}, ["more than one", "'a-symbol.json', 'b-symbol.json'"]),
        ("a-symbol.json net.onnx", ".", {}, ["more than one", "'a-symbol.json', 'net.onnx'"]),
        ("readme.txt a-0000.params", ".", {}, ["no model is in the folder", "'a-0000.params', 'readme.txt'"]),
        ("net-symbol.json", "net", {}, ["no parameters go with", "nothing in", "net-0000.params"]),
        ("net_deploy.json iter_5.params", "net_deploy.json", {}, ["'iter_5.params' in", "params='", "iter_5.params'"]),
        ("net-symbol.json net-0001.params net-0003.params", "net", {"epoch": 2}, ["epochs 1, 3", "net-0002.params"]),
        (
            "net-symbol.json net-0001.params",
            "net",
            {"params": "net-0002.params"},
            ["no such param", "'net-0001.params'"],
        ),
        ("net-symbol.json", "net-0001.params", {}, ["no model of this name", "'net-symbol.json'"]),
        ("net-symbol.json net-0001.params", "net-0001.params", {}, ["not a model", "give the symbol first"]),
        ("net.onnx a.params", "net.onnx", {"params": "a.params"}, ["holds its parameters itself", "leave them out"]),
        ("net.onnx", "net.onnx", {"epoch": 1}, ["holds its parameters itself"]),
        ("n-symbol.json n-0001.params", "n", {"params": "n-0001.params", "epoch": 1}, ["both given"]),
        ("net-symbol.json", "missing/net", {}, ["no folder"]),
    ],
)
def test_faults_are_told(tmp_path, names, model, keys, messages):
    fill(tmp_path, *names.split())
    if "params" in keys:
        keys = {**keys, "params": tmp_path / keys["params"]}
    with pytest.raises(FormatError) as fault:
        locate(tmp_path / model, **keys)
    assert [m for m in messages if m not in str(fault.value)] == []


def test_what_is_missing_is_also_a_file_not_found_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="no model of this name"):
        locate(tmp_path / "net")
    with pytest.raises(FileNotFoundError, match="no model is in the folder"):
        locate(tmp_path)


# -- archives --------------------------------------------------------------------------------------------------------


def packed(path: Path, members, mode="w:gz") -> Path:
    """An archive of (name or TarInfo, bytes)."""
    with tarfile.open(path, mode) as archive:
        for name, data in members:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(data) if info.isreg() else 0
            archive.addfile(info, io.BytesIO(data))
    return path


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """The only folder that archives are unpacked below."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


MODEL = [("model/net-symbol.json", SYMBOL), ("model/net-0003.params", PARAMS), ("model/code/serve.py", b"raise")]


@pytest.mark.parametrize(
    ("name", "mode"), [("m.tar.gz", "w:gz"), ("m.tgz", "w:gz"), ("m.tar", "w"), ("m.tar.bz2", "w:bz2")]
)
def test_archives(tmp_path, scratch, name, mode):
    with locate(packed(tmp_path / name, MODEL, mode)) as files:
        assert found(files) == ("net-symbol.json", "net-0003.params", 3)
        assert files.symbol.read_bytes() == SYMBOL and files.symbol.is_relative_to(scratch)
        params = read_params(files.params)
    assert os.listdir(scratch) == []
    if os.name == "posix":
        assert params["arg:w"].tolist() == [0, 1, 2]
    files.close()


def test_archives_of_flat_layout_and_of_onnx(tmp_path, scratch):
    with locate(packed(tmp_path / "a.tar.gz", [("./n-symbol.json", SYMBOL), ("./n-0000.params", PARAMS)])) as files:
        assert found(files) == ("n-symbol.json", "n-0000.params", 0)
    with locate(packed(tmp_path / "b.tar.gz", [("1/net.onnx", b"x"), ("1/net.onnx.data", b"y")])) as files:
        assert files.kind == "onnx" and (files.symbol.parent / "net.onnx.data").exists()
    assert os.listdir(scratch) == []


def test_forgotten_archives_are_removed(tmp_path, scratch):
    files = locate(packed(tmp_path / "m.tar.gz", MODEL))
    assert len(os.listdir(scratch)) == 1
    del files
    assert os.listdir(scratch) == []


def link(name, target, kind=tarfile.SYMTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def device(name):
    info = tarfile.TarInfo(name)
    info.type = tarfile.CHRTYPE
    return info


@pytest.mark.parametrize(
    ("member", "message"),
    [
        ("../evil", "would leave its folder"),
        ("a/../../evil", "would leave its folder"),
        ("/tmp/evil", "would leave its folder"),
        ("..\\evil", "would leave its folder"),
        ("C:\\evil", "would leave its folder"),
        (link("net-0000.params", "/etc/passwd"), "a link to '/etc/passwd'"),
        (link("net-0000.params", "net-symbol.json", tarfile.LNKTYPE), "a link to 'net-symbol.json'"),
        (device("null"), "a device"),
        ("net-symbol.json", "holds a name twice"),
        ("net-symbol.json/x", "holds a name twice"),
        ("a/" * 20 + "b" * 300, "absurd name"),
    ],
)
def test_hostile_members(tmp_path, scratch, member, message):
    path = packed(tmp_path / "m.tar.gz", [("net-symbol.json", SYMBOL), (member, b"x")])
    with pytest.raises(FormatError, match=message) as fault:
        locate(path)
    assert str(fault.value).startswith(str(path))
    assert os.listdir(scratch) == [] and sorted(os.listdir(tmp_path)) == ["m.tar.gz", "scratch"]


def test_a_bomb_is_refused_before_it_is_written(tmp_path, scratch):
    info = tarfile.TarInfo("net-0000.params")
    info.size = 1 << 40
    path = tmp_path / "m.tar.gz"
    path.write_bytes(gzip.compress(info.tobuf() + bytes(4096)))
    with pytest.raises(FormatError, match="would grow too large"), small_memory(16 << 20):
        locate(path)
    assert os.listdir(scratch) == []


def test_a_huge_header_is_not_read(tmp_path, scratch):
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 1 << 30
    path = tmp_path / "m.tar.gz"
    path.write_bytes(gzip.compress(info.tobuf() + bytes(32 << 20)))
    with pytest.raises(FormatError, match="a header of"), small_memory(16 << 20):
        locate(path)


def test_too_many_members(tmp_path, scratch, monkeypatch):
    monkeypatch.setattr("requant.formats.archive._MAX_MEMBERS", 5)
    path = packed(tmp_path / "m.tar.gz", [(f"f{i}", b"") for i in range(6)])
    with pytest.raises(FormatError, match="too many members"):
        locate(path)


def test_archives_without_a_model(tmp_path, scratch):
    path = packed(tmp_path / "m.tar.gz", [("a/readme.txt", b"x"), ("b.txt", b"y")])
    with pytest.raises(FileNotFoundError, match="no model is in the folder") as fault:
        locate(path)
    assert "'a/readme.txt', 'b.txt'" in str(fault.value) and "scratch" not in str(fault.value).split("\n", 1)[1]
    assert os.listdir(scratch) == []
    (tmp_path / "e.tar.gz").write_bytes(b"")
    with pytest.raises(FormatError, match="cannot be read"):
        locate(tmp_path / "e.tar.gz")


def archive_bytes(mode):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, data in MODEL:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(blob=damaged([archive_bytes("w:gz"), archive_bytes("w"), archive_bytes("w:bz2")]))
def test_damaged_archives_are_refused_or_read(tmp_path, scratch, blob):
    path = tmp_path / "m.tar.gz"
    path.write_bytes(blob)
    with contextlib.suppress(FormatError):
        locate(path).close()
    assert os.listdir(scratch) == []
