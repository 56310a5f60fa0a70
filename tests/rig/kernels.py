# SPDX-License-Identifier: GPL-2.0-only
"""The kernels that the rig can boot.

A kernel is named by its release series. Which version stands behind a name
is found by looking at what "make setup" (or, for "debug", "make debug-kernel")
has installed; the newest wins.
"""

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MODULES = Path("/usr/lib/modules")
CACHE = Path(os.environ.get("PACKETFLOW_CACHE", "/var/cache/packetflow"))
REPO = Path(__file__).resolve().parents[2]

SERIES = ("6.1", "6.12", "7.2")
OPTIONAL = ("pf_filter", "pf_sched", "pf_mm")  # the project's modules beside pf_common


@dataclass(frozen=True)
class Kernel:
    """A bootable kernel."""

    name: str
    version: str
    image: Path
    headers: Path

    @property
    def build(self) -> Path:
        """Where the project's modules for this kernel are built."""
        return REPO / os.environ.get("PACKETFLOW_BUILD", "build") / self.version

    @property
    def modules(self) -> list[str]:
        """Those of OPTIONAL that the build for this kernel holds."""
        return [name for name in OPTIONAL if (self.build / name / f"{name}.ko").exists()]


def kernel(name: str) -> Kernel:
    """The kernel of that name; LookupError says what to do if it is absent."""
    candidates = [_debug()] if name == "debug" else list(_installed(name))
    found = [k for k in candidates if k.image.exists() and k.headers.exists()]
    if not found:
        target = "debug-kernel" if name == "debug" else "setup"
        raise LookupError(f'kernel {name} is not installed: run "make {target}"')
    return max(found, key=lambda k: _numbers(k.version))


def all_kernels() -> list[Kernel]:
    """Every stock kernel, oldest series first."""
    return [kernel(name) for name in SERIES]


def _installed(name: str) -> Iterator[Kernel]:
    # "7.2" stands for the newest release 7 that Debian offers.
    series = r"7\." if name == "7.2" else re.escape(name) + r"\."
    for directory in MODULES.iterdir():
        if not re.match(series, directory.name):
            continue
        images = (directory / "vmlinuz", Path(f"/boot/vmlinuz-{directory.name}"))
        image = next((i for i in images if i.exists()), images[0])
        yield Kernel(name, directory.name, image, directory / "build")


def _debug() -> Kernel:
    tree = CACHE / "debug" / "linux"
    release = tree / "include/config/kernel.release"
    version = release.read_text().strip() if release.exists() else "debug"
    return Kernel("debug", version, tree / "arch/x86/boot/bzImage", tree)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version))


if __name__ == "__main__":
    # For scripts: a line "VERSION HEADERS" for each kernel named.
    for found in map(kernel, sys.argv[1:]):
        print(found.version, found.headers)
