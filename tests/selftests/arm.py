# SPDX-License-Identifier: GPL-2.0-only
"""One arm: a guest that runs the tests one after another, with our modules or without.

With them, each CPU is kept under pressure by a socket that is full (inside/pressed.py),
so that packets are judged while a test runs. A kernel once tainted by a module stays so, hence
two guests. One in which something went wrong is not used any more.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from rig.guest import Guest, GuestError
from rig.kernels import OPTIONAL, REPO, Kernel

from selftests.tree import Program, Tree

CPUS = 2
BEYOND = 60.0  # seconds that a guest gets to say that a test's time is over
CODES = {0: "pass", 2: "pass", 4: "skip", 124: "late", 137: "late"}  # 2: fails as expected
GOOD = ("pass", "skip", "fail")


@dataclass
class Outcome:
    """What became of a test: pass, fail, skip, late (stopped), died (its guest), absent."""

    state: str
    seconds: float = 0.0
    complaints: list[str] = field(default_factory=list)
    pressed: float = 0.0  # share of looks that found each CPU's packets judged
    log: str = ""

    def kept(self) -> dict[str, Any]:
        """Without the log, which has its own file."""
        return {name: value for name, value in asdict(self).items() if name != "log"}


class Arm:
    """Runs tests of a kernel; in its context."""

    def __init__(self, kernel: Kernel, tree: Tree, loaded: bool, seconds: float) -> None:
        self._kernel = kernel
        self._tree = tree
        self._loaded = loaded
        self._seconds = seconds
        self._stack = ExitStack()
        self._guest: Guest | None = None
        self._complaints = 0

    def __enter__(self) -> Arm:
        return self

    def __exit__(self, *_: object) -> None:
        self._replace()

    def _replace(self) -> None:
        """What a guest complained of has been told."""
        self._guest = None
        stack, self._stack = self._stack, ExitStack()
        with suppress(GuestError):
            stack.close()

    def _running(self) -> Guest:
        if self._guest is None:
            guest = self._stack.enter_context(Guest(self._kernel, cpus=CPUS, link=False))
            guest.run("ip link set lo up")
            if self._loaded:
                guest.load(*OPTIONAL)
                for cpu in range(CPUS):
                    command = ["env", "-C", str(REPO / "tests"), "python3", "-m", "inside.pressed"]
                    guest.spawn([*command, str(cpu)], nice=10)
                guest.run(f"until [ -e /run/pressed-{CPUS - 1} ]; do sleep 0.1; done")
            self._guest = guest
            self._complaints = 0
        return self._guest

    def run(self, test: Program) -> Outcome:
        """One test, to its end or to that of its time."""
        if not self._tree.built(test):
            return Outcome("absent")
        begin = time.monotonic()
        try:
            outcome = self._run(self._running(), test)
        except (GuestError, TimeoutError, OSError) as error:
            outcome = Outcome("died", log=str(error))
        outcome.seconds = round(time.monotonic() - begin, 1)
        if outcome.state not in GOOD or outcome.complaints:
            self._replace()
        return outcome

    def _run(self, guest: Guest, test: Program) -> Outcome:
        looks = self._looks(guest)
        command = f"cd {self._tree.directory(test)} && KSFT_MACHINE_SLOW=yes timeout"
        command += f" --kill-after=5 {self._seconds} ./{test.name} 2>&1"
        done = guest.run(command, timeout=self._seconds + BEYOND, check=False)
        guest.run("ip -all netns delete", check=False)
        outcome = Outcome(CODES.get(done.rc, "fail"), log=done.out + done.err)
        found = guest.complaints()
        outcome.complaints, self._complaints = found[self._complaints :], len(found)
        if self._loaded:
            outcome.pressed = share(looks, self._looks(guest))
            if "suite: running" not in guest.read("/proc/packetflow/status"):
                outcome.state, outcome.log = "fail", outcome.log + "the suite is switched off\n"
        return outcome

    def _looks(self, guest: Guest) -> list[tuple[int, int]]:
        """Of each CPU: how often it was looked at, and found to judge."""
        if not self._loaded:
            return []
        texts = [guest.read(f"/run/pressed-{cpu}").split() for cpu in range(CPUS)]
        return [(int(looks), int(judging)) for looks, judging in texts]


def share(before: list[tuple[int, int]], after: list[tuple[int, int]]) -> float:
    """The share of looks in between that found the CPU to judge, of the one with less."""
    shares = [
        (judging - was_judging) / (looks - was_looks)
        for (was_looks, was_judging), (looks, judging) in zip(before, after, strict=True)
        if looks > was_looks
    ]
    return round(min(shares, default=0.0), 2)
