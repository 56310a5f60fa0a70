# SPDX-License-Identifier: GPL-2.0-only
"""Modules of the tests' own, built for a guest's kernel."""

import shutil
import subprocess
from pathlib import Path

from rig.guest import Guest
from rig.kernels import REPO


def built(guest: Guest, source: Path) -> Path:
    """The one module of that directory. What it does it does when it is loaded, and then goes."""
    target = REPO / "build" / f"{source.name}-{guest.kernel.version}"
    shutil.copytree(source, target, dirs_exist_ok=True)
    make = ["make", "-C", str(guest.kernel.headers), f"M={target}", "modules"]
    subprocess.run(make, check=True, capture_output=True)
    (module,) = target.glob("*.ko")
    return module


def made(guest: Guest, module: Path, *parameters: str) -> None:
    """It has done what it was told to."""
    done = guest.run(["insmod", str(module), *parameters], timeout=120, check=False)
    assert "Operation canceled" in done.err, done
