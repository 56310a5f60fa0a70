# SPDX-License-Identifier: GPL-2.0-only
"""Which tests there are for a kernel: what tools/kernel-tests has put into the root."""

from dataclasses import dataclass
from pathlib import Path

from rig.kernels import Kernel

TREES = Path("/opt/kernel-tests")
IN_TREE = Path("tools/testing/selftests")
TAINTED = "/proc/sys/kernel/tainted"


@dataclass(frozen=True)
class Program:
    """One of them: a program and the directory that it is run in."""

    directory: str
    name: str

    def __str__(self) -> str:
        return f"{self.directory}/{self.name}"


class Tree:
    """All of a kernel."""

    def __init__(self, kernel: Kernel, top: Path = TREES) -> None:
        self.top = top / kernel.name
        if not (self.top / "list").exists():
            raise LookupError(
                f"the tests of kernel {kernel.name} are not there: run tools/kernel-tests"
                f" {kernel.name}"
            )
        self.key = (self.top / "key").read_text().strip()

    def directory(self, test: Program) -> Path:
        return self.top / IN_TREE / test.directory

    def tests(self, parts: list[str]) -> list[Program]:
        """Those with one of the parts in their name; all if there is none."""
        lines = (self.top / "list").read_text().splitlines()
        found = (Program(*line.split(":", 1)) for line in dict.fromkeys(lines))
        return [test for test in found if not parts or any(part in str(test) for part in parts)]

    def built(self, test: Program) -> bool:
        """Some take what Debian's root has not, or do not compile."""
        return (self.directory(test) / test.name).exists()

    def heeds_taint(self, test: Program) -> bool:
        """Does it skip, in whole or in part, where a module from outside the kernel was loaded?"""
        path = self.directory(test) / test.name
        return path.suffix == ".sh" and path.exists() and TAINTED in path.read_text()
