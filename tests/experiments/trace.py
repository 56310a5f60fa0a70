# SPDX-License-Identifier: GPL-2.0-only
"""What the controllers see and do over time, in one arm: the load of U1, C1, W1, or C2.

The modules' tracepoints are recorded in the guest: packetflow:control, of every tick and
CPU, and packetflow:receiver, of every tick and thread that receives. Their fields are
taken by name, so that there may be more of them. What is printed as LEVEL.SHARE is a cut: who
is below the level is held at the floor, of who is on it so many of 65536 are shed. All other
shares are of 65536 too.

The answers of W1 and C2 are counted by the write calls of nginx, of which each is one.

JSON, every time in seconds since the sending began:

    experiment        "trace"
    kernel, version, clock, cpus, dilation, date
    load              "U1", "C1", "W1" or "C2"
    arm, set          the arm, and the settings changed below /proc/packetflow
    nices, pids       [receiver], nginx first
    pps, on, off      sent to each; seconds for which floods are on and off, 0: always on
    together          whether the first receiver's flow goes on and off too
    work              busy loops a packet
    seconds           for which was sent
    overwritten       events that found no room
    control           [event], its fields by name, cuts as LEVEL + SHARE / 65536
    cuts              names of the fields that are cuts
    receivers         [event], likewise
    received          [receiver][sample] [seconds, packets so far]; of nginx its answers
    received_pps      [receiver], over the measured period; of nginx its answers a second
    idle              share of the guest's CPUs
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from experiments import containers, services, u1, web
from experiments.arms import Arm
from experiments.measure import measure
from experiments.result import Json, heading
from experiments.settings import Early
from rig.guest import Guest
from rig.traffic import LIGHT, Flow

ABOUT = "what the controllers see and do over time, under the load of U1 or W1, also in containers"
ARM = "filter"
SECONDS = 2.0
SAMPLE_MS = 50  # of what is received
TRACING = "/sys/kernel/tracing"
EVENTS = f"{TRACING}/events/packetflow"
NAMES = ("control", "receiver")
BUFFER_KB = 16384
ONE = 65536
LINE = re.compile(r"^.*-\d+ +\[\d+\] +\S+ +(?P<at>\d+\.\d+): (?P<name>\w+): (?P<fields>.*)$")
FIELD = re.compile(r"(\w+)=(\d+)(?:\.(\d+))?(?=\s|$)")


@dataclass(frozen=True)
class Event:
    """One line of the trace."""

    name: str
    at: float  # seconds on the trace's clock
    fields: dict[str, float]
    cuts: frozenset[str]  # those that are


def events(text: str) -> Iterator[Event]:
    """All that the trace holds; fields that are no numbers are left out."""
    for line in text.splitlines():
        if found := LINE.match(line):
            fields, cuts = {}, set()
            for key, whole, share in FIELD.findall(found["fields"]):
                fields[key] = int(whole) + (int(share) / ONE if share else 0)
                if share:
                    cuts.add(key)
            yield Event(found["name"], float(found["at"]), fields, frozenset(cuts))


def overwritten(text: str) -> int:
    """Events that are missing, by the trace's own count."""
    found = re.search(r"entries-in-buffer/entries-written: (\d+)/(\d+)", text)
    return int(found[2]) - int(found[1]) if found else 0


@dataclass(frozen=True)
class Setup:
    """What is traced."""

    arm: str
    seconds: float
    pps: float
    nices: Sequence[int] = u1.U1.nices
    web: bool = False
    contained: bool = False  # the receivers, as in C1, or all, as in C2
    work: int = 0
    working: bool = False  # work is found out, as for U1w
    on: float = 0.0
    off: float = 0.0
    together: bool = False
    knobs: dict[str, str] = field(default_factory=dict)  # by file below /proc/packetflow


class Traced(Arm):
    """An arm with some knobs turned, and with its events recorded."""

    def __init__(self, name: str, knobs: dict[str, str], answering: bool) -> None:
        super().__init__(name)
        self.knobs, self.answering = knobs, answering
        self.text, self.answered, self.pids = "", "", [0]

    def started(self, guest: Guest, pids: Sequence[int]) -> None:
        super().started(guest, pids)
        self.pids = list(pids)
        for knob, value in self.knobs.items():
            guest.write(f"/proc/packetflow/{knob}", value)
        guest.write(f"{TRACING}/trace_clock", "mono")
        guest.write(f"{TRACING}/buffer_size_kb", str(BUFFER_KB))
        guest.write(f"{TRACING}/trace", "")
        self._enable(guest, "1")
        if self.answering:
            busy = str(guest.busy)
            self.counter = guest.spawn(["taskset", "-c", busy, "sh", "-c", counting(pids[0])])

    def early(self, guest: Guest, ports: Sequence[int]) -> Early:
        self._enable(guest, "0")
        self.text = guest.run(["cat", f"{TRACING}/trace"], timeout=120).out
        guest.write(f"{TRACING}/trace", "")
        if self.answering:
            self.counter.signal()
            self.answered = self.counter.wait().out
        return super().early(guest, ports)

    def _enable(self, guest: Guest, value: str) -> None:
        """Where there are any: not every arm has pf_filter."""
        for name in NAMES:
            path = f"{EVENTS}/{name}/enable"
            guest.run(f"[ ! -e {path} ] || echo {value} > {path}")


