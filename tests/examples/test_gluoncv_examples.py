"""The GluonCV examples, run as a user would: float and int8 show the same boxes and name the same classes.

Needs ``gluoncv==0.10.5.post0``, matplotlib and the photos of scikit-image; skips without them.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
#: Folders of these tests are called like the package: without it, Python takes them for one (without an origin).
MISSING = [
    n
    for n in ("gluoncv", "matplotlib", "skimage", "PIL")
    if (spec := importlib.util.find_spec(n)) is None or spec.origin is None
]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


def example(name: str) -> ModuleType:
    """An example as a module; importing it installs the alias."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # GluonCV's own, of its age
        return importlib.import_module(name)


@pytest.fixture(autouse=True)
def quiet_warnings():  # type: ignore[no-untyped-def]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def top(found: tuple[Any, Any, Any], least: float = 0.5) -> dict[int, np.ndarray]:
    """The box of the best detection of each class that is shown."""
    ids, scores, boxes = (v.asnumpy() for v in found)
    best: dict[int, np.ndarray] = {}
    for i in range(len(ids)):
        if scores[i, 0] >= least and int(ids[i, 0]) not in best:
            best[int(ids[i, 0])] = boxes[i]
    return best


def test_boxes_of_int8_are_those_of_float(tmp_path: Path) -> None:
    demo = example("demo_ssd")
    taught = example("taught_ssd")
    size = ["--short", "256", "--pictures", "3"]
    floating = top(demo.main([*size, "-o", str(tmp_path / "float.png")]))
    files = [tmp_path / "float.png"]
    names = demo.model_zoo.get_model(demo.NAME, pretrained=False, pretrained_base=False).classes
    marked = dict(taught.MARKED["astronaut.png"])
    assert {names[c] for c in floating} == set(marked)
    for number, box in floating.items():
        wanted = np.array(marked[names[number]]) * 256
        assert taught.overlap(box[None], wanted)[0] >= 0.8
    for mode in ("naive", "entropy"):
        out = tmp_path / f"{mode}.png"
        words = [*size, "--quantized", "--calib-mode", mode, "-o", str(out), "--export", str(tmp_path / mode)]
        found = top(demo.main(words))
        assert set(found) == set(floating)
        for number, box in found.items():
            assert taught.overlap(box[None], floating[number])[0] >= 0.9
        files += [out, tmp_path / f"{mode}-symbol.json", tmp_path / f"{mode}-0000.params"]
    assert all(f.stat().st_size > 1000 for f in files)
    assert "quantized_sg_mkldnn_conv" in (tmp_path / "naive-symbol.json").read_text()


def test_demo_reads_parameters(tmp_path: Path) -> None:
    """``--params`` takes what ``save_parameters`` wrote, and a photo that is named."""
    demo = example("demo_ssd")
    taught = example("taught_ssd")
    net = demo.model_zoo.get_model(demo.NAME, pretrained=False, pretrained_base=False)
    taught.seed(net, 3)
    photo = str(demo.photos() / "chelsea.png")
    x, _ = demo.data.transforms.presets.ssd.load_test(photo, short=128)
    taught.teach(net, [(x, taught.MARKED["chelsea.png"])])
    net.save_parameters(str(tmp_path / "ssd.params"))
    words = ["--params", str(tmp_path / "ssd.params"), "--image", photo, "--short", "128", "-o"]
    found = top(demo.main([*words, str(tmp_path / "cat.png")]))
    assert [net.classes[c] for c in found] == ["cat"]


def labelled(folder: Path) -> Path:
    """Six photos in six folders, one per class."""
    demo = example("demo_ssd")
    for i, name in enumerate(["astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg", "horse.png", "camera.png"]):
        (folder / f"class{i}").mkdir(parents=True)
        shutil.copy(demo.photos() / name, folder / f"class{i}")
    return folder


def records(folder: Path, path: Path) -> Path:
    """The same photos in a RecordIO file."""
    import requant.mx as mx

    writer = mx.recordio.MXIndexedRecordIO(str(path.with_suffix(".idx")), str(path), "w")
    for i, file in enumerate(sorted(folder.rglob("*.*"))):
        writer.write_idx(i, mx.recordio.pack(mx.recordio.IRHeader(0, float(i), i, 0), file.read_bytes()))
    writer.close()
    return path


def test_accuracy_of_float_and_int8(tmp_path: Path) -> None:
    """A classifier that was fitted to six photos knows them, in float and in int8, from a folder and from records."""
    import requant.mx as mx

    evaluation = example("eval_classification")
    taught = example("taught_ssd")
    data = labelled(tmp_path / "photos")
    words = ["--model", "resnet18_v1b", "--size", "96", "--batch-size", "3", "--workers", "0", "--data", str(data)]
    net = evaluation.get_model("resnet18_v1b", pretrained=False)
    net.initialize()
    taught.seed(net)
    parser_words = type("Words", (), {"size": 96, "batch_size": 3, "workers": 0, "data": str(data)})
    x = np.concatenate([features(net, b) for b, _ in evaluation.batches(parser_words)])
    wanted = np.zeros((6, 1000))
    wanted[np.arange(6), np.arange(6)] = 10.0
    mean = x.mean(0)
    centred = x - mean
    weights = np.linalg.lstsq(centred, wanted - wanted.mean(0), rcond=None)[0].T
    net.fc.weight.set_data(mx.nd.array(weights))
    net.fc.bias.set_data(mx.nd.array(wanted.mean(0) - weights @ mean))
    net.save_parameters(str(tmp_path / "net.params"))
    words += ["--params", str(tmp_path / "net.params")]
    assert evaluation.main(words) == (1.0, 1.0)
    assert evaluation.main([*words, "--quantized", "--calib-mode", "naive"]) == (1.0, 1.0)
    packed = str(records(data, tmp_path / "photos.rec"))
    assert evaluation.main([*words, "--data", packed, "--quantized", "--workers", "1"]) == (1.0, 1.0)


def features(net: Any, pictures: Any) -> np.ndarray:
    """What the output layer of a ResNet v1b gets."""
    x = net.maxpool(net.relu(net.bn1(net.conv1(pictures))))
    x = net.layer4(net.layer3(net.layer2(net.layer1(x))))
    return net.flat(net.avgpool(x)).asnumpy()


def test_examples_explain_themselves() -> None:
    for name in ("demo_ssd.py", "eval_classification.py"):
        run = subprocess.run(
            [sys.executable, "-W", "ignore", EXAMPLES / name, "--help"], capture_output=True, text=True
        )
        assert run.returncode == 0 and "--quantized" in run.stdout, run.stderr
