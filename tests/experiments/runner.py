# SPDX-License-Identifier: GPL-2.0-only
"""Runs an experiment's arms interleaved (A B C A B C ...) in one boot."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from experiments.arms import Arm, arms
from experiments.dilation import dilation
from experiments.h1 import OFFERED_PPS as H1_PPS
from experiments.h1 import h1
from experiments.measure import Load, Run, measure
from experiments.result import Json, result_json
from experiments.u1 import COUNTED_PPS as U1_COUNTED_PPS
from experiments.u1 import COUNTED_WORKING_PPS as U1W_COUNTED_PPS
from experiments.u1 import DEEP_PPS, b1, u1, u1w
from experiments.u1 import OFFERED_PPS as U1_PPS
from rig.guest import Guest
from rig.kernels import Kernel
from rig.traffic import Tool

FIRST = -20  # nice level
Say = Callable[[str], None]
One = TypeVar("One")


@dataclass(frozen=True)
class Experiment:
    """UDP flows to receivers."""

    about: str
    load: Callable[[Guest, float, Say], Load]
    pps: float = U1_PPS  # to each receiver
    counted_pps: float = U1_COUNTED_PPS  # the same where the clock counts instructions
    seconds: float = 4.0
    arms: str = "stock,shed-all,rmem4m"
    beneath: tuple[str, ...] = ()  # settings of all arms
    again: tuple[str, ...] = ()  # those with which each arm is run once more

    def offered(self, guest: Guest) -> float:
        """What is sent to each receiver unless told, packets/s."""
        return self.counted_pps if guest.wired else self.pps


EXPERIMENTS = {
    "U1": Experiment("receivers of nice 0, 5 and 10 under overload", u1),
    "U1w": Experiment(
        "the same, each packet costing its receiver work", u1w, counted_pps=U1W_COUNTED_PPS
    ),
    "U1-drops": Experiment(
        "U1 at the papers' depth of overload, and where each receiver's packets died",
        u1,
        counted_pps=DEEP_PPS,
        arms="shed-all,filter,sched,both,all",
    ),
    "B1": Experiment(
        "U1, and how large and how full the receivers' buffers were",
        b1,
        arms="stock,mm,filter+mm,all,rmem4m",
    ),
    "H1": Experiment(
        "a working receiver beside tasks that only compute, with and without autogroup",
        h1,
        pps=H1_PPS,
        counted_pps=H1_PPS,
        seconds=2.0,
        arms="stock,rmem4m,rr-by-hand",
        beneath=("autogroup-on",),
        again=("autogroup-off",),
    ),
}


def go_first() -> None:
    """Let this process and its children run before the machine's other work.

    Where sessions are scheduled as groups, a nice level counts only inside one:
    the session's group then needs the level too.
    """
    with suppress(PermissionError):  # it leads a session already
        os.setsid()
    os.setpriority(os.PRIO_PROCESS, 0, FIRST)
    with suppress(FileNotFoundError):
        Path("/proc/self/autogroup").write_text(str(FIRST))


@dataclass(frozen=True)
class Clock:
    """The guest's time: counted instructions; or the host's, dilated so, or so that it fits."""

    counted: bool = True
    dilation: float | None = None


@contextmanager
def booted(
    kernel: Kernel,
    clock: Clock,
    say: Say,
    cpus: int = 1,
    routed: bool = False,
    plugin: Path | None = None,
) -> Iterator[Guest]:
    """A guest for measuring; by the host's clock it has one CPU and no more."""
    assert cpus == 1 or clock.counted, "all virtual CPUs are pinned to one of the host's"
    if clock.counted:
        say(f"booting kernel {kernel.version}, its clock counts instructions")
        with Guest(kernel, icount=True, cpus=cpus, routed=routed, plugin=plugin) as guest:
            yield guest
        return
    go_first()
    factor = dilation(kernel, say) if clock.dilation is None else clock.dilation
    say(f"booting kernel {kernel.version}")
    with Guest(kernel, dilation=factor) as guest:
        guest.pin()
        yield guest


class ArmError(RuntimeError):
    """An arm could not be run; whatever it was, its guest is not to be used any more."""

    def __init__(self, arm: str) -> None:
        super().__init__(f"the arm {arm} failed")
        self.arm = arm


def interleaved(
    chosen: Sequence[Arm],
    repeats: int,
    measured: Callable[[Arm], One],
    told: Callable[[One], str],
    say: Say,
) -> dict[str, list[One]]:
    """Every arm measured so often, in turn; told says what to tell of one run."""
    runs: dict[str, list[One]] = {arm.name: [] for arm in chosen}
    total = repeats * len(chosen)
    started = time.monotonic()
    for done in range(total):
        arm = chosen[done % len(chosen)]
        try:
            one = measured(arm)
        except Exception as error:
            raise ArmError(arm.name) from error
        runs[arm.name].append(one)
        left = (time.monotonic() - started) / (done + 1) * (total - done - 1)
        say(f"{done + 1}/{total} {arm.name}: {told(one)}, {left:.0f} s left")
    return runs


def run(
    experiment: str,
    guest: Guest,
    tool: Tool,
    names: Sequence[str],
    repeats: int,
    seconds: float,
    pps: float,
    say: Say,
) -> Json:
    """Run every arm so often, and give the result."""
    plan = EXPERIMENTS[experiment]
    chosen = arms(names, plan.beneath, plan.again)
    load = plan.load(guest, pps, say)
    say(f"{experiment}: {', '.join(arm.name for arm in chosen)}")
    runs = interleaved(
        chosen, repeats, lambda arm: measure(guest, arm, load, tool, seconds), told, say
    )
    return result_json(experiment, guest, tool.name, load, runs, plan.beneath)


def told(one: Run) -> str:
    got = "/".join(f"{account.received_pps / 1e3:.1f}" for account in one.accounts)
    return " ".join([f"{got} kpps", *(f"(warning: {warning})" for warning in one.warnings)])
