"""The alias ``mxnet`` and ``requant exec``, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
import mxnet as mx
from mxnet import gluon, nd
from mxnet.gluon import nn
import mxnet.gluon.data.vision.transforms as transforms
import mxnet.ndarray as F
import requant.mx
assert mx is requant.mx and mx.__version__ == "1.9.1" and mx.__name__ == "requant.mx"
assert nn.__spec__.name == "requant.mx.gluon.nn"
assert F is mx.nd is nd
try:
    import mxnet.no_such_module
except ModuleNotFoundError:
    pass
net = nn.Dense(2, in_units=3)
net.initialize(mx.init.One())
print(net(mx.nd.ones((1, 3))).asnumpy().tolist(), sys.argv[1:])
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


def test_exec_runs_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = run("-m", "requant.cli", "exec", str(script), "--flag", "x")
    if done.returncode and "__main__" in done.stderr:
        done = run("-c", "import sys; from requant.cli import main; sys.argv[0] = 'requant'; main()", "exec",
                   str(script), "--flag", "x")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[[3.0, 3.0]] ['--flag', 'x']"


def test_a_real_mxnet_is_not_replaced() -> None:
    program = (
        "import sys, types; sys.modules['mxnet'] = types.ModuleType('mxnet')\n"
        "import requant.mx\n"
        "from requant.errors import UnsupportedError\n"
        "try:\n    requant.mx.install()\nexcept UnsupportedError as e:\n    print(e)\n"
    )
    assert "imported already" in run("-c", program).stdout


def test_installing_twice_and_undoing() -> None:
    program = (
        "import requant.mx as ours\n"
        "ours.install(); ours.install()\n"
        "import mxnet, mxnet.gluon.nn\n"
        "ours.uninstall()\n"
        "import importlib.util, sys\n"
        "print([n for n in sys.modules if n.startswith('mxnet')], ours.gluon.nn.__name__)\n"
    )
    assert run("-c", program).stdout.strip() == "[] requant.mx.gluon.nn"
