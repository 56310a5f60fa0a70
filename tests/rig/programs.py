# SPDX-License-Identifier: GPL-2.0-only
"""The rig's own programs in C, for guests and for this host."""

import functools
import subprocess
from pathlib import Path

from rig.kernels import REPO


@functools.cache
def programs() -> Path:
    """The directory of the programs, compiled where they are stale."""
    source, out = REPO / "tests" / "rig" / "src", REPO / "build" / "rig"
    subprocess.run(["make", "-s", "-C", source, f"OUT={out}"], check=True)
    return out