def counting(pid: int) -> str:
    """For the shell: every so often the time, and how many write calls the process has made."""
    return f"""\
while read -r up idle < /proc/uptime; do
  while read -r name count; do
    [ $name != syscw: ] || echo $up $count
  done < /proc/{pid}/io
  sleep 0.1
done
"""


def run(guest: Guest, setup: Setup, say: Callable[[str], None]) -> Json:
    """Trace it once."""
    traced = Traced(setup.arm, setup.knobs, setup.web)
    return (run_web if setup.web else run_u1)(guest, setup, traced, say)


def run_u1(guest: Guest, setup: Setup, traced: Traced, say: Callable[[str], None]) -> Json:
    work = setup.work
    if setup.working:
        work = u1.most_loops(guest, setup.pps * u1.CAPACITY, say)
    load = replace(
        u1.U1,
        pps=setup.pps,
        nices=setup.nices,
        ports=[u1.U1.ports[0] + i for i in range(len(setup.nices))],
        work=work,
        on=setup.on,
        off=setup.off,
        steady=0 if setup.together else 1,
        sample_ms=SAMPLE_MS,
    )
    say(f"trace: {setup.arm}, {setup.pps / 1e3:g} kpps to each, {work} loops a packet")
    with containers.routed(guest) if setup.contained else nullcontext(LIGHT) as tool:
        found = measure(guest, traced, load, tool, setup.seconds)
    assert found.sent and found.sent.start_ns is not None
    start = found.sent.start_ns / 1e9
    return {
        **result_json(guest, setup, traced, start),
        "nices": list(setup.nices),
        "work": work,
        "seconds": found.sent.seconds,
        "received": [counts(one.samples, start) for one in found.received],
        "received_pps": [round(one.received_pps, 1) for one in found.accounts],
        "idle": round(found.idle, 3),
    }


def run_web(guest: Guest, setup: Setup, traced: Traced, say: Callable[[str], None]) -> Json:
    services.spare(guest)
    flows = [Flow(port, setup.pps, setup.on, setup.off) for port in web.FLOODED]
    service = services.C2 if setup.contained else services.W1
    say(f"trace: {setup.arm}, {service.name} beside {setup.pps / 1e3:g} kpps each")
    found = web.measure(guest, traced, service, service.parts[0], round(setup.seconds), flows)
    assert found.sent and found.sent.start_ns is not None
    start = found.sent.start_ns / 1e9
    answered = [line.split() for line in traced.answered.splitlines()]
    answers = [(float(up) * 1e9, int(count)) for up, count in answered]
    return {
        **result_json(guest, setup, traced, start),
        "nices": [0, *[web.LOW] * len(flows)],
        "work": 0,
        "seconds": found.sent.seconds,
        "received": [
            counts(answers, start),
            *(counts(one.samples, start) for one in found.received),
        ],
        "received_pps": [round(pps, 1) for pps in (found.answers.per_s, *found.received_pps)],
        "p99_ms": round(found.answers.p99_ms, 3),
        "idle": round(found.idle, 3),
    }


def counts(samples: Iterable[tuple[float, int]], start: float) -> list[list[float]]:
    """Samples as they are kept."""
    return [[round(ns / 1e9 - start, 4), count] for ns, count in samples]


def loaded(setup: Setup) -> str:
    """The experiment whose load it is."""
    if setup.web:
        return "C2" if setup.contained else "W1"
    return "C1" if setup.contained else "U1"


def result_json(guest: Guest, setup: Setup, traced: Traced, start: float) -> Json:
    """What both loads have."""
    found = list(events(traced.text))

    def named(name: str) -> list[dict[str, float]]:
        return [
            {"at": round(one.at - start, 4), **{k: round(v, 5) for k, v in one.fields.items()}}
            for one in found
            if one.name == name
        ]

    return {
        **heading("trace", guest),
        "load": loaded(setup),
        "arm": setup.arm,
        "set": setup.knobs,
        "pids": traced.pids,
        "pps": setup.pps,
        "on": setup.on,
        "off": setup.off,
        "together": setup.together,
        "overwritten": overwritten(traced.text),
        "cuts": sorted({cut for one in found if one.name == "control" for cut in one.cuts}),
        "control": named("control"),
        "receivers": named("receiver"),
    }
