"""The command ``requant``: one file per command in this folder, found by listing it."""

from __future__ import annotations

import importlib
import logging
import pkgutil
import sys
from typing import Any, NoReturn

import click

import requant
from requant.errors import RequantError

#: Modules here that are not commands.
_NOT_COMMANDS = {"arguments", "show"}
#: A goal (accuracy, speed) was missed; the best result found was written.
EXIT_GOAL_MISSED = 3
#: 128 and the number of the signal, as shells count (also in ``requant.__main__``, which imports nothing).
EXIT_INTERRUPTED = 130


class Named(click.Group):
    """A group of commands that says which there are where one is misspelt."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as fault:
            known = ", ".join(self.list_commands(ctx))
            raise click.UsageError(f"{fault.message}\nCommands are: {known}.", ctx) from fault


class _Commands(Named):
    """Imports a command when it is asked for, so that ``requant --help`` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        found = [m.name.rstrip("_") for m in pkgutil.iter_modules(__path__) if m.name not in _NOT_COMMANDS]
        return sorted(found, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(ctx):
            return None
        modules = {m.name.rstrip("_"): m.name for m in pkgutil.iter_modules(__path__)}
        found: click.Command = importlib.import_module(f"{__name__}.{modules[name]}").command
        return found

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        try:
            return super().make_context(*args, **extra)  # which prints help, for which all commands are imported
        except KeyboardInterrupt:
            _interrupted()

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _interrupted()


def _interrupted() -> NoReturn:
    click.echo("\nrequant: interrupted; unfinished files were not kept", err=True)
    sys.exit(EXIT_INTERRUPTED)


# The order in which a newcomer meets them.
_ORDER = ["doctor", "inspect", "run", "convert", "bench", "quantize", "table"]


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(requant.__version__, prog_name="requant")
@click.option("-v", "--verbose", count=True, help="Say what is done (-v), and in detail (-vv).")
def group(verbose: int) -> None:
    """Run trained MXNet, Gluon and ONNX models today, with no MXNet installed.

    MODEL is an MXNet symbol file (net-symbol.json), a prefix (net), an .onnx or .tflite file, a folder with one model
    in it, or a SageMaker model.tar.gz.

    \b
    First steps:
      requant doctor                      what this machine can do
      requant inspect net-symbol.json     what is in a model
      requant run net --input photo.jpg   run it
      requant convert net -o net.onnx     turn it into ONNX, checked against the source
      requant quantize net --data photos -o net-int8.onnx   make it INT8, verified
    """
    level = [logging.WARNING, logging.INFO, logging.DEBUG][min(verbose, 2)]
    if verbose < 2:  # how many nodes each pass of the graph library looked at
        logging.getLogger("onnx_ir").setLevel(logging.WARNING)
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)


def main() -> None:
    """Entry point. Errors that teach go to stderr as text, without a traceback; the exit status is 1."""
    try:
        group(prog_name="requant")
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except (RequantError, OSError, MemoryError) as fault:
        click.echo(f"requant: {_say(fault)}", err=True)
        sys.exit(1)


def _say(fault: Exception) -> str:
    if isinstance(fault, RequantError):
        return str(fault)
    if isinstance(fault, MemoryError):
        return f"there is not enough memory for this\n  got:      {fault}\n  next:     make batch or shape smaller"
    filename = getattr(fault, "filename", None)
    return f"{filename}: {getattr(fault, 'strerror', fault)}" if filename is not None else str(fault)
