# SPDX-License-Identifier: GPL-2.0-only
"""What the controllers see and do over time, in one arm: the load of U1, or of W1.

The modules' tracepoints are recorded in the guest: packetflow:control, of every tick and
processor, and packetflow:receiver, of every tick and thread that receives. Their fields are
taken by name, so that there may be more of them. What is printed as LEVEL.SHARE is a cut: who
is below the level is held at the floor, of who is on it so many of 65536 are shed. All other
shares are of 65536 too.

A cut's *reach* is told in receivers, from the least important up: 1.5 where all is shed of the
last, and half of the one before. Whom the trace does not show does not count.

W1's answers are counted by the write calls of nginx, of which each is one.

JSON, every time in seconds since the sending began:

    experiment        "trace"
    kernel, version, clock, cpus, dilation, date
    load              "U1" or "W1"
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
    idle              share of the guest's processors
"""

from __future__ import annotations

import itertools
import re
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments import containers, services, u1, web
from experiments.arms import Arm
from experiments.chart import INK, PALE, bare, save
from experiments.measure import measure
from experiments.result import Json, heading, subject
from experiments.settings import Early
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rig.guest import OTHERS, Guest
from rig.traffic import LIGHT, Flow

ABOUT = "what the controllers see and do over time, under the load of U1 or W1"
ARM = "filter"
SECONDS = 2.0
SAMPLE_MS = 50  # of what is received
STEP = 0.2  # seconds of a line of the table
PAUSE = 0.1  # so long without an event is drawn as nothing
TRACING = "/sys/kernel/tracing"
EVENTS = f"{TRACING}/events/packetflow"
NAMES = ("control", "receiver")
BUFFER_KB = 16384
ONE = 65536
# Of packetflow:control, what is no signal; nor is what is told in microseconds.
KNOWN = {"at", "cpu", "idle", "softirq", "asking"}
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
    contained: bool = False  # the receivers, as in C1
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
            busy = str(guest.cpus + OTHERS - 1)
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
    return (run_w1 if setup.web else run_u1)(guest, setup, traced, say)


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


def run_w1(guest: Guest, setup: Setup, traced: Traced, say: Callable[[str], None]) -> Json:
    services.spare(guest)
    flows = [Flow(port, setup.pps, setup.on, setup.off) for port in web.FLOODED]
    say(f"trace: {setup.arm}, W1 beside {setup.pps / 1e3:g} kpps each")
    found = web.measure(
        guest, traced, services.W1, services.W1.parts[0], round(setup.seconds), flows
    )
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
        "load": "W1" if setup.web else "U1",
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


# What is shown of it


def reach(cut: float, ranks: Iterable[int]) -> float:
    """How many receivers it sheds, of these ranks; a level has two to a rank, the upper for who
    is elected."""
    level, share = int(cut), cut % 1
    passed = 0.0
    for rank in ranks:
        if level > 2 * rank + 1:
            passed += 1
        elif level >= 2 * rank:
            passed += share
    return passed


def ranks(result: Json) -> dict[int, int]:
    """Each process that was seen to receive, and the rank that it mostly had."""
    seen: dict[int, list[float]] = defaultdict(list)
    for one in result["receivers"]:
        seen[int(one["pid"])].append(one["rank"])
    return {pid: int(max(set(had), key=had.count)) for pid, had in seen.items()}


def ranked(result: Json) -> list[int]:
    """The receivers' ranks: as seen; else as their nice level has it among those seen."""
    seen = ranks(result)
    return [seen[pid] for pid in result["pids"] if pid in seen]


def signals(result: Json) -> list[str]:
    """Fields of the control events that are shares of something, and not known otherwise."""
    most: dict[str, float] = {}
    for one in result["control"]:
        for name, value in one.items():
            most[name] = max(most.get(name, 0.0), value)
    apart = KNOWN | set(result["cuts"])
    return [
        name
        for name, value in most.items()
        if name not in apart and not name.endswith("_us") and value <= ONE
    ]


def others(result: Json) -> list[str]:
    """Further fields of the control events."""
    apart = {"at", "cpu", "idle", "softirq", *result["cuts"]}
    first = result["control"][0] if result["control"] else {}
    return [name for name in first if name not in apart]


def labels(result: Json) -> list[str]:
    """Each receiver's."""
    names = [f"nice {nice}" for nice in result["nices"]]
    if result["load"] == "W1":
        names[0] = "nginx"
    return names


