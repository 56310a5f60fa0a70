# SPDX-License-Identifier: GPL-2.0-only
"""All experiments of a kernel, one after another, and the page of what they gave.

An experiment that fails is told of in the page, and by the exit status, and the next one is
run.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments import report, result
from rig.kernels import REPO

BY_HAND = "nice-by-hand,fifo-by-hand,threaded,threaded-niced"
RULES = "flow-limit,nft-limit,tc-police,xdp-police"
OFF = "autogroup-off,autogroup-off+rmem4m"
OURS = "filter,sched,mm,both,all"
# What is compared where; stock always is, twice.
ARMS = {
    "U1": f"shed-all,rmem4m,{BY_HAND},{RULES},{OURS},all-scaled",
    "U1w": f"shed-all,rmem4m,{OFF},{BY_HAND},{RULES},{OURS},all-scaled",
    "U1-drops": "filter,both,all",
    "T1": f"{BY_HAND},{OURS}",
    "M1": f"{BY_HAND},nft-limit,{OURS}",
    "M2": f"{BY_HAND},{OURS}",
    "B1": "mm,filter+mm,all,rmem4m",
    "P1": "filter,both,all",
    "H1": "rmem4m,nice-by-hand,rr-by-hand,sched,all",
    "S1": "mm,all",
    "L1": "nft-limit,xdp-police,filter,all",
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
        arguments = [name, "--kernel", kernel, "--arms", ARMS[name], "--repeat", str(repeats)]
        try:
            one([*arguments, "--json", str(path)])
        except Exception:
            reason = traceback.format_exc()
            unsound.append(name)
            say(f"bench: {name} FAILED: {reason}")
            failed = {"experiment": name, "kernel": kernel, "failed": reason}
            result.write(path, {**failed, "command": result.command(arguments)})
    say(f"bench: {report.write(directory)}")
    if unsound:
        raise SystemExit(f"bench: failed: {', '.join(unsound)}")


def add(command: argparse.ArgumentParser) -> None:
    """Its options."""
    command.add_argument("names", nargs="*", metavar="EXPERIMENT", help=f"({' '.join(ARMS)})")
    command.add_argument("--repeat", type=int, default=3, metavar="N", help="of each arm (3)")
    command.add_argument("--directory", type=Path, default=REPO / "build" / "results")
