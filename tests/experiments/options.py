# SPDX-License-Identifier: GPL-2.0-only
"""Options that several experiments share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments import runner
from experiments.arms import SETTINGS
from rig.kernels import SERIES


def add_guest(command: argparse.ArgumentParser, arms: str) -> None:
    """What every experiment has that compares arms in a guest of its own."""
    add_clock(command)
    add_cpus(command)
    add_arms(command, arms)
    add_common(command)


def add_cpus(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--cpus", type=at_least_one, default=1, metavar="N", help="CPUs of the guest (1)"
    )


def at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def add_arms(command: argparse.ArgumentParser, default: str) -> None:
    arms = f"joined by commas; known, and to be joined by +: {', '.join(SETTINGS)} ({default})"
    command.add_argument("--arms", default=default, help=arms)
    command.add_argument("--repeat", type=int, default=5, metavar="N", help="of each arm (5)")


def add_load(command: argparse.ArgumentParser, tools: list[str], pps: str) -> None:
    command.add_argument("--tool", default="light", choices=tools, help="(light)")
    add_pps(command, pps)


def add_rates(command: argparse.ArgumentParser, usual: Sequence[float]) -> None:
    command.add_argument(
        "--pps",
        type=lambda text: list(map(float, text.split(","))),
        default=usual,
        help=f"sent to each, rates joined by commas ({','.join(f'{pps:.0f}' for pps in usual)})",
    )


def add_pps(command: argparse.ArgumentParser, pps: str) -> None:
    about = f"sent to each receiver, in the guest's time ({pps})"
    command.add_argument("--pps", type=float, help=about)


def add_seconds(command: argparse.ArgumentParser, seconds: float) -> None:
    command.add_argument(
        "--seconds", type=float, default=seconds, help="measured in a run (%(default)g)"
    )


def add_dilation(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--dilation",
        type=lambda text: None if text == "auto" else float(text),
        default="auto",
        help="how much slower than here the guest's time runs, which makes its CPU "
        "so much faster; auto: so that the papers' rates fit it (auto)",
    )


def add_clock(
    command: argparse.ArgumentParser, default: str = "instructions", about: str = ""
) -> None:
    command.add_argument(
        "--clock",
        default=default,
        choices=sorted({"instructions", "host", default}),
        help="what the guest's time is: instructions of its own, with the sender inside, which "
        "gives the same figures on any host; or the host's, with a sender on it "
        f"({about or default})",
    )
    add_dilation(command)


def clock(options: argparse.Namespace) -> runner.Clock:
    return runner.Clock(options.clock == "instructions", options.dilation)


def add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--kernel", default="6.1", choices=SERIES, help="(6.1)")
    command.add_argument("--json", type=Path, metavar="FILE", help="keep the result there")
