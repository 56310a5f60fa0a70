# SPDX-License-Identifier: GPL-2.0-only
"""All experiments of a kernel, one after another, and the page of what they gave.

What fails is told of in the page, and by the exit status: where it is one arm, the experiment
is run again without it, else the next one is.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments import isolation, report, result, router, runner
from rig.kernels import REPO

BY_HAND = "nice-by-hand,fifo-by-hand,threaded,threaded-niced"
RULES = "flow-limit,nft-limit,tc-police,xdp-police"
OFF = "autogroup-off,autogroup-off+rmem4m"
OURS = "filter,sched,mm,both,all"
# What is compared where; stock always is, twice.
ARMS = {
    "U1": f"shed-all,rmem4m,{BY_HAND},{RULES},{OURS},all-scaled",
    "U1w": f"shed-all,rmem4m,{OFF},{BY_HAND},{RULES},{OURS},all-scaled",
    "U1-drops": "shed-all,filter,sched,both,all",
    "T1": f"{BY_HAND},{OURS}",
    "M1": f"{BY_HAND},nft-limit,{OURS}",
    "M2": f"{BY_HAND},{OURS}",
    "B1": "mm,filter+mm,all,rmem4m",
    "P1": "shed-all,filter,both,all",
    "H1": "rmem4m,nice-by-hand,rr-by-hand,sched,all",
    "S1": "mm,all",
    "S1-5": "filter,sched,mm,all",
    "S1-10": "filter,sched,mm,all",
    "V1": "filter,all",
    "onset": "filter,all",
    "L1": "nft-limit,xdp-police,filter,all",
    "R1": f"rmem4m,{BY_HAND},{OURS}",
    "R2": f"rmem4m,{BY_HAND},{OURS}",
    "W1": "shed-all,fifo-by-hand,filter,all",
    "D1": "shed-all,fifo-by-hand,filter,all",
    "K1": "shed-all,fifo-by-hand,filter,all",
    "E1": "shed-all,fifo-by-hand,filter,all",
    "C1": "shed-all,nft-limit,tc-police,filter,all",
    "C1-nat": "shed-all,nft-limit,tc-police,filter,all",
    "C2": "shed-all,filter,all",
    "T1b": "mm,all,tcp4m",
    **{name: plan.arms for name, plan in router.EXPERIMENTS.items()},
    "N2": isolation.ARMS,
}


def run(
    names: Sequence[str],
    kernel: str,
    repeats: int,
    directory: Path,
    one: Callable[[list[str]], None],
    say: Callable[[str], None],
) -> None:
    """one: runs an experiment as the command line does."""
    begin = time.monotonic()
    unsound: list[str] = []
    for number, name in enumerate(names):
        path = directory / f"{name}-{kernel}.json"
        left = ""
        if number:
            spent = (time.monotonic() - begin) / 60
            left = f", about {spent / number * (len(names) - number):.0f} min left"
        say(f"bench: {name}, {number + 1} of {len(names)}{left}")
        failed = without_failing_arms(name, kernel, repeats, path, one, say)
        unsound += failed
    say(f"bench: {report.write(directory)}")
    if unsound:
        raise SystemExit(f"bench: failed: {', '.join(unsound)}")


def without_failing_arms(
    name: str,
    kernel: str,
    repeats: int,
    path: Path,
    one: Callable[[list[str]], None],
    say: Callable[[str], None],
) -> list[str]:
    """Run an experiment with those of its arms that can be run; gives what failed."""
    arms = ARMS[name].split(",")
    failed: dict[str, str] = {}
    while True:
        arguments = [name, "--kernel", kernel, "--arms", ",".join(arms), "--repeat", str(repeats)]
        try:
            one([*arguments, "--json", str(path)])
            break
        except Exception as error:
            reason = traceback.format_exc()
            arm = error.arm if isinstance(error, runner.ArmError) else ""
            say(f"bench: {name} {arm} FAILED: {reason}")
            if arm not in arms:
                whole = {"experiment": name, "kernel": kernel, "failed": reason}
                result.write(path, {**whole, "command": result.command(arguments)})
                return [name]
            arms.remove(arm)
            failed[arm] = reason
    if failed:
        result.write(path, {**json.loads(path.read_text()), "failed_arms": failed})
    return [f"{name} {arm}" for arm in failed]


def add(command: argparse.ArgumentParser) -> None:
    """Its options."""
    command.add_argument("names", nargs="*", metavar="EXPERIMENT", help=f"({' '.join(ARMS)})")
    command.add_argument("--repeat", type=int, default=3, metavar="N", help="of each arm (3)")
    command.add_argument("--directory", type=Path, default=REPO / "build" / "results")
