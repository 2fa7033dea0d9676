"""``requant exec``: run a script of MXNet's time with requant in MXNet's place."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import click


@click.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(script: str, arguments: tuple[str, ...]) -> None:
    """Run SCRIPT with ``import mxnet`` meaning requant; ARGUMENTS are the script's own.

    \b
    Example:
      requant exec demo_ssd.py --network ssd_512_resnet50_v1_voc --images street.jpg
    """
    from requant.mx.alias import install

    install()
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).resolve().parent))
    runpy.run_path(script, run_name="__main__")
