# SPDX-License-Identifier: GPL-2.0-only
"""The experiments' command line; see "run --help"."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from experiments import (
    bench,
    cost,
    curve,
    demo,
    election,
    mixed,
    profile,
    real,
    result,
    runner,
    s1,
    show,
    sweep,
    t1,
    t1b,
)
from experiments.arms import SETTINGS
from experiments.progress import Say
from experiments.result import Json
from experiments.u1 import COUNTED_PPS
from rig.guest import Guest
from rig.kernels import REPO, SERIES, kernel
from rig.machine import emulated
from rig.traffic import TOOLS


def main() -> None:
    run(sys.argv[1:])


def run(arguments: list[str]) -> None:
    """As the command line."""
    options = parser().parse_args(arguments)
    options.arguments = arguments
    options.do(options)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="tests/experiments/run", description=__doc__)
    commands = top.add_subparsers(required=True, metavar="EXPERIMENT")
    for name, plan in runner.EXPERIMENTS.items():
        command = commands.add_parser(name, help=plan.about)
        add_seconds(command, plan.seconds)
        command.set_defaults(do=run_experiment, experiment=name)
        # iperf3 closes its sockets too early to tell each receiver's drops, and does no work.
        tools = sorted(TOOLS) if name == "U1" else ["light"]
        add_load(command, tools, f"{plan.counted_pps:.0f}, or {plan.pps:.0f} by the host's clock")
        add_clock(command)
        add_arms(command, plan.arms)
        add_common(command)
    for name, about in t1.EXPERIMENTS.items():
        command = commands.add_parser(name, help=about)
        command.add_argument(
            "--packets", type=int, default=t1.PACKETS, help="for each receiver (%(default)s)"
        )
        command.set_defaults(do=run_t1, experiment=name)
        add_clock(command)
        add_arms(command, t1.ARMS)
        add_common(command)
    command = commands.add_parser("T1b", help=t1b.ABOUT)
    add_seconds(command, t1b.SECONDS)
    command.set_defaults(do=run_t1b)
    add_clock(command)
    add_arms(command, t1b.ARMS)
    add_common(command)
    command = commands.add_parser("S1", help=s1.ABOUT)
    add_seconds(command, s1.SECONDS)
    command.add_argument(
        "--picture", type=Path, action="append", default=[], metavar="FILE", help="draw it there"
    )
    command.set_defaults(do=run_s1)
    add_pps(command, f"{s1.S1.pps:.0f}")
    add_clock(command)
    add_arms(command, s1.ARMS)
    add_common(command)
    for name, beside in mixed.EXPERIMENTS.items():
        command = commands.add_parser(name, help=beside.about)
        if name == "M1":  # lasts until the stream has ended
            command.set_defaults(seconds=0)
        else:
            add_seconds(command, mixed.SECONDS)
        command.set_defaults(do=run_mixed, experiment=name)
        add_clock(command)
        add_arms(command, mixed.ARMS)
        add_common(command)
    for name, program in real.EXPERIMENTS.items():
        command = commands.add_parser(name, help=program.about)
        add_seconds(command, real.SECONDS)
        command.set_defaults(do=run_real, experiment=name)
        add_clock(command)
        add_arms(command, real.ARMS)
        add_common(command)
    for name, rising in sweep.EXPERIMENTS.items():
        command = commands.add_parser(name, help=rising.about)
        add_seconds(command, sweep.SECONDS)
        command.set_defaults(do=run_sweep, experiment=name)
        add_clock(command)
        add_arms(command, rising.arms)
        add_common(command)
    command = commands.add_parser("cost", help="instructions a packet, deterministic")
    command.add_argument("--repeat", type=int, default=2, metavar="N", help="of each arm (2)")
    command.set_defaults(do=run_cost)
    add_common(command)
    command = commands.add_parser("election", help="instructions of a boost, deterministic")
    command.set_defaults(do=run_election)
    add_common(command)
    command = commands.add_parser("profile", help=profile.ABOUT)
    add_seconds(command, profile.SECONDS)
    add_pps(command, f"{COUNTED_PPS}")
    command.add_argument("--arms", default=profile.ARMS, help=f"joined by commas ({profile.ARMS})")
    command.set_defaults(do=run_profile)
    add_common(command)
    command = commands.add_parser("bench", help="all experiments, and a page of them")
    bench.add(command)
    command.add_argument("--kernel", default="6.12", choices=SERIES, help="(6.12)")
    command.set_defaults(do=run_bench)
    command = commands.add_parser("demo", help="U1 and U1w, stock against PacketFlow")
    add_load(command, sorted(TOOLS), "as of the experiments")
    add_clock(
        command,
        "auto",
        "instructions where the processor is emulated anyway, unless by iperf3, "
        "which does not keep up with them",
    )
    command.add_argument("--directory", type=Path, default=REPO / "build" / "demo")
    command.add_argument("--kernel", default="6.12", choices=SERIES, help="(6.12)")
    command.set_defaults(do=run_demo)
    return top


def add_arms(command: argparse.ArgumentParser, default: str) -> None:
    arms = f"joined by commas; known, and to be joined by +: {', '.join(SETTINGS)} ({default})"
    command.add_argument("--arms", default=default, help=arms)
    command.add_argument("--repeat", type=int, default=5, metavar="N", help="of each arm (5)")


def add_load(command: argparse.ArgumentParser, tools: list[str], pps: str) -> None:
    command.add_argument("--tool", default="light", choices=tools, help="(light)")
    add_pps(command, pps)


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
        help="how much slower than here the guest's time runs, which makes its processor "
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


def in_guest(options: argparse.Namespace, run: Callable[[Guest, list[str], Say], Json]) -> Json:
    """A result by these arms in a guest of its own, which is shown and kept."""
    say = Say()
    with runner.booted(kernel(options.kernel), clock(options), say) as guest:
        found = run(guest, options.arms.split(","), say)
    keep(options, found)
    return found


def run_experiment(options: argparse.Namespace) -> None:
    plan, tool = runner.EXPERIMENTS[options.experiment], TOOLS[options.tool]
    name, repeats, seconds = options.experiment, options.repeat, options.seconds
    in_guest(
        options,
        lambda guest, arms, say: runner.run(
            name, guest, tool, arms, repeats, seconds, options.pps or plan.offered(guest), say
        ),
    )


def run_t1(options: argparse.Namespace) -> None:
    name, repeats, packets = options.experiment, options.repeat, options.packets
    in_guest(options, lambda guest, arms, say: t1.run(name, guest, arms, repeats, packets, say))


def run_t1b(options: argparse.Namespace) -> None:
    repeats, seconds = options.repeat, options.seconds
    in_guest(options, lambda guest, arms, say: t1b.run(guest, arms, repeats, seconds, say))


def run_s1(options: argparse.Namespace) -> None:
    repeats, seconds, pps = options.repeat, options.seconds, options.pps or s1.S1.pps
    found = in_guest(
        options, lambda guest, arms, say: s1.run(guest, arms, repeats, seconds, pps, say)
    )
    curve.picture(found, options.picture)


def run_mixed(options: argparse.Namespace) -> None:
    name, repeats, seconds = options.experiment, options.repeat, options.seconds
    in_guest(options, lambda guest, arms, say: mixed.run(name, guest, arms, repeats, seconds, say))


def run_real(options: argparse.Namespace) -> None:
    name, repeats, seconds = options.experiment, options.repeat, options.seconds
    in_guest(options, lambda guest, arms, say: real.run(name, guest, arms, repeats, seconds, say))


def run_sweep(options: argparse.Namespace) -> None:
    name, repeats, seconds = options.experiment, options.repeat, options.seconds
    in_guest(options, lambda guest, arms, say: sweep.run(name, guest, arms, repeats, seconds, say))


def run_cost(options: argparse.Namespace) -> None:
    keep(options, cost.run(kernel(options.kernel), options.repeat, Say()))


def run_election(options: argparse.Namespace) -> None:
    keep(options, election.run(kernel(options.kernel), Say()))


def run_profile(options: argparse.Namespace) -> None:
    arms, pps = options.arms.split(","), options.pps or COUNTED_PPS
    keep(options, profile.run(kernel(options.kernel), arms, options.seconds, pps, Say()))


def run_demo(options: argparse.Namespace) -> None:
    if options.clock == "auto":
        options.clock = "instructions" if emulated() and options.tool == "light" else "host"
    demo.run(
        kernel(options.kernel),
        TOOLS[options.tool],
        options.pps,
        clock(options),
        options.directory,
        Say(),
    )


def run_bench(options: argparse.Namespace) -> None:
    unknown = set(options.names) - set(bench.ARMS)
    if unknown:
        raise SystemExit(f"no such experiment: {', '.join(sorted(unknown))}")
    names = options.names or list(bench.ARMS)
    bench.run(names, options.kernel, options.repeat, options.directory, run, Say())


def keep(options: argparse.Namespace, found: Json) -> None:
    """Show the result, and write it down if that is wanted."""
    print(show.table(found))
    if options.json:
        result.write(options.json, {**found, "command": result.command(options.arguments)})


if __name__ == "__main__":
    main()
