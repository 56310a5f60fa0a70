# SPDX-License-Identifier: GPL-2.0-only
"""N2: a TCP stream and datagrams in opposite directions through a router, so much for each.

The datagrams become ever more, to 16 times what they may have; the stream is to notice nothing.
In the paper it has 4.9778 of 5 Mbit/s, with a deviation of 43.8 kbit/s from its own mean, 52.0
before 200 of the 300 seconds and 9.3 after (IMQ: 4.138, and 1432 kbit/s). All rates here are of
IP packets, and a deviation is one of the rates of single seconds.

JSON:

    experiment, kernel, version, clock, cpus, dilation, date
    rate       bits a second, that each may have
    seconds    of each step
    mbits      sent of the datagrams, by step
    arms       by name, each with a list of the repeats:
      tcp_bps           mean of all seconds
      tcp_deviation_bps
      tcp_before_bps    the deviation in the first two thirds of the steps,
      tcp_after_bps     and in the others
      tcp_step_bps      [step], mean
      udp_step_bps      [step], mean
      series_bps        [second], the stream
"""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from experiments import runner
from experiments.limits import ETHERNET, Limited, Limiting
from experiments.result import Json, columns, heading, subject
from experiments.router import HEADERS, LARGEST, Samples
from rig.guest import Guest, Process
from rig.link import FAR, FAR4, FAR_DEVICE, INSIDE, OUT_DEVICE, OUT_MAC, SENDER4
from rig.programs import programs
from rig.traffic import FIRST, Flood, Inside, Sent, await_bound
from rig.traffic import Flow as Sending

ABOUT = "a router gives TCP and datagrams in opposite directions their rates: how steadily"
ARMS = "flow,ifb-htb,ifb-fq_codel,ifb-cake,tc-police"
RATE = 5_000_000
MBITS = (2, 5, 10, 20, 40, 80)
BEFORE = 4  # steps: 200 s of the paper's 300
SECONDS = 5.0  # of a step; the paper's last 50
SETTLE = 1.0  # of the stream, before the first step
SLACK = 1.0  # s, between steps
TCP_PORT, UDP_PORT = 5001, 5002
STREAM = Limited("stream", "tcp", TCP_PORT, RATE, LARGEST, "eth0", OUT_DEVICE)
DATAGRAMS = Limited("datagrams", "udp", UDP_PORT, RATE, LARGEST, OUT_DEVICE, "eth0")

Rate = tuple[int, int, float]  # from, to (ns), bits/s


@dataclass(frozen=True)
class Run:
    """One arm, once: rates of single seconds, and from when to when each step lasted (ns)."""

    tcp: Sequence[Rate]
    udp: Sequence[Rate]
    steps: Sequence[tuple[int, int]]


class Ends:
    """The stream, and who receives the datagrams, until they end."""

    def __init__(self, guest: Guest, seconds: float) -> None:
        self._guest = guest
        self._sink = self._start(FAR, "tcp_bulk", "-p", "1", str(TCP_PORT))
        await_bound(guest, "tcp", TCP_PORT, pid=self._sink.pid)
        self._udp = self._start(INSIDE, "udp_recv", "-S", "1000", str(UDP_PORT))
        await_bound(guest, "udp", UDP_PORT, pid=self._udp.pid)
        self._source = self._start(INSIDE, "tcp_send", "-t", str(seconds), FAR4, str(TCP_PORT))

    def _start(self, namespace: str, program: str, *options: str) -> Process:
        command = [str(programs() / program), *options]
        inside = self._guest.in_sender(command, apart=True, namespace=namespace)
        return self._guest.spawn(inside, nice=FIRST)

    def end(self) -> list[Rate]:
        """What was received of the datagrams; the stream is torn down."""
        if not self._source.alive():
            raise RuntimeError(f"tcp_send: {self._source.wait().err}")
        self._udp.signal()
        found = json.loads(self._udp.wait().out)
        for process in (self._sink, self._source):
            process.signal()
            process.wait()
        samples = [(ns, packets * LARGEST) for ns, packets, *_ in found["samples"]]
        return rates(samples)


def rates(samples: Sequence[tuple[int, int]]) -> list[Rate]:
    """From one sample (ns, bytes) to the next."""
    pairs = itertools.pairwise(samples)
    return [(a, b, (more - less) * 8e9 / (b - a)) for (a, less), (b, more) in pairs]


def within(found: Sequence[Rate], begin: int, end: int) -> list[float]:
    """The rates from and to any time of that period."""
    return [rate for a, b, rate in found if begin <= a and b <= end]