def rates(samples: Sequence[Sequence[float]]) -> list[tuple[float, float, float]]:
    """(from, to, a second) of each gap between samples."""
    return [
        (a[0], b[0], (b[1] - a[1]) / (b[0] - a[0]))
        for a, b in itertools.pairwise(samples)
        if b[0] > a[0]
    ]


def between(samples: Sequence[Sequence[float]], begin: float, end: float) -> float:
    """A second in that time, each gap by its share of it."""
    return sum(rate * max(0.0, min(end, b) - max(begin, a)) for a, b, rate in rates(samples)) / (
        end - begin
    )


def percent(rows: Sequence[dict[str, float]], name: str) -> str:
    return f"{fmean(row[name] for row in rows) * 100 / ONE:3.0f}" if rows else "  -"


def table(result: Json) -> str:
    """One line for every STEP."""
    title = f"{subject(result)}: {result['load']}, {result['arm']}"
    title += "".join(f", {knob}={value}" for knob, value in result["set"].items())
    title += f", {result['pps'] / 1e3:g} kpps to each"
    if result["off"]:
        title += f", {'all' if result['together'] else 'floods'} on for {result['on']:g} s "
        title += f"and off for {result['off']:g} s"
    got = "/".join(f"{pps / 1e3:.1f}" for pps in result["received_pps"])
    title += f"; received {got} kpps in all, {result['idle']:.0%} idle"
    if result["overwritten"]:
        title += f"; {result['overwritten']} events are missing"
    heads = ", ".join(labels(result))
    below = f"seconds | kpps of {heads} | by CPU: idle, softirq percent; "
    below += f"cuts as LEVEL.SHARE (reach in receivers); {', '.join(others(result))} | "
    below += "by thread: run, wait, sleep percent @CPU"
    return "\n".join([title, below, *lines(result)])


def lines(result: Json) -> Iterator[str]:
    step = 0
    control, threads = binned(result["control"], "cpu"), binned(result["receivers"], "pid")
    names = dict(zip(result["pids"], labels(result), strict=True))
    all_ranks = ranked(result)
    while step * STEP < result["seconds"]:
        begin = step * STEP
        kpps = (between(one, begin, begin + STEP) / 1e3 for one in result["received"])
        parts = [f"{begin:5.1f} | {' '.join(f'{one:5.2f}' for one in kpps)}"]
        for (_, cpu), rows in sorted(one for one in control.items() if one[0][0] == step):
            parts.append(of_cpu(result, cpu, rows, all_ranks))
        for (_, pid), rows in sorted(one for one in threads.items() if one[0][0] == step):
            sleep = ONE - fmean(row["run"] + row["wait"] for row in rows)
            parts.append(
                f"{names.get(pid, f'pid {pid}')} r{percent(rows, 'run')} w{percent(rows, 'wait')} "
                f"s{max(sleep, 0) * 100 / ONE:3.0f} @{fmean(row['cpu'] for row in rows):.1f}"
            )
        yield " | ".join(parts)
        step += 1


def of_cpu(result: Json, cpu: int, rows: Sequence[dict[str, float]], all_ranks: list[int]) -> str:
    """One processor's part of a line."""
    text = f"c{cpu} idle{percent(rows, 'idle')} sirq{percent(rows, 'softirq')}"
    for cut in result["cuts"]:
        at = rows[-1][cut]
        text += f" {cut} {int(at)}.{round(at % 1 * ONE):05d} ({reach(at, all_ranks):.2f})"
    for name in others(result):
        text += f" {name} {fmean(row.get(name, 0) for row in rows):.0f}"
    return text


