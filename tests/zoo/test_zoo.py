"""Classification networks of GluonCV and MXNet, exported by MXNet 1.9.1, on seeded weights: outputs within 1e-4."""

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest

import requant
from requant.formats import symbol_file

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import seeded  # noqa: E402

DATA = HERE / "data"
NAMES = sorted(p.name.removesuffix(".json.gz") for p in DATA.glob("*.json.gz"))
SIZES = {"inceptionv3": 299, "xception": 299}


def input_shape(key: str) -> tuple[int, ...]:
    name = key.split("-", 1)[1]
    size = 32 if name.startswith("cifar") else SIZES.get(name, 224)
    return (1, 3, size, size)


def load(key: str) -> requant.Model:
    symbol = symbol_file.loads(gzip.decompress((DATA / f"{key}.json.gz").read_bytes()), key)
    shapes, _, aux_shapes = symbol_shapes(symbol, input_shape(key))
    names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
    params = {n: seeded.parameter(n, s) for n, s in zip(names, [*shapes, *aux_shapes]) if n != "data"}
    return requant.Model.from_symbol(symbol, params, source=key)


def symbol_shapes(symbol, shape):  # type: ignore[no-untyped-def]
    from requant.symbol.infer import infer_shape

    return infer_shape(symbol, {"data": shape})


@pytest.mark.parametrize("key", NAMES)
def test_network(key: str) -> None:
    with np.load(DATA / "outputs.npz") as recorded:
        wanted = [recorded[n] for n in sorted(recorded.files) if n.startswith(f"{key}|")]
    outputs = load(key).run(seeded.image(key, input_shape(key)))
    assert len(outputs) == len(wanted) > 0
    for mine, theirs in zip(outputs, wanted):
        assert mine.shape == theirs.shape
        worst = np.abs(mine - theirs).max() / np.abs(theirs).max()
        assert worst <= 1e-4, f"{key}: relative difference {worst:.2e}"


def test_the_list_is_whole() -> None:
    """The networks that must be here are here."""
    needed = {
        *("resnet18_v1", "resnet50_v1", "resnet18_v1b", "resnet50_v1b", "resnet50_v1d", "resnet18_v2", "resnet50_v2"),
        *("mobilenet1.0", "mobilenetv2_1.0", "mobilenetv3_large", "mobilenetv3_small", "densenet121", "inceptionv3"),
        *("vgg16_bn", "squeezenet1.0", "resnext50_32x4d", "se_resnext50_32x4d", "senet_154", "xception", "darknet53"),
        *("alexnet", "googlenet", "shufflenet_v1", "resnest50"),
    }
    assert not [n for n in needed if f"gluoncv-{n}" not in NAMES]
