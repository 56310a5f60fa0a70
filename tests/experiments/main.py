# SPDX-License-Identifier: GPL-2.0-only
"""The experiments' command line; see "run --help"."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from experiments import (
    bench,
    cost,
    cost_driver,
    curve,
    demo,
    election,
    isolation,
    mixed,
    onset,
    profile,
    real,
    receive,
    result,
    router,
    runner,
    s1,
    services,
    shares,
    show,
    sweep,
    t1,
    t1b,
    trace,
    trace_picture,
    u1,
    web,
)
from experiments.limits import LIMITS
from experiments.options import (
    add_clock,
    add_common,
    add_cpus,
    add_guest,
    add_load,
    add_pps,
    add_rates,
    add_seconds,
    clock,
)
from experiments.progress import Say
from experiments.result import Json
from experiments.u1 import COUNTED_PPS, COUNTED_WORKING_PPS
from rig.guest import Guest
from rig.kernels import REPO, SERIES, kernel
from rig.programs import programs
from rig.traffic import TOOLS

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


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
    add_receivers(commands)
    add_streams(commands)
    add_beside(commands)
    add_sweeps(commands)
    add_routers(commands)
    add_costs(commands)
    add_courses(commands)
    return top


def add_receivers(commands: Commands) -> None:
    """Receivers of UDP that are sent too much."""
    for name, plan in runner.EXPERIMENTS.items():
        command = commands.add_parser(name, help=plan.about)
        add_seconds(command, plan.seconds)
        command.set_defaults(do=run_experiment, experiment=name)
        # iperf3 closes its sockets too early to tell each receiver's drops, and does no work.
        tools = sorted(TOOLS) if name == "U1" else ["light"]
        add_load(command, tools, f"{plan.counted_pps:.0f}, or {plan.pps:.0f} by the host's clock")
        add_guest(command, plan.arms)


def add_streams(commands: Commands) -> None:
    """Streams, and a receiver whose work grows."""
    for name, about in t1.EXPERIMENTS.items():
        command = commands.add_parser(name, help=about)
        command.add_argument(
            "--packets", type=int, default=t1.PACKETS, help="for each receiver (%(default)s)"
        )
        command.set_defaults(do=run_t1, experiment=name)
        add_guest(command, t1.ARMS)
    command = commands.add_parser("T1b", help=t1b.ABOUT)
    add_seconds(command, t1b.SECONDS)
    command.set_defaults(do=run_t1b)
    add_guest(command, t1b.ARMS)
    command = commands.add_parser("S1", help=s1.ABOUT)
    add_seconds(command, s1.SECONDS)
    command.add_argument(
        "--picture", type=Path, action="append", default=[], metavar="FILE", help="draw it there"
    )
    command.set_defaults(do=run_s1)
    add_pps(command, f"{s1.S1.pps:.0f}")
    add_guest(command, s1.ARMS)


def add_beside(commands: Commands) -> None:
    """Streams, programs and services beside floods."""
    for name, beside in mixed.EXPERIMENTS.items():
        command = commands.add_parser(name, help=beside.about)
        if name == "M1":  # lasts until the stream has ended
            command.set_defaults(seconds=0)
        else:
            add_seconds(command, mixed.SECONDS)
        command.set_defaults(do=run_mixed, experiment=name)
        add_guest(command, mixed.ARMS)
    for name, program in real.EXPERIMENTS.items():
        command = commands.add_parser(name, help=program.about)
        add_seconds(command, real.SECONDS)
        command.set_defaults(do=run_real, experiment=name)
        add_guest(command, real.ARMS)
    for name, service in services.SERVICES.items():
        add_service(commands.add_parser(name, help=f"{service.about}, {web.BESIDE}"), service)


def add_sweeps(commands: Commands) -> None:
    """One load after another."""
    for name, rising in sweep.EXPERIMENTS.items():
        command = commands.add_parser(name, help=rising.about)
        add_seconds(command, sweep.SECONDS)
        add_rates(command, rising.pps)
        command.set_defaults(do=run_sweep, experiment=name)
        add_guest(command, rising.arms)
    command = commands.add_parser("V1", help=shares.ABOUT)
    add_seconds(command, shares.SECONDS)
    command.add_argument(
        "--work",
        type=int,
        metavar="N",
        help=f"busy loops a packet (so many that one alone takes {shares.SATURATION:.0f}/s)",
    )
    add_rates(command, shares.rates())
    command.set_defaults(do=run_shares)
    add_guest(command, shares.ARMS)


def add_routers(commands: Commands) -> None:
    """A guest that forwards."""
    for name, routing in router.EXPERIMENTS.items():
        add_routing(commands.add_parser(name, help=routing.about), name, routing)
    command = commands.add_parser("N2", help=isolation.ABOUT)
    command.add_argument(
        "--seconds",
        type=float,
        default=isolation.SECONDS,
        help="of each of six steps (%(default)g)",
    )
    command.set_defaults(do=run_isolation)
    add_routed(command, isolation.ARMS)


def add_costs(commands: Commands) -> None:
    """Counted instructions."""
    for name, experiment, about in (
        ("cost", cost.run, "instructions a packet, deterministic"),
        ("cost-driver", cost_driver.run, "the same of an XDP program and its drops, by a tap"),
    ):
        command = commands.add_parser(name, help=about)
        command.add_argument("--repeat", type=int, default=2, metavar="N", help="of each arm (2)")
        command.set_defaults(do=run_cost, run=experiment)
        add_common(command)
    command = commands.add_parser("election", help="instructions of a boost, deterministic")
    command.set_defaults(do=run_election)
    add_common(command)
    command = commands.add_parser("receive", help="instructions of a receive call, deterministic")
    command.set_defaults(do=run_receive)
    add_common(command)
    command = commands.add_parser("profile", help=profile.ABOUT)
    add_seconds(command, profile.SECONDS)
    add_pps(command, f"{COUNTED_PPS}")
    command.add_argument("--arms", default=profile.ARMS, help=f"joined by commas ({profile.ARMS})")
    command.set_defaults(do=run_profile)
    add_cpus(command)
    add_common(command)


def add_courses(commands: Commands) -> None:
    """What happens over time; all at once, and for a first look."""
    command = commands.add_parser("onset", help=onset.ABOUT)
    command.add_argument(
        "--seconds", type=float, default=onset.SECONDS, help="of floods on and off (%(default)g)"
    )
    add_pps(command, f"{COUNTED_PPS}")
    command.set_defaults(do=run_onset)
    add_guest(command, onset.ARMS)
    add_trace(commands.add_parser("trace", help=trace.ABOUT))
    command = commands.add_parser("bench", help="all experiments, and a page of them")
    bench.add(command)
    command.add_argument("--kernel", default="6.12", choices=SERIES, help="(6.12)")
    command.set_defaults(do=run_bench)
    command = commands.add_parser("demo", help="W1, U1 and C1-nat, stock against PacketFlow")
    add_load(command, sorted(TOOLS), "as of the experiments")
    add_clock(
        command,
        "auto",
        "instructions, unless by iperf3, which does not keep up with them",
    )
    command.add_argument("--directory", type=Path, default=REPO / "build" / "demo")
    command.add_argument("--kernel", default="6.12", choices=SERIES, help="(6.12)")
    command.set_defaults(do=run_demo)


def add_service(command: argparse.ArgumentParser, service: services.Service) -> None:
    command.add_argument(
        "--seconds", type=int, default=web.SECONDS, help="that it is asked in a run (%(default)d)"
    )
    parts = [web.described(part.name, part.floods) for part in service.parts]
    command.add_argument(
        "--part",
        type=int,
        action="append",
        choices=range(1, len(parts) + 1),
        help="only this one: " + "; ".join(f"{i}: {part}" for i, part in enumerate(parts, 1)),
    )
    command.set_defaults(do=run_service, experiment=service.name)
    add_guest(command, web.ARMS)


def add_routing(command: argparse.ArgumentParser, name: str, routing: router.Experiment) -> None:
    """Of a guest that routes."""
    add_seconds(command, routing.seconds)
    unit, usual = ("Mbit/s", router.MBITS) if name == "N1" else ("bytes", router.SIZES)
    command.add_argument(
        "--steps",
        type=lambda text: tuple(map(int, text.split(","))),
        default=usual,
        help=f"{unit}, joined by commas ({','.join(map(str, usual))})",
    )
    command.set_defaults(do=run_routing, experiment=name)
    add_routed(command, routing.arms)


def add_routed(command: argparse.ArgumentParser, arms: str) -> None:
    """What every experiment has whose guest routes."""
    command.add_argument(
        "--arms", default=arms, help=f"joined by commas; known: {', '.join(LIMITS)} ({arms})"
    )
    command.add_argument("--repeat", type=int, default=3, metavar="N", help="of each arm (3)")
    add_common(command)


def add_trace(command: argparse.ArgumentParser) -> None:
    command.add_argument("--arm", default=trace.ARM, help=f"one, or some joined by + ({trace.ARM})")
    add_seconds(command, trace.SECONDS)
    add_pps(
        command,
        f"{COUNTED_PPS}; {COUNTED_WORKING_PPS} with --working, {web.PPS:.0f} with --web",
    )
    command.add_argument(
        "--nices",
        type=lambda text: tuple(map(int, text.split(","))),
        default=u1.U1.nices,
        help="of the receivers, the most important first (0,5,10)",
    )
    load = command.add_mutually_exclusive_group()
    load.add_argument("--work", type=int, default=0, metavar="N", help="busy loops a packet (0)")
    load.add_argument("--working", action="store_true", help="as many as in U1w")
    load.add_argument("--web", action="store_true", help="the load of W1 instead of U1's")
    command.add_argument(
        "--contained", action="store_true", help="as in C1: in a container; with --web as in C2"
    )
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FILE=VALUE",
        help="a setting below /proc/packetflow; can be given again",
    )
    for state in ("on", "off"):
        command.add_argument(
            f"--{state}-for",
            type=float,
            default=0,
            metavar="S",
            help=f"seconds for which all but the first are {state} (always on)",
        )
    command.add_argument(
        "--together", action="store_true", help="the first goes on and off with the others"
    )
    command.add_argument(
        "--picture", type=Path, action="append", default=[], metavar="FILE", help="draw it there"
    )
    add_cpus(command)
    command.set_defaults(do=run_trace)
    add_common(command)


def in_guest(options: argparse.Namespace, run: Callable[[Guest, list[str], Say], Json]) -> Json:
    """A result by these arms in a guest of its own, which is shown and kept."""
    say = Say()
    chosen = clock(options)
    if options.cpus > 1 and not chosen.counted:
        raise SystemExit("--cpus: a guest by the host's clock has one CPU")
    with runner.booted(kernel(options.kernel), chosen, say, options.cpus) as guest:
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


def run_service(options: argparse.Namespace) -> None:
    service, repeats, seconds = (
        services.SERVICES[options.experiment],
        options.repeat,
        options.seconds,
    )
    parts = [service.parts[i - 1] for i in options.part or ()]
    in_guest(
        options,
        lambda guest, arms, say: web.run(guest, service, arms, repeats, seconds, say, parts),
    )


def run_sweep(options: argparse.Namespace) -> None:
    name, repeats, seconds, pps = options.experiment, options.repeat, options.seconds, options.pps
    in_guest(
        options, lambda guest, arms, say: sweep.run(name, guest, arms, repeats, seconds, pps, say)
    )


def run_shares(options: argparse.Namespace) -> None:
    repeats, seconds, work, pps = options.repeat, options.seconds, options.work, options.pps
    in_guest(
        options, lambda guest, arms, say: shares.run(guest, arms, repeats, seconds, work, pps, say)
    )


def routed(
    options: argparse.Namespace,
    run: Callable[[Guest, list[str], Say], Json],
    plugin: Path | None = None,
) -> None:
    """A result by these arms in a guest that routes, which is shown and kept."""
    say, clock = Say(), runner.Clock()
    with runner.booted(kernel(options.kernel), clock, say, routed=True, plugin=plugin) as guest:
        found = run(guest, options.arms.split(","), say)
    keep(options, found)


def run_routing(options: argparse.Namespace) -> None:
    name, repeats, seconds = options.experiment, options.repeat, options.seconds
    routed(
        options,
        lambda guest, arms, say: router.run(
            name, guest, arms, repeats, seconds, options.steps, say
        ),
        programs() / "instructions.so",
    )


def run_isolation(options: argparse.Namespace) -> None:
    repeats, seconds = options.repeat, options.seconds
    routed(options, lambda guest, arms, say: isolation.run(guest, arms, repeats, seconds, say))


def run_cost(options: argparse.Namespace) -> None:
    keep(options, options.run(kernel(options.kernel), options.repeat, Say()))


def run_election(options: argparse.Namespace) -> None:
    keep(options, election.run(kernel(options.kernel), Say()))


def run_receive(options: argparse.Namespace) -> None:
    keep(options, receive.run(kernel(options.kernel), Say()))


def run_profile(options: argparse.Namespace) -> None:
    arms, pps = options.arms.split(","), options.pps or COUNTED_PPS
    chosen, seconds = kernel(options.kernel), options.seconds
    keep(options, profile.run(chosen, arms, seconds, pps, options.cpus, Say()))


def run_onset(options: argparse.Namespace) -> None:
    repeats, seconds, pps = options.repeat, options.seconds, options.pps or COUNTED_PPS
    in_guest(options, lambda guest, arms, say: onset.run(guest, arms, repeats, seconds, pps, say))


def run_trace(options: argparse.Namespace) -> None:
    usual = COUNTED_WORKING_PPS if options.working else COUNTED_PPS
    setup = trace.Setup(
        options.arm,
        options.seconds,
        options.pps or (web.PPS if options.web else usual),
        options.nices,
        options.web,
        options.contained,
        options.work,
        options.working,
        options.on_for,
        options.off_for,
        options.together,
        dict(one.split("=", 1) for one in options.set),
    )
    if bool(setup.on) != bool(setup.off):
        raise SystemExit("--on-for and --off-for belong together")
    say = Say()
    with runner.booted(kernel(options.kernel), runner.Clock(), say, options.cpus) as guest:
        found = trace.run(guest, setup, say)
    keep(options, found)
    trace_picture.picture(found, options.picture)


def run_demo(options: argparse.Namespace) -> None:
    if options.clock == "auto":
        options.clock = "instructions" if options.tool == "light" else "host"
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
    """Write the result down if that is wanted, and show it."""
    if options.json:
        result.write(options.json, {**found, "command": result.command(options.arguments)})
    print(show.table(found))


if __name__ == "__main__":
    main()
