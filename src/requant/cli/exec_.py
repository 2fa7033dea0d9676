"""``requant exec``: run a script of MXNet's time with requant in MXNet's place."""

from __future__ import annotations

import runpy
import sys
import traceback
from pathlib import Path
from types import TracebackType
from zipfile import ZipFile, is_zipfile

import click

from requant.errors import FormatError, RequantError
from requant.formats.sniff import recognize


@click.command(
    "exec",
    short_help="Run a script of MXNet's time with requant as mxnet.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(script: str, arguments: tuple[str, ...]) -> None:
    """Run SCRIPT so that "import mxnet" means requant; ARGUMENTS are the script's own.

    \b
    Example:
      requant exec demo_ssd.py --network ssd_512_resnet50_v1_voc --images street.jpg
    """
    from requant.mx.alias import install

    check_script(script)
    install()
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except Exception as fault:
        sys.stderr.flush()
        _show(fault, script)
        sys.exit(1)


def check_script(script: str) -> None:
    """Refuse what is no Python, before anything is imported for it.

    Raises:
        FormatError: the file is of another kind, or Python cannot read it; the message names the line.
    """
    if is_zipfile(script):
        with ZipFile(script) as archive:
            names = archive.namelist()
        if "__main__.py" not in names:
            raise FormatError("not a Python script but a zip archive without __main__.py", where=script, next=_NEXT)
        return
    source = Path(script).read_bytes()
    try:
        compile(source, script, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as fault:  # ValueError: null bytes, in Python 3.10 and 3.11
        where, todo = script, _NEXT
        if b"\0" in source:
            kind = recognize(source[:64])
            got = kind[0] if kind else f"bytes that are no text: {source[:8]!r}"
        elif isinstance(fault, SyntaxError):
            where = f"{script}, line {fault.lineno}"
            got = f"{fault.msg}: {(fault.text or '').strip()[:100]}"
            todo = _PRINT if "'print'" in fault.msg else "mend that line, if this is the script that was meant"
        else:
            got = str(fault)
        raise FormatError(
            "not a script that this Python can read",
            where=where,
            got=got,
            expected=f"a script in Python {sys.version_info.major}",
            next=todo,
        ) from None


_PRINT = "it was written for Python 2: put print and the like into the words of Python 3"
_NEXT = "give the script's own name; models go to requant run"


def _show(fault: Exception, script: str) -> None:
    """An error of the script as Python shows it, without the frames that started it; ours in a sentence."""
    frames = fault.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != script:
        frames = frames.tb_next
    if not isinstance(fault, RequantError) or frames is None:
        click.echo("".join(traceback.format_exception(type(fault), fault, frames)), err=True, nl=False)
        return
    last = _last_of(frames, script)
    click.echo(f"requant: {fault}\n  at:       {last.filename}, line {last.lineno}: {last.line}", err=True)


def _last_of(frames: TracebackType, script: str) -> traceback.FrameSummary:
    """The innermost frame that is the script's own."""
    return [f for f in traceback.extract_tb(frames) if f.filename == script][-1]
