# SPDX-License-Identifier: GPL-2.0-only
"""The experiments' command line; see "run --help"."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments import cost, result, runner
from experiments.progress import Say
from rig.kernels import SERIES, kernel
from rig.traffic import TOOLS

ARMS = "stock,shed-all,rmem4m"


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests/experiments/run")
    commands = parser.add_subparsers(dest="experiment", required=True, metavar="EXPERIMENT")
    for name in runner.EXPERIMENTS:
        command = commands.add_parser(name)
        command.add_argument("--kernel", default="6.1", choices=SERIES)
        command.add_argument("--arms", default=ARMS, help=f"joined by commas ({ARMS})")
        command.add_argument("--repeat", type=int, default=5, metavar="N")
        command.add_argument("--seconds", type=float, default=4.0, help="measured in each run")
        command.add_argument("--tool", default="light", choices=sorted(TOOLS))
        command.add_argument("--json", type=Path, metavar="FILE")
        command.set_defaults(do=experiment)
    command = commands.add_parser("cost")
    command.add_argument("--kernel", default="6.1", choices=SERIES)
    command.add_argument("--repeat", type=int, default=2, metavar="N")
    command.add_argument("--json", type=Path, metavar="FILE")
    command.set_defaults(do=instructions)
    options = parser.parse_args()
    options.do(options)


def experiment(options: argparse.Namespace) -> None:
    found = runner.run(
        options.experiment,
        kernel(options.kernel),
        TOOLS[options.tool],
        options.arms.split(","),
        options.repeat,
        options.seconds,
        Say(),
    )
    print(result.table(found))
    if options.json:
        result.write(options.json, found)


def instructions(options: argparse.Namespace) -> None:
    found = cost.run(kernel(options.kernel), options.repeat, Say())
    print(cost.table(found))
    if options.json:
        result.write(options.json, found)


if __name__ == "__main__":
    main()
