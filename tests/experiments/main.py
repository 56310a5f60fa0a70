# SPDX-License-Identifier: GPL-2.0-only
"""The experiments' command line; see "run --help"."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments import cost, demo, result, runner
from experiments.arms import SETTINGS
from experiments.progress import Say
from experiments.u1 import OFFERED_PPS
from rig.kernels import REPO, SERIES, kernel
from rig.traffic import TOOLS

ARMS = "stock,shed-all,rmem4m"

HELP = {
    "U1": "receivers of nice 0, 5 and 10 under overload",
    "U1w": "the same, each packet costing its receiver work",
    "U1-drops": "U1, and where each receiver's packets died",
}


def main() -> None:
    options = parser().parse_args()
    options.do(options)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="tests/experiments/run", description=__doc__)
    commands = top.add_subparsers(required=True, metavar="EXPERIMENT")
    for name in runner.EXPERIMENTS:
        command = commands.add_parser(name, help=HELP[name])
        arms = f"joined by commas; known, and to be joined by +: {', '.join(SETTINGS)} ({ARMS})"
        command.add_argument("--arms", default=ARMS, help=arms)
        command.add_argument("--repeat", type=int, default=5, metavar="N", help="of each arm (5)")
        command.add_argument("--seconds", type=float, default=4.0, help="measured in a run (4)")
        command.set_defaults(do=run_experiment, experiment=name)
        # iperf3 closes its sockets too early to tell each receiver's drops.
        add_load(command, ["light"] if name == "U1-drops" else sorted(TOOLS))
        add_common(command)
    command = commands.add_parser("cost", help="instructions a packet, deterministic")
    command.add_argument("--repeat", type=int, default=2, metavar="N", help="of each arm (2)")
    command.set_defaults(do=run_cost)
    add_common(command)
    command = commands.add_parser("demo", help="U1 and U1w, stock against PacketFlow")
    add_load(command, sorted(TOOLS))
    command.add_argument("--directory", type=Path, default=REPO / "build" / "demo")
    command.add_argument("--kernel", default="6.12", choices=SERIES, help="(6.12)")
    command.set_defaults(do=run_demo)
    return top


def add_load(command: argparse.ArgumentParser, tools: list[str]) -> None:
    command.add_argument("--tool", default="light", choices=tools, help="(light)")
    command.add_argument(
        "--pps",
        type=float,
        default=OFFERED_PPS,
        help="sent to each receiver, in the guest's time (%(default)s)",
    )
    command.add_argument(
        "--dilation",
        type=lambda text: None if text == "auto" else float(text),
        default="auto",
        help="how much slower than here the guest's time runs, which makes its processor "
        "so much faster; auto: so that the papers' rates fit it (auto)",
    )


def add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--kernel", default="6.1", choices=SERIES, help="(6.1)")
    command.add_argument("--json", type=Path, metavar="FILE", help="keep the result there")


def run_experiment(options: argparse.Namespace) -> None:
    say = Say()
    with runner.booted(kernel(options.kernel), options.dilation, say) as guest:
        found = runner.run(
            options.experiment,
            guest,
            TOOLS[options.tool],
            options.arms.split(","),
            options.repeat,
            options.seconds,
            options.pps,
            say,
        )
    print(result.drop_table(found) if "-drops" in options.experiment else result.table(found))
    keep(options, found)


def run_cost(options: argparse.Namespace) -> None:
    found = cost.run(kernel(options.kernel), options.repeat, Say())
    print(cost.table(found))
    keep(options, found)


def run_demo(options: argparse.Namespace) -> None:
    demo.run(
        kernel(options.kernel),
        TOOLS[options.tool],
        options.pps,
        options.dilation,
        options.directory,
        Say(),
    )


def keep(options: argparse.Namespace, found: result.Json) -> None:
    if options.json:
        result.write(options.json, found)


if __name__ == "__main__":
    main()
