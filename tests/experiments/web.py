# SPDX-License-Identifier: GPL-2.0-only
"""W1, D1, K1, E1, C2: a server of nice 0 beside floods of datagrams to receivers of nice 10.

The servers, and who asks them, are in services.py. The parts: ways to ask, beside the floods, or
beside receivers that nobody floods. Who asks is on another CPU than who floods.

The accounts are of the datagrams, but what was lost in front of the protocol stack may have been
a request, or an answer to it.

JSON:

    experiment, kernel, version, clock, cpus, dilation, date
    nices             [receiver], the server first
    pps               datagrams a second to each that is flooded
    parts             in their order, each with
      part              the way to ask, such as "kept alive"
      floods            are there any?
      noise             the spread (maximum - minimum) of answers_per_s of both stock arms
      arms              by name, each with
        answers_per_s     [repeat]
        p50_ms, p99_ms    [repeat], time to an answer
        errors            [repeat], of wrk: of sockets, and answers of another status; of dnsperf:
                          queries that were not answered
        offered_pps       [repeat][flood]
        received_pps      likewise
        idle              [repeat], share of the guest's CPUs while it was asked
        accounts          [repeat], see result.py
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from experiments import counters, runner, services
from experiments.arms import OFF, Arm, arms
from experiments.measure import Closing, cpu_time, lost, rates
from experiments.mixed import datagrams
from experiments.result import Json, closing_json, columns, heading, largest_gap, spread, subject
from experiments.services import Answers, Part, Service
from rig.guest import Guest
from rig.traffic import Flood, Flow, Received, Sent, sender

BESIDE = "with and without floods to nice 10"
FLOODED = (5001, 5002)
LOW = 10  # the nice level of who is flooded
PPS = 22_000.0  # to each
FLOWS = [Flow(port, PPS) for port in FLOODED]
SIZE = 256
WARM_UP = 0.5
ASKED_BEFORE = 1  # seconds, so that what is measured is no onset; that is told by "onset"
SECONDS = 3
ARMS = "stock,shed-all,fifo-by-hand,filter,all"
BY_HAND = ("shed-all", "fifo-by-hand")  # what ours are compared with


@dataclass(frozen=True)
class Run:
    """One arm, once."""

    answers: Answers
    offered_pps: list[float]
    received_pps: list[float]
    closing: Closing
    idle: float
    sent: Sent | None = None
    received: Sequence[Received] = field(default_factory=list)


def measure(
    guest: Guest,
    arm: Arm,
    service: Service,
    part: Part,
    seconds: int,
    flows: Sequence[Flow] = FLOWS,
) -> Run:
    """Have the server asked beside the floods; the guest is left as it was."""
    with service.place(guest) as tool, arm(guest, (service.port, *FLOODED)):
        server = service.start(guest)
        receivers = [tool.receiver(guest, port, nice=LOW) for port in FLOODED]
        arm.started(guest, [server.worker, *(one.process.pid for one in receivers)])
        before = lost(guest)
        lasts = WARM_UP + ASKED_BEFORE + seconds + 2 * services.PATIENCE  # it is stopped before
        flood = Flood(flows, SIZE, lasts, sender(guest)) if part.floods else None
        guest.run(f"sleep {WARM_UP * guest.dilation}")
        service.ask(guest, part, ASKED_BEFORE)
        cpu = cpu_time(guest)
        answered = service.ask(guest, part, seconds)
        idle = counters.idle_share(cpu, cpu_time(guest))
        sent = flood.stop() if flood else Sent(dict.fromkeys(FLOODED, 0), seconds)
        found = datagrams(guest, arm, FLOODED, sent, receivers, before)
        server.finish()
    offered = [count / sent.seconds for count in sent.packets.values()]
    got = rates(found.received, seconds, WARM_UP + ASKED_BEFORE)
    return Run(answered, offered, got, found.closing, idle, sent, found.received)


def run(
    guest: Guest,
    service: Service,
    names: Sequence[str],
    repeats: int,
    seconds: int,
    say: Callable[[str], None],
    wanted: Sequence[Part] = (),
) -> Json:
    """Run every arm so often in each part, or in all, and give the result."""
    services.spare(guest)
    parts = []
    for part in wanted or service.parts:
        say(f"{service.name}: {described(part.name, part.floods)}")

        def measured(arm: Arm, part: Part = part) -> Run:
            return measure(guest, arm, service, part, seconds)

        parts.append((part, runner.interleaved(arms(names), repeats, measured, told, say)))
    return result_json(guest, service, parts)


def told(one: Run) -> str:
    got = "/".join(f"{pps / 1e3:.1f}" for pps in one.received_pps)
    said = f"{one.answers.per_s:.0f} answers/s, p99 {one.answers.p99_ms:.1f} ms"
    return f"{said}, floods {got} kpps"


def described(part: str, floods: bool) -> str:
    return f"{part}, {'beside floods' if floods else 'no floods'}"


def result_json(
    guest: Guest, service: Service, parts: Sequence[tuple[Part, Mapping[str, Sequence[Run]]]]
) -> Json:
    return {
        **heading(service.name, guest),
        "nices": [0] + [LOW] * len(FLOODED),
        "pps": PPS,
        "parts": [part_json(part, runs) for part, runs in parts],
    }


def part_json(part: Part, runs: Mapping[str, Sequence[Run]]) -> Json:
    found = {name: arm_json(done) for name, done in runs.items()}
    stock = [value for name in OFF for value in found[name]["answers_per_s"]]
    noise = round(max(stock) - min(stock), 1)
    return {"part": part.name, "floods": part.floods, "noise": noise, "arms": found}


def arm_json(runs: Sequence[Run]) -> Json:
    """One arm's runs."""
    return {
        "answers_per_s": [round(run.answers.per_s, 1) for run in runs],
        "p50_ms": [round(run.answers.p50_ms, 3) for run in runs],
        "p99_ms": [round(run.answers.p99_ms, 3) for run in runs],
        "errors": [run.answers.errors for run in runs],
        "offered_pps": [[round(pps, 1) for pps in run.offered_pps] for run in runs],
        "received_pps": [[round(pps, 1) for pps in run.received_pps] for run in runs],
        "idle": [round(run.idle, 3) for run in runs],
        "accounts": [closing_json(run.closing) for run in runs],
    }