def measure(guest: Guest, arm: Limiting, seconds: float, mbits: Sequence[float]) -> Run:
    """All steps in this arm."""
    with arm(guest, [TCP_PORT, UDP_PORT]):
        whole = SETTLE + (seconds + SLACK) * len(mbits)
        ends = Ends(guest, whole + 60)
        taken = Samples(guest, [f"{FAR}:{FAR_DEVICE}"], round(whole), round(whole))
        guest.run(f"sleep {SETTLE}")
        sent = [datagrams(guest, mbit, seconds) for mbit in mbits]
        steps = [(one.start_ns or 0, (one.start_ns or 0) + int(one.seconds * 1e9)) for one in sent]
        samples = taken.end()
        udp = ends.end()
    tcp = rates([(ns, of[0][1] - ETHERNET * of[0][0]) for ns, of in samples])
    return Run(tcp, udp, steps)


def datagrams(guest: Guest, mbit: float, seconds: float) -> Sent:
    """From the far end, so many for so long."""
    far = Inside(guest, device=f"{FAR_DEVICE},{OUT_MAC}", namespace=FAR)
    sending = [Sending(UDP_PORT, mbit * 1e6 / (8 * LARGEST))]
    return Flood(sending, LARGEST - HEADERS, seconds, far, at=SENDER4).end()


def run(
    guest: Guest,
    names: Sequence[str],
    repeats: int,
    seconds: float,
    say: Callable[[str], None],
) -> Json:
    """Every arm so often, with steps of so many seconds."""
    guest.spare_sender()
    chosen = [Limiting(name, [STREAM, DATAGRAMS]) for name in names]

    def measured(arm: runner.Arm) -> Run:
        assert isinstance(arm, Limiting)
        return measure(guest, arm, seconds, MBITS)

    def told(one: Run) -> str:
        found = run_json(one)
        mean, off = found["tcp_bps"] / 1e6, found["tcp_deviation_bps"] / 1e3
        return f"TCP {mean:.4f} Mbit/s, deviation {off:.1f} kbit/s"

    runs = runner.interleaved(chosen, repeats, measured, told, say)
    return result_json(guest, seconds, runs)


def run_json(one: Run) -> Json:
    """The figures of one run."""
    begin, middle, end = one.steps[0][0], one.steps[BEFORE - 1][1], one.steps[-1][1]
    whole = within(one.tcp, begin, end)
    return {
        "tcp_bps": round(statistics.mean(whole)),
        "tcp_deviation_bps": round(statistics.pstdev(whole)),
        "tcp_before_bps": round(statistics.pstdev(within(one.tcp, begin, middle))),
        "tcp_after_bps": round(statistics.pstdev(within(one.tcp, middle, end))),
        "tcp_step_bps": [round(statistics.mean(within(one.tcp, *step))) for step in one.steps],
        "udp_step_bps": [round(statistics.mean(within(one.udp, *step))) for step in one.steps],
        "series_bps": [round(rate) for rate in whole],
    }


def result_json(guest: Guest, seconds: float, runs: Mapping[str, Sequence[Run]]) -> Json:
    arms = {name: [run_json(one) for one in done] for name, done in runs.items()}
    return {
        **heading("N2", guest),
        "rate": RATE,
        "seconds": seconds,
        "mbits": list(MBITS),
        "arms": {
            name: {figure: [one[figure] for one in found] for figure in found[0]}
            for name, found in arms.items()
        },
    }


def table(result: Json) -> str:
    """Every arm: the stream as a whole, and the datagrams step by step."""
    heads = ["arm", "TCP Mbit/s", "deviation kbit/s", "before", "after"]
    rows = [[*heads, *(f"UDP of {mbit}" for mbit in result["mbits"])]]
    for name, arm in result["arms"].items():
        off = [arm[f"tcp_{part}_bps"] for part in ("deviation", "before", "after")]
        steps = [statistics.median(step) for step in zip(*arm["udp_step_bps"], strict=True)]
        rows.append(
            [
                name,
                f"{statistics.median(arm['tcp_bps']) / 1e6:.4f}",
                *(f"{statistics.median(one) / 1e3:.1f}" for one in off),
                *(f"{one / 1e6:.3f}" for one in steps),
            ]
        )
    rate, seconds = result["rate"] / 1e6, result["seconds"]
    title = f"{subject(result)}: {rate:g} Mbit/s for each of both, steps of {seconds:g} s; before "
    title += f"and after {BEFORE} of {len(result['mbits'])} steps; medians of the repeats"
    return "\n".join([title, *columns(rows)])
