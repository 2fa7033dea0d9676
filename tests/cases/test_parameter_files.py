"""Parameters of every age, under every name: what users met when they loaded models."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from files import (
    CONV_PARAMS,
    DIGITS,
    ENGINES,
    PLAIN,
    apply,
    conv_net,
    digit_images,
    digit_scores,
    load,
    numbers,
    save,
    text,
    variable,
)

import requant
from requant.errors import FormatError, InputError, ParameterError
from requant.formats.params import params_bytes, read_params, write_params
from requant.formats.sparse import RowSparse

# -- parameters of every age ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_params_of_every_version(tmp_path: Path, version: int) -> None:
    shutil.copy(DIGITS / "digits-symbol.json", tmp_path)
    found = read_params(DIGITS / "digits-0000.params", copy=True)
    write_params(tmp_path / "digits-0000.params", found, version=version)
    assert np.array_equal(requant.load(tmp_path / "digits").run(digit_images(3))[0], digit_scores(3))


def test_sparse_parameters(tmp_path: Path) -> None:
    nodes = [variable("data"), variable("e_weight"), apply("Embedding", "e", [0, 1], input_dim="9", output_dim="3")]
    rows = numbers(2, 3)
    sparse = RowSparse(rows, np.array([1, 7], np.int64), (9, 3))
    got = load(tmp_path, text(nodes), {"arg:e_weight": sparse}).run(np.array([[1, 7, 0]], np.float32))[0]  # type: ignore[dict-item]
    assert np.array_equal(got, np.concatenate([rows, np.zeros((1, 3), np.float32)])[None])


@pytest.mark.parametrize("engine", ENGINES)
def test_half_precision_parameters(tmp_path: Path, engine: str) -> None:
    """A network cast to float16: its input follows the parameters."""
    params = {n: p.astype(np.float16) for n, p in CONV_PARAMS.items()}
    model = load(tmp_path, text(conv_net(*PLAIN)), params)
    x = numbers(2, 2, 6, 6)
    wanted = load(tmp_path, text(conv_net(*PLAIN)), CONV_PARAMS).run(x)[0]
    half = load(tmp_path, text(conv_net(*PLAIN)), params)
    out = half.run(x.astype(np.float16), engine=engine)[0]
    assert out.dtype == np.float16
    assert np.abs(out.astype(np.float32) - wanted).max() < 0.02 * np.abs(wanted).max()
    assert [s.dtype for s in model.inputs] == [np.float16]
    with pytest.raises(InputError, match="float16"):
        half.run(x, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_int8_parameters_behind_a_cast(tmp_path: Path, engine: str) -> None:
    nodes = [
        variable("data"),
        variable("w", __dtype__="5"),
        apply("Cast", "cast", [1], dtype="float32"),
        apply("FullyConnected", "fc", [0, 2], num_hidden="3", no_bias="True"),
    ]
    w = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
    x = numbers(2, 4)
    model = load(tmp_path, text(nodes), {"arg:w": w}, shapes={"data": (None, 4)})
    assert np.allclose(model.run(x, engine=engine)[0], x @ w.astype(np.float32).T, atol=1e-5)


def test_params_without_names_are_refused_with_advice(tmp_path: Path) -> None:
    prefix = save(tmp_path, text(conv_net(*PLAIN)))
    (tmp_path / "net-0000.params").write_bytes(params_bytes([numbers(4, 2, 3, 3), numbers(4)]))
    with pytest.raises(FormatError, match=r"(?s)without names.*nd\.load"):
        requant.load(prefix)


def test_key_styles_in_every_loader(tmp_path: Path) -> None:
    """``arg:x``, bare and structural names go into load, load_checkpoint, SymbolBlock and nd.load."""
    import requant.mx as mx

    shutil.copy(DIGITS / "digits-symbol.json", tmp_path / "net-symbol.json")
    found = read_params(DIGITS / "digits-0000.params", copy=True)
    assert isinstance(found, dict)
    x, wanted = digit_images(2), digit_scores(2)
    for epoch, keys in enumerate([found, {n.split(":")[1]: p for n, p in found.items()}]):
        write_params(tmp_path / f"net-{epoch:04d}.params", keys)
        assert np.array_equal(requant.load(tmp_path / "net", epoch=epoch).run(x)[0], wanted)
        path = str(tmp_path / f"net-{epoch:04d}.params")
        block = mx.gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), ["data"], path)
        assert np.allclose(block(mx.nd.array(x)).asnumpy(), wanted, atol=1e-6)
        assert set(mx.nd.load(path)) == set(keys)
    _, args, aux = mx.model.load_checkpoint(str(tmp_path / "net"), 0)
    assert set(args) | set(aux) == {n.split(":")[1] for n in found}
    write_params(tmp_path / "net-0002.params", {"features.0.weight": numbers(1)})
    assert list(mx.nd.load(str(tmp_path / "net-0002.params"))) == ["features.0.weight"]
    with pytest.raises(ParameterError, match=r"(?s)features\.0\.weight.*save_parameters"):
        requant.load(tmp_path / "net", epoch=2)


# -- names of files ------------------------------------------------------------------------------------------------


def test_epoch_minus_one(tmp_path: Path) -> None:
    shutil.copy(DIGITS / "digits-symbol.json", tmp_path / "net-symbol.json")
    shutil.copy(DIGITS / "digits-0000.params", tmp_path / "net--001.params")  # "%04d" % -1
    assert np.array_equal(requant.load(tmp_path / "net").run(digit_images(1))[0], digit_scores(1))
    assert np.array_equal(requant.load(tmp_path / "net", epoch=-1).run(digit_images(1))[0], digit_scores(1))
    shutil.move(tmp_path / "net--001.params", tmp_path / "net--0001.params")
    assert np.array_equal(requant.load(tmp_path / "net", epoch=-1).run(digit_images(1))[0], digit_scores(1))
    shutil.copy(tmp_path / "net--0001.params", tmp_path / "net-0003.params")
    with pytest.raises(FormatError, match="epochs -1, 3"):
        requant.load(tmp_path / "net", epoch=7)


def test_symbol_and_params_of_different_names(tmp_path: Path) -> None:
    shutil.copy(DIGITS / "digits-symbol.json", tmp_path / "net_deploy.json")
    shutil.copy(DIGITS / "digits-0000.params", tmp_path / "iter_5000.params")
    model = requant.load(tmp_path / "net_deploy.json", tmp_path / "iter_5000.params")
    assert np.array_equal(model.run(digit_images(1))[0], digit_scores(1))
    with pytest.raises(FormatError, match=r"iter_5000\.params"):
        requant.load(tmp_path / "net_deploy.json")  # a symbol that lost its parameters is not run with others


def test_sagemaker_archive(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as archive:
        archive.add(DIGITS / "digits-symbol.json", "model_algo_1-symbol.json")
        archive.add(DIGITS / "digits-0000.params", "model_algo_1-0000.params")
        (tmp_path / "model-shapes.json").write_text('[{"shape": [1, 1, 8, 8], "name": "data"}]')
        archive.add(tmp_path / "model-shapes.json", "model_algo_1-shapes.json")
    model = requant.load(tmp_path / "model.tar.gz")
    assert np.array_equal(model.run(digit_images(2))[0], digit_scores(2))


def test_names_with_spaces_and_signs(tmp_path: Path) -> None:
    folder = tmp_path / "größe = 1 (neu)"
    folder.mkdir()
    shutil.copy(DIGITS / "digits-symbol.json", folder / "net [a]=b-symbol.json")
    shutil.copy(DIGITS / "digits-0000.params", folder / "net [a]=b-0000.params")
    model = requant.load(folder / "net [a]=b")
    assert np.array_equal(model.run(digit_images(1))[0], digit_scores(1))
    model.save(folder / "模型.onnx")
    assert np.allclose(requant.load(folder / "模型.onnx").run(digit_images(1))[0], digit_scores(1), atol=1e-6)
