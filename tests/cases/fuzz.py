"""Try damaged models in this process: ``python fuzz.py FIRST LAST MODE``. Prints one line per fault, and ``done``.

MODE is an engine (load and run), ``lower`` (load and lower) or ``cli`` (the commands inspect, run and convert). A fault
is anything but a typed error: another exception, a warning, half a minute without an answer, or a GiB of memory more.
A crash ends the process, whose last line of output then says with which seed.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mutations
import numpy as np
from click.testing import CliRunner

import requant
from requant import cli
from requant.errors import RequantError

#: Seconds of processor time that one model may take. A process that waits forever is ended by who started it.
PATIENCE = 30
#: Bytes of memory that the process may have, and that one model may add.
MOST, MORE = 6 << 30, 1 << 30


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MOST, MOST))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _peak() -> int:
    with contextlib.suppress(ImportError):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return 0


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"no answer in {PATIENCE} s")

    if hasattr(signal, "SIGPROF"):
        signal.signal(signal.SIGPROF, late)
        signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        yield
    finally:
        if hasattr(signal, "SIGPROF"):
            signal.setitimer(signal.ITIMER_PROF, 0)


def _commands(folder: Path, feeds: dict[str, np.ndarray]) -> None:
    """inspect, run and convert; what ``requant`` would show as a traceback is raised."""
    for name, array in feeds.items():
        np.save(folder / f"{name}.npy", array)
    inputs = [w for n in feeds for w in ("--input", f"{n}={folder / n}.npy")]
    net, out = str(folder / "net"), str(folder / "out.onnx")
    for words in (["inspect", net, "--json"], ["run", net, *inputs], ["convert", net, "-o", out]):
        fault = CliRunner().invoke(cli.group, words).exception
        if fault is not None and not isinstance(fault, (SystemExit, RequantError, OSError)):
            raise fault


def attempt(mode: str, folder: Path, feeds: dict[str, np.ndarray]) -> None:
    """Load and use the model in that folder. Raises whatever comes up."""
    if mode == "cli":
        return _commands(folder, feeds)
    model = requant.load(folder / "net")
    if mode == "lower":
        model.onnx_for({n: a.shape for n, a in feeds.items()})
    else:
        model.run(feeds, engine=mode)
    return None


def _told(fault: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(fault.__traceback__) if "requant" in f.filename][-2:]
    at = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames))
    text = f"{type(fault).__name__}: {str(fault)[:200]} ({at})"
    return text.replace("\n", " ")


def one(seed: int, mode: str, folder: Path, cases: list[Any]) -> str | None:
    """What went wrong with this seed, or None."""
    said, feeds = mutations.write(seed, folder, cases)
    print("at", said[:300].replace("\n", " "), flush=True)
    before, start = _peak(), time.process_time()
    try:
        with _alarm():
            attempt(mode, folder, feeds)
    except (RequantError, FileNotFoundError) as fault:
        if isinstance(fault.__cause__, MemoryError):
            return f"{said}: {_told(fault)}"
    except BaseException as fault:
        return f"{said}: {_told(fault)}"
    if _peak() - before > MORE:
        return f"{said}: {(_peak() - before) >> 20} MiB more memory"
    if time.process_time() - start > PATIENCE:
        return f"{said}: {time.process_time() - start:.0f} s"
    return None


def main() -> None:
    """Read the arguments, try every seed."""
    first, last, mode = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    _limit_memory()
    warnings.simplefilter("error")
    sys.path.insert(0, str(Path(__file__).parents[1] / "goldens"))
    recorded = importlib.import_module("case")
    cases = [c for family in recorded.families() for c in recorded.cases(family)]
    errors = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(errors):
        for seed in range(first, last):
            fault = one(seed, mode, Path(folder), cases)
            if fault is not None:
                print("fault", fault.replace("\n", " "), flush=True)
    print("done", flush=True)
    os._exit(0)  # engines' threads are not waited for


if __name__ == "__main__":
    main()