def binned(rows: Sequence[dict[str, float]], key: str) -> dict[tuple[int, int], list[Any]]:
    """By step, and what the key is."""
    found: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for row in rows:
        found[int(row["at"] // STEP), int(row[key])].append(row)
    return found


# As a picture


def picture(result: Json, paths: Sequence[Path]) -> None:
    """Into every path by its suffix."""
    if paths:
        save(compose(result), paths)


def compose(result: Json) -> Figure:
    """One panel above the other, all of the same time."""
    count = len(result["pids"])
    heights = [2.4, 1.8, 1.8, 1.8, *[1.0] * count]
    figure = Figure(figsize=(12.4, 1.4 + sum(heights) + 0.25 * len(heights)), layout="constrained")
    panels = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
    received, cuts, signal, cpus, *threads = panels
    draw_received(received, result)
    draw_cuts(cuts, result)
    draw_control(signal, result, signals(result), "signals, percent")
    draw_control(cpus, result, ["idle", "softirq"], "processor, percent")
    for i, panel in enumerate(threads):
        draw_thread(panel, result, i)
    for panel in panels:
        shade(panel, result)
        panel.grid(axis="both", color=PALE, linewidth=0.6)
        bare(panel)
        panel.set_ylim(bottom=0)
    panels[-1].set_xlim(0, result["seconds"])
    panels[-1].set_xlabel("seconds since the sending began")
    title = "\n".join(textwrap.wrap(table(result).splitlines()[0], 150))
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=INK)
    return figure


def shade(panel: Axes, result: Json) -> None:
    """While the floods are on, where they go off."""
    begin = 0.0
    while result["off"] and begin < result["seconds"]:
        panel.axvspan(begin, begin + result["on"], color=PALE, alpha=0.4, linewidth=0, zorder=-1)
        begin += result["on"] + result["off"]


def legend(panel: Axes) -> None:
    if panel.get_legend_handles_labels()[0]:
        panel.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), fontsize=9)


def draw_received(panel: Axes, result: Json) -> None:
    for i, (label, samples) in enumerate(zip(labels(result), result["received"], strict=True)):
        found = rates(samples)
        at = [(a + b) / 2 for a, b, _ in found]
        panel.plot(
            at, [rate / 1e3 for *_, rate in found], color=COLOURS[i % len(COLOURS)], label=label
        )
    panel.axhline(result["pps"] / 1e3, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    panel.set_title("received, thousand a second", loc="left", fontsize=10)
    legend(panel)


def whole(rows: Sequence[dict[str, float]]) -> Iterator[dict[str, float]]:
    """With an empty row wherever nothing was recorded for a while, which breaks a line."""
    last = None
    for row in rows:
        if last is not None and row["at"] - last > PAUSE:
            yield dict.fromkeys(row, float("nan"))
        yield row
        last = row["at"]


def by_cpu(result: Json) -> dict[int, list[dict[str, float]]]:
    found: dict[int, list[dict[str, float]]] = defaultdict(list)
    for row in result["control"]:
        found[int(row["cpu"])].append(row)
    return {cpu: list(whole(rows)) for cpu, rows in sorted(found.items())}


STYLES = ("-", "--", ":", "-.")  # of processors
COLOURS = ("#0b6e99", "#d98324", "#7a5195", "#4c956c", "#b42318", "#57606a")


def draw_cuts(panel: Axes, result: Json) -> None:
    all_ranks = ranked(result)
    for style, (cpu, rows) in zip(
        STYLES * len(result["control"]), by_cpu(result).items(), strict=False
    ):
        for colour, cut in zip(COLOURS, result["cuts"], strict=False):
            panel.plot(
                [row["at"] for row in rows],
                [reach(row[cut], all_ranks) if row[cut] == row[cut] else row[cut] for row in rows],
                style, color=colour, label=f"{cut}, CPU {cpu}",
            )  # fmt: skip
    panel.set_title("how many receivers the cuts shed, the last first", loc="left", fontsize=10)
    panel.set_ylim(0, max(len(all_ranks), 1))
    legend(panel)


def draw_control(panel: Axes, result: Json, names: Sequence[str], title: str) -> None:
    """Fields of the control events, as shares."""
    for style, (cpu, rows) in zip(
        STYLES * len(result["control"]), by_cpu(result).items(), strict=False
    ):
        for colour, name in zip(COLOURS, names, strict=False):
            panel.plot(
                [row["at"] for row in rows],
                [row.get(name, float("nan")) * 100 / ONE for row in rows],
                style, color=colour, label=f"{name}, CPU {cpu}", linewidth=1,
            )  # fmt: skip
    panel.set_title(title, loc="left", fontsize=10)
    panel.set_ylim(0, 100)
    legend(panel)


def draw_thread(panel: Axes, result: Json, i: int) -> None:
    """What one receiver does with its time."""
    pid = result["pids"][i]
    rows = list(whole([row for row in result["receivers"] if row["pid"] == pid]))
    at = [row["at"] for row in rows]
    run = [row["run"] * 100 / ONE for row in rows]
    wait = [row["wait"] * 100 / ONE for row in rows]
    if rows:
        panel.stackplot(
            at, run, wait, labels=["runs", "waits"], colors=["#4c956c", "#d98324"], linewidth=0
        )
    panel.set_title(f"{labels(result)[i]}: runs, waits, sleeps", loc="left", fontsize=10)
    panel.set_ylim(0, 100)
    legend(panel)
