"""What users ran into when they ran models: versions, threads, processes, memory that is shared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from files import DIGITS, ENGINES, apply, digit_images, load, numbers, text, variable

import requant
from requant.errors import DTypeError, InputError, RequantError

ROOT = Path(__file__).resolve().parents[2]


# -- import --------------------------------------------------------------------------------------------------------


def test_the_package_has_no_compiled_part() -> None:
    package = Path(requant.__file__).parent
    assert not [p for p in package.rglob("*") if p.suffix in (".so", ".pyd", ".dylib", ".dll", ".pyx", ".c", ".cpp")]


def test_every_module_imports_and_warns_of_nothing() -> None:
    """On this Python and this numpy. A warning on import is an error."""
    code = (
        "import importlib, pkgutil, requant\n"
        "for m in pkgutil.walk_packages(requant.__path__, 'requant.'):\n"
        "    importlib.import_module(m.name)\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_declared_versions_are_those_that_run() -> None:
    if sys.version_info < (3, 11):
        pytest.skip("reads pyproject.toml with tomllib")
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.10,<3.15"
    assert any(d.startswith("numpy>=1.26") for d in project["dependencies"])
    assert not any("mxnet" in d for d in project["dependencies"])


# -- threads -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_failures_come_up_in_the_thread_that_made_them(tmp_path: Path, engine: str) -> None:
    """Loading, compiling and running fail in workers; the pool hands each failure to who asked."""
    compiled = requant.load(DIGITS / "digits").compile(engine)
    x = digit_images(1)
    with ThreadPoolExecutor(4) as pool:
        good = [pool.submit(compiled.run, x) for _ in range(8)]
        absent = pool.submit(requant.load, tmp_path / "nothing")
        shape = pool.submit(compiled.run, x[0])
        name = pool.submit(compiled.run, {"dta": x})
        dtype = pool.submit(compiled.run, x.astype(np.float64))
        assert all(np.array_equal(f.result()[0], good[0].result()[0]) for f in good)
        assert isinstance(absent.exception(), FileNotFoundError)
        assert isinstance(absent.exception(), RequantError)
        assert all(isinstance(f.exception(), InputError) for f in (shape, name, dtype))


@pytest.mark.parametrize("engine", ENGINES)
def test_threads_that_load_compile_and_run_at_once(engine: str) -> None:
    """Each builds its own from nothing, with a new shape each: lowering and names must not mix."""
    x = digit_images(8)
    wanted = requant.load(DIGITS / "digits").run(x, engine=engine)[0]
    found: dict[int, np.ndarray] = {}
    faults: list[BaseException] = []

    def work(i: int) -> None:
        try:
            found[i] = requant.load(DIGITS / "digits").run(x[: i + 1], engine=engine)[0]
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults
    assert all(np.allclose(found[i], wanted[: i + 1], atol=1e-5) for i in range(6))


@pytest.mark.parametrize("engine", ENGINES)
def test_one_model_and_many_shapes_from_many_threads(engine: str) -> None:
    compiled = requant.load(DIGITS / "digits").compile(engine, cache_size=2)  # sessions come and go under load
    x = digit_images(6)
    wanted = compiled.run(x)[0]

    def work(i: int) -> bool:
        n = i % 6 + 1
        return bool(np.allclose(compiled.run(x[:n])[0], wanted[:n], atol=1e-5))

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(48)))


def test_results_belong_to_the_caller() -> None:
    """Writing into a result changes neither later results nor earlier ones."""
    for engine in ENGINES:
        compiled = requant.load(DIGITS / "digits").compile(engine)
        x = digit_images(2)
        first = compiled.run(x)[0]
        kept = first.copy()
        first[:] = -1
        second = compiled.run(x)[0]
        assert np.array_equal(second, kept)
        compiled.run(digit_images(2) * 0)
        assert np.array_equal(second, kept)


# -- processes -----------------------------------------------------------------------------------------------------


def _in_a_child(engine: str) -> list[float]:
    out: list[float] = requant.load(DIGITS / "digits").run(digit_images(1), engine=engine)[0].ravel().tolist()
    return out


@pytest.mark.parametrize("engine", ENGINES)
def test_a_spawned_process_loads_and_runs(engine: str) -> None:
    """What a data loader or a server's worker does."""
    code = (
        f"import json, sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import multiprocessing\n"
        "import test_running as t\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(2) as pool:\n"
        f"        print(json.dumps(pool.map(t._in_a_child, [{engine!r}] * 2)))\n"
    )
    script = Path(os.environ.get("PYTEST_TMP", "/tmp"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=script, timeout=240)
    assert done.returncode == 0, done.stderr
    wanted = requant.load(DIGITS / "digits").run(digit_images(1), engine=engine)[0].ravel()
    assert np.allclose(json.loads(done.stdout), [wanted, wanted], atol=1e-6)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_forked_process_loads_its_own(engine: str) -> None:
    """Fork before the parent has run anything; each child makes its own session."""
    code = (
        f"import json, sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import multiprocessing\n"
        "import test_running as t\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        f"    print(json.dumps(pool.map(t._in_a_child, [{engine!r}] * 2)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 2


def test_a_model_goes_to_another_process_by_its_files() -> None:
    """Compiled models hold threads and engine memory: pickling one says so instead of failing strangely."""
    import pickle

    compiled = requant.load(DIGITS / "digits").compile()
    with pytest.raises(RequantError, match=r"(?s)pickle.*requant\.load"):
        pickle.dumps(compiled)


# -- what is fed ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "make",
    [
        lambda x: x[::-1],
        lambda x: np.asfortranarray(x),
        lambda x: x.transpose(0, 1, 3, 2),
        lambda x: np.broadcast_to(x[:1], x.shape),
        lambda x: _read_only(x),
        lambda x: x.astype(">f4"),
        lambda x: x[:, :, ::1],
    ],
    ids=["reversed", "fortran", "transposed", "broadcast", "read-only", "big-endian", "view"],
)
def test_arrays_of_every_layout(engine: str, make: Any) -> None:
    compiled = requant.load(DIGITS / "digits").compile(engine)
    x = make(digit_images(4))
    plain = np.ascontiguousarray(x, np.float32)
    assert np.array_equal(compiled.run(x)[0], compiled.run(plain)[0])


def _read_only(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flags.writeable = False
    return x


@pytest.mark.parametrize("engine", ENGINES)
def test_nan_and_infinity_go_through(tmp_path: Path, engine: str) -> None:
    """A network says NaN for NaN; it neither fails nor hides it."""
    nodes = [
        variable("data"),
        variable("w"),
        apply("FullyConnected", "fc", [0, 1], num_hidden="2", no_bias="True"),
        apply("tanh", "act", [2]),
    ]
    model = load(tmp_path, text(nodes, heads=[2, 3]), {"arg:w": np.eye(2, dtype=np.float32)})
    out, bent = model.run(np.array([[np.nan, 1], [np.inf, 2], [3, 4]], np.float32), engine=engine)
    assert np.isnan(out[0, 0])
    assert np.isnan(bent[0, 0])
    assert np.array_equal(out[2], [3, 4])
    assert np.isinf(out[1, 0]) or np.isnan(out[1, 0])  # inf times the zeros of the weight is NaN


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("bad", ["text", None, [[1, 2], [3]], object(), 1j, np.array(["a"]), np.array([None])])
def test_things_that_are_no_arrays(engine: str, bad: Any) -> None:
    compiled = requant.load(DIGITS / "digits").compile(engine)
    for feeds in ({"data": bad}, [bad], bad):
        with pytest.raises((InputError, DTypeError)) as fault:
            compiled.run(feeds)
        assert "data" in str(fault.value)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shape", [(1, 2, 8, 8), (1, 8, 8), (64,), ()])
def test_shapes_that_do_not_fit(engine: str, shape: tuple[int, ...]) -> None:
    compiled = requant.load(DIGITS / "digits").compile(engine)
    with pytest.raises(InputError, match="data"):
        compiled.run(np.zeros(shape, np.float32))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shape", [(0, 1, 8, 8), (1, 1, 0, 8), (1, 0, 8, 8)])
def test_empty_arrays_never_crash(engine: str, shape: tuple[int, ...]) -> None:
    """Engines differ in whether they take an empty batch; one that does not says so."""
    compiled = requant.load(DIGITS / "digits").compile(engine)
    try:
        out = compiled.run(np.zeros(shape, np.float32))
    except RequantError:
        return
    assert out[0].shape == (shape[0], 10)


def test_a_model_with_two_inputs_is_fed_by_name_and_by_place(tmp_path: Path) -> None:
    nodes = [variable("a"), variable("b"), apply("broadcast_sub", "d", [0, 1])]
    model = load(tmp_path, text(nodes))
    a, b = numbers(2, 3), numbers(1, 3, seed=1)
    for got in (model.run([a, b]), model.run((a, b)), model.run({"b": b, "a": a}), model.run(a=a, b=b)):
        assert np.array_equal(got[0], a - b)
    assert np.array_equal(model.run(a, b=b)[0], a - b)
    with pytest.raises(InputError, match=r"(?s)missing.*\['a', 'b'\]"):
        model.run(a)
    with pytest.raises(InputError, match="too many"):
        model.run([a, b, a])


# -- any CPU -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_int8_graphs_run_without_the_library_that_wrote_them(tmp_path: Path, engine: str) -> None:
    """MXNet ran its int8 graphs with oneDNN on x86 alone; here both engines run them, on any CPU that they run on."""
    nodes = [
        variable("data"),
        apply("_contrib_quantize_v2", "q", [0], out_type="int8", min_calib_range="-4", max_calib_range="4"),
        variable("w_quantize", __dtype__="5"),
        variable("w_min"),
        variable("w_max"),
        apply(
            "_contrib_quantized_fully_connected",
            "fc",
            [(1, 0), 2, (1, 1), (1, 2), 3, 4],
            num_hidden="3",
            no_bias="True",
        ),
        apply("_contrib_requantize", "rq", [(5, 0), (5, 1), (5, 2)], min_calib_range="-8", max_calib_range="8"),
        apply("_contrib_dequantize", "dq", [(6, 0), (6, 1), (6, 2)]),
    ]
    w, x = numbers(3, 4), np.clip(numbers(5, 4, seed=2), -4, 4)
    top = np.abs(w).max()
    params = {
        "arg:w_quantize": np.round(w * 127 / top).astype(np.int8),
        "arg:w_min": np.array([-top], np.float32),
        "arg:w_max": np.array([top], np.float32),
    }
    model = load(tmp_path, text(nodes), params, shapes={"data": (None, 4)})
    got = model.run(x, engine=engine)[0]
    assert np.abs(got - x @ w.T).max() < 0.25  # int8 steps: 8 / 127 at the output, and those of both factors


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_that_is_not_installed_is_an_error(engine: str) -> None:
    """Never a silent switch to the other one."""
    code = (
        f"import sys; sys.modules[{engine!r}] = None\n"
        "import requant, requant.errors\n"
        f"model = requant.load({str(DIGITS / 'digits')!r})\n"
        "try:\n"
        f"    model.compile({engine!r}, shapes={{'data': (1, 1, 8, 8)}})\n"
        "except requant.errors.EngineError as fault:\n"
        "    print(fault)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert engine in done.stdout


def test_files_are_not_needed_after_loading(tmp_path: Path) -> None:
    """The parameters are mapped; removing or replacing the files later does no harm."""
    import shutil

    for name in ("digits-symbol.json", "digits-0000.params"):
        shutil.copy(DIGITS / name, tmp_path / name)
    model = requant.load(tmp_path / "digits")
    if sys.platform != "win32":
        shutil.rmtree(tmp_path / "digits", ignore_errors=True)
        for p in tmp_path.iterdir():
            p.unlink()
    wanted = requant.load(DIGITS / "digits").run(digit_images(2))[0]
    assert np.array_equal(model.run(digit_images(2))[0], wanted)
