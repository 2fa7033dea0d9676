"""``requant exec``: scripts run with requant as mxnet; what is none is told in a sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

DIGITS = Path(__file__).resolve().parents[1] / "digits"


def call(folder: Path, *words: str) -> tuple[int, str, str]:
    """In a process of its own, since mxnet then means requant in it: status, stdout, stderr."""
    done = subprocess.run([sys.executable, "-m", "requant", "exec", *words], capture_output=True, text=True, cwd=folder)
    return done.returncode, done.stdout, done.stderr


def test_a_script_runs_with_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "demo.py").write_text(
        "import sys\nimport mxnet as mx\nfrom mine import double\n"
        "if __name__ == '__main__':\n    print(sys.argv[1:], double(mx.nd.array([1, 2])).asnumpy())\n    sys.exit(4)\n"
    )
    assert call(tmp_path, "demo.py", "--images", "a.jpg") == (4, "['--images', 'a.jpg'] [2. 4.]\n", "")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x7fELF\0\1", ["x.py: not a script", "no text: b'\\x7fELF"]),
        ((DIGITS / "seven.png").read_bytes(), ["x.py: not a script", "PNG"]),
        (b'print "hi"\n', ["x.py, line 1", 'print "hi"', "Python 2"]),
        (b"import mxnet\n\nx = (1,\n", ["x.py, line 3", "never closed", "mend that line"]),
        (b"\xff\xfe", ["x.py", "not a script"]),
    ],
)
def test_what_is_no_script(tmp_path: Path, content: bytes, said: list[str]) -> None:
    (tmp_path / "x.py").write_bytes(content)
    status, _, text = call(tmp_path, "x.py")
    assert status == 1 and text.startswith("requant: ") and "Traceback" not in text
    assert all(part in text for part in [*said, "got:", "next:"])


def test_an_archive_without_a_script(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a.txt", "a")
    status, _, text = call(tmp_path, "x.zip")
    assert (status, "without __main__.py" in text, "Traceback" in text) == (1, True, False)
    with ZipFile(tmp_path / "x.zip", "a") as archive:
        archive.writestr("__main__.py", "print('ran')")
    assert call(tmp_path, "x.zip") == (0, "ran\n", "")


@pytest.mark.parametrize("name", ["none.py", "."])
def test_nothing_there(tmp_path: Path, name: str) -> None:
    status, _, text = call(tmp_path, name)
    assert status == 2 and "SCRIPT" in text and "Traceback" not in text


def test_an_error_of_the_script_shows_its_own_lines_alone(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("def go():\n    return 1 / 0\n\ngo()\n")
    status, _, text = call(tmp_path, "x.py")
    assert status == 1
    assert text.startswith('Traceback (most recent call last):\n  File "x.py", line 4')
    assert "requant" not in text and "runpy" not in text


def test_an_error_of_ours_says_where_in_the_script(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("import mxnet as mx\n\nnet = mx.sym.load('x.py')\n")
    status, _, text = call(tmp_path, "x.py")
    assert status == 1
    assert text.startswith("requant: x.py: ") and "Traceback" not in text
    assert text.endswith("  at:       x.py, line 3: net = mx.sym.load('x.py')\n")
