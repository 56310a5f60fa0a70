# SPDX-License-Identifier: GPL-2.0-only
"""The kernels that the rig can boot.

A kernel is named by its release series and, if it has one, its flavour: 6.1, 6.12-rt. Which
version stands behind a name is found by looking at what "make setup" and tools/kernel have
installed; the newest wins. "7.x" is the newest release 7 that Debian offers: there is only one
at a time, so a name with its number would be gone in a few months. Beside these are those that
tools/debug-kernel builds, to catch mistakes.
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
BUILT = REPO / os.environ.get("PACKETFLOW_BUILD", "build")  # the project's modules

SERIES = ("6.1", "6.12", "7.x")  # those tested by default, oldest first
DEBUG = ("debug", "debug-6.12", "kcsan")  # as tools/debug-kernel knows them
OPTIONAL = ("pf_filter", "pf_sched", "pf_mm", "pf_flow")  # the project's modules beside pf_common


@dataclass(frozen=True)
class Kernel:
    """A bootable kernel."""

    name: str
    version: str
    image: Path
    headers: Path

    @property
    def debug(self) -> bool:
        """Does it catch mistakes? It is slow then, and all is built in."""
        return self.name in DEBUG

    @property
    def leaks(self) -> bool:
        """Does it look for lost memory, when it is told to?"""
        return self.debug and self.name != "kcsan"

    @property
    def build(self) -> Path:
        """Where the project's modules for this kernel are built."""
        return BUILT / self.version

    @property
    def modules(self) -> list[str]:
        """Those of OPTIONAL that the build for this kernel holds."""
        return [name for name in OPTIONAL if (self.build / name / f"{name}.ko").exists()]

    def offers(self, driver: str) -> bool:
        """Has it that driver as a module? Cloud kernels lack many, those with checkers all."""
        return any((MODULES / self.version).rglob(f"{driver}.ko*"))


def kernel(name: str) -> Kernel:
    """The kernel of that name; LookupError says what to do if it is absent."""
    candidates = [_debug(name)] if name in DEBUG else list(_installed(name))
    found = [k for k in candidates if k.image.exists() and k.headers.exists()]
    if not found:
        tool = "debug-kernel" if name in DEBUG else "kernel"
        raise LookupError(f"kernel {name} is not installed: run tools/{tool} {name}")
    return max(found, key=lambda k: _numbers(k.version))


def names(text: str) -> list[str]:
    """The names in a list, joined by spaces or commas; "all" stands for those of SERIES."""
    words = re.split(r"[\s,]+", text.strip())
    return [name for word in words for name in (SERIES if word == "all" else (word,))]


def name_of(version: str) -> str | None:
    """The name of a stock kernel; "7.x" stands for the newest release 7 that Debian offers."""
    found = re.fullmatch(r"(\d+)(\.\d+)\.[^-]*(?:-\d+)?(-rt|-cloud|)-amd64", version)
    if not found:
        return None
    return found[1] + (".x" if found[1] == "7" else found[2]) + found[3]


def _installed(name: str) -> Iterator[Kernel]:
    for directory in MODULES.iterdir():
        if name_of(directory.name) != name:
            continue
        images = (directory / "vmlinuz", Path(f"/boot/vmlinuz-{directory.name}"))
        image = next((i for i in images if i.exists()), images[0])
        yield Kernel(name, directory.name, image, directory / "build")


def _debug(name: str) -> Kernel:
    tree = CACHE / name / "linux"
    release = tree / "include/config/kernel.release"
    version = release.read_text().strip() if release.exists() else name
    return Kernel(name, version, tree / "arch/x86/boot/bzImage", tree)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version))


if __name__ == "__main__":
    # For scripts. With --names the names in a list; else, for each, a line "VERSION HEADERS".
    if sys.argv[1] == "--names":
        print(*names(sys.argv[2]))
    else:
        for found in map(kernel, names(sys.argv[1])):
            print(found.version, found.headers)
