"""Documents are true: their Python blocks run, their commands run, and what is generated is up to date."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from requant.cli import group

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.S | re.M)


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(page.read_text()) if kind == language]


@pytest.fixture(autouse=True)
def at_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Paths in documents start at the root of the project; what commands write goes elsewhere."""
    for name in ("tests", "examples", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
def test_python_blocks_run(page: Path) -> None:
    """The blocks of a page run in order, as one program."""
    if "import gluoncv" in page.read_text() or "from gluoncv" in page.read_text():
        pytest.importorskip("gluoncv.model_zoo", reason="needs GluonCV", exc_type=ImportError)
    if page.name == "gluoncv.md":
        found = importlib.util.find_spec("gluoncv")
        if found is None or found.origin is None:
            pytest.skip("gluoncv is not installed")
    names: dict[str, object] = {}
    for text in blocks(page, "python"):
        exec(compile(text, str(page), "exec"), names)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "console")], ids=lambda p: p.name)
def test_commands_run(page: Path) -> None:
    for text in blocks(page, "console"):
        for line in text.splitlines():
            if line.startswith("$ requant "):
                result = CliRunner().invoke(group, shlex.split(line)[2:], catch_exceptions=False)
                assert result.exit_code == 0, f"{line}\n{result.output}"


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_generated_pages_are_current() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    for path, make in generate.PAGES.items():
        assert path.read_text() == make(), f"run python docs/generate.py: {path.name} is not current"