def within(values: Sequence[float], digits: int) -> str:
    """The median, and the least and the greatest in brackets."""
    middle = statistics.median(values)
    return f"{middle:.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def verdict(part: Json, name: str) -> str:
    """An arm against the better of those by hand, in answers and in time apart; nothing where
    one of them was not run, or had no answer."""
    found = part["arms"]
    if not {name, *BY_HAND} <= set(found):
        return ""

    def middle(arm: str, figure: str) -> float:
        return statistics.median(found[arm][figure])

    most = max(middle(arm, "answers_per_s") for arm in BY_HAND)
    soonest = min(middle(arm, "p99_ms") for arm in BY_HAND)
    if not most:
        return ""
    return (
        f"{described(part['part'], part['floods'])}: {name}: answers "
        f"{middle(name, 'answers_per_s') / most:.0%} of the better of {' and '.join(BY_HAND)}, "
        f"p99 {middle(name, 'p99_ms') / soonest:.0%}"
    )


def rows(part: Json, nices: Sequence[int]) -> Iterator[list[str]]:
    for name, arm in part["arms"].items():
        floods = map(spread, zip(*arm["received_pps"], strict=True))
        yield [
            name,
            within(arm["answers_per_s"], 0),
            within(arm["p50_ms"], 2),
            within(arm["p99_ms"], 2),
            f"{statistics.median(arm['errors']):.0f}",
            *(floods if part["floods"] else ["-"] * len(nices)),
            f"{statistics.median(arm['idle']):.0%}",
            f"{largest_gap(arm):+.2%}" if part["floods"] else "-",
        ]


def table(result: Json) -> str:
    """Every part, and what is said of it."""
    low = result["nices"][1:]
    heads = ["arm", "answers/s", "p50 ms", "p99 ms", "errors"]
    heads += [*(f"nice {nice} kpps" for nice in low), "idle", "unaccounted"]
    title = f"{subject(result)}: {services.SERVICES[result['experiment']].about}; "
    title += f"floods of {result['pps'] / 1e3:g} kpps each; median (minimum-maximum) of the repeats"
    lines = columns([heads, *(row for part in result["parts"] for row in rows(part, low))])
    made = [title, lines.pop(0)]
    for part in result["parts"]:
        noise = f"noise (spread of the stock arms): {part['noise']:.0f} answers/s"
        made.append(f"{described(part['part'], part['floods'])}; {noise}")
        made += [lines.pop(0) for _ in part["arms"]]
    made += [verdict(part, name) for part in result["parts"] for name in ("filter", "all")]
    return "\n".join(filter(None, made))
