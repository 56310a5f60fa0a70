# SPDX-License-Identifier: GPL-2.0-only
"""onset: what the first receiver loses until the suite has found out.

The receivers of U1 are sent all that overloads the CPU, twice, with a calm in between: of
each of these onsets, how long it took from the first packet that the first receiver lost until it
lost no more than BEARABLE over SETTLED, and how many it had lost by then. And then floods that go
on and off, half of the time each, beside a first receiver that is sent its packets steadily: how
many it lost in all. So short an overload may be over before anything is done.

Losses are told by sequence numbers, and times by when a packet was due: what waits somewhere, or a
receiver that does not get to run, hides nothing. Samples of the receivers are SAMPLE_MS apart, and
no time is told more exactly.

JSON, every list of receivers in their order of priority, and what is in arm_json() of result.py:

    experiment, kernel, version, clock, cpus, dilation, date, tool
    nices             [receiver]
    pps               sent to each receiver
    steps             in this order: the onsets, then the periods, shortest first, each with
      period            seconds; 0: the onsets
      on, off           seconds of either
      arms              by name, as in result.py, and
        lost              [repeat], of the first receiver in all, as a share of what it was sent
        of the onsets
        before_ms         [repeat][onset], from its beginning to the first loss
        settled_ms        [repeat][onset], from there until it was bearable; null: never was
        lost_until        [repeat][onset], packets lost by then; null likewise
        lost_of_onset     [repeat][onset], packets
"""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from experiments import runner, u1
from experiments.arms import arms
from experiments.measure import TAIL, WARM_UP, Load, Run, measure
from experiments.result import Json, arm_json, columns, heading, largest_gap, spread, subject
from rig.guest import Guest
from rig.traffic import LIGHT, Sample

ABOUT = "U1 twice with a calm in between, and floods that go on and off: what the first loses"
ARMS = "stock,filter,all"
ONSETS, ON, CALM = 2, 2.0, 1.5  # seconds of either
PERIODS = (0.1, 0.3, 1.0, 3.0, 10.0)  # seconds
SECONDS = 6.0  # of each of these, or two of its periods where they are longer
SAMPLE_MS = 10
BEARABLE, SETTLED = 0.01, 0.1  # share, seconds


@dataclass(frozen=True)
class Onset:
    """Of the first receiver; None where its loss never was bearable again."""

    before_ms: float | None  # None: it lost nothing
    settled_ms: float | None
    lost_until: float | None
    lost: float


class Losses:
    """How many packets a receiver had lost of the first so many that it was sent."""

    def __init__(self, seen: Sequence[Sample], sent: int, received: int) -> None:
        points = {0: 0}
        for one in seen:
            # A signal may come between the one counter and the other.
            points[one.next_seq] = max(0, one.next_seq - one.received)
        points[max(sent, max(points))] = sent - received
        self.at = sorted(points)
        self.lost = [points[at] for at in self.at]

    def of(self, packets: float) -> float:
        """Between samples the losses are taken for even."""
        i = bisect.bisect_left(self.at, packets)
        if i == 0 or i == len(self.at):
            return self.lost[min(i, len(self.at) - 1)]
        part = (packets - self.at[i - 1]) / (self.at[i] - self.at[i - 1])
        return self.lost[i - 1] + part * (self.lost[i] - self.lost[i - 1])


def onset(losses: Losses, pps: float, begin: float, end: float) -> Onset:
    """Of the packets from one number to another, which were due at that rate."""
    grain = pps * SAMPLE_MS / 1e3
    steps = int((end - begin) / grain)
    lost = [losses.of(begin + i * grain) for i in range(steps + 1)]
    in_all = losses.of(end) - lost[0]
    first = next((i for i in range(steps) if lost[i + 1] - lost[i] >= 1), None)
    if first is None:
        return Onset(None, 0.0, 0.0, in_all)
    over = round(SETTLED * 1e3 / SAMPLE_MS)
    for i in range(first, steps + 1 - over):
        if lost[i + over] - lost[i] <= BEARABLE * over * grain:
            until = lost[i] - lost[first]
            return Onset(first * SAMPLE_MS, (i - first) * SAMPLE_MS, until, in_all)
    return Onset(first * SAMPLE_MS, None, None, in_all)


def onsets(run: Run, load: Load) -> list[Onset]:
    """Each of a run, where the first receiver's flow goes on and off."""
    first = run.accounts[0]
    losses = Losses(run.received[0].seen, first.sent, first.received)
    each = load.pps * load.on
    return [
        onset(losses, load.pps, i * each, min((i + 1) * each, first.sent)) for i in range(ONSETS)
    ]


@dataclass(frozen=True)
class Step:
    """The onsets, or one period: every arm, so often."""

    period: float
    load: Load
    runs: Mapping[str, Sequence[Run]]


def loads(pps: float) -> list[tuple[float, Load]]:
    """By period."""
    load = replace(u1.U1, pps=pps, sample_ms=SAMPLE_MS)
    pulsed = [(one, replace(load, on=one / 2, off=one / 2, steady=1)) for one in PERIODS]
    return [(0.0, replace(load, on=ON, off=CALM)), *pulsed]


def run(
    guest: Guest,
    names: Sequence[str],
    repeats: int,
    seconds: float,
    pps: float,
    say: Callable[[str], None],
) -> Json:
    """Run every arm so often at the onsets and at each period, and give the result."""
    if not guest.wired:
        raise SystemExit("onset: a sender that sleeps is not on time")
    chosen = arms(names)
    steps = []
    for period, load in loads(pps):
        say(f"onset: {described(period)}")
        lasts = max(seconds, 2 * period) if period else ONSETS * ON + (ONSETS - 1) * CALM

        def measured(arm: runner.Arm, load: Load = load, lasts: float = lasts) -> Run:
            return measure(guest, arm, load, LIGHT, lasts - WARM_UP - TAIL)

        runs = runner.interleaved(chosen, repeats, measured, told, say)
        steps.append(Step(period, load, runs))
    return result_json(guest, pps, steps)


def share_lost(one: Run) -> float:
    first = one.accounts[0]
    return 1 - first.received / first.sent


def told(one: Run) -> str:
    return f"{runner.told(one)}, the first lost {share_lost(one):.1%}"


def described(period: float) -> str:
    if not period:
        return f"{ONSETS} onsets of {ON:g} s"
    return f"floods on and off every {period:g} s"


def result_json(guest: Guest, pps: float, steps: Sequence[Step]) -> Json:
    return {
        **heading("onset", guest),
        "tool": LIGHT.name,
        "nices": list(u1.U1.nices),
        "pps": pps,
        "steps": [
            {
                "period": step.period,
                "on": step.load.on,
                "off": step.load.off,
                "arms": {name: step_json(step, done) for name, done in step.runs.items()},
            }
            for step in steps
        ],
    }


def step_json(step: Step, runs: Sequence[Run]) -> Json:
    """One arm's runs of a step."""
    found = {**arm_json(runs), "lost": [round(share_lost(one), 5) for one in runs]}
    if step.period:
        return found
    each = [onsets(one, step.load) for one in runs]

    def of(figure: Callable[[Onset], float | None]) -> list[list[float | None]]:
        rows = [[figure(one) for one in row] for row in each]
        return [[None if one is None else round(one, 1) for one in row] for row in rows]

    return {
        **found,
        "before_ms": of(lambda one: one.before_ms),
        "settled_ms": of(lambda one: one.settled_ms),
        "lost_until": of(lambda one: one.lost_until),
        "lost_of_onset": of(lambda one: one.lost),
    }


def middle(values: Sequence[float | None], unit: str = "") -> str:
    """The median, and the least and the greatest, "never" being more than any."""
    ordered = sorted(float("inf") if one is None else one for one in values)

    def text(value: float) -> str:
        return "never" if value == float("inf") else f"{value:.0f}{unit}"

    at = text(statistics.median_high(ordered))
    return at if ordered[0] == ordered[-1] else f"{at} ({text(ordered[0])}-{text(ordered[-1])})"


def table(result: Json) -> str:
    """The onsets, and then the periods."""
    first, *periods = result["steps"]
    heads = ["arm", "onset", "ms until it loses", "ms until it is bearable", "lost by then"]
    rows = [[*heads, "lost of the onset", "unaccounted"]]
    for name, arm in first["arms"].items():
        for i in range(ONSETS):
            rows.append(
                [
                    name,
                    f"{i + 1}",
                    *(
                        middle([row[i] for row in arm[figure]])
                        for figure in ("before_ms", "settled_ms", "lost_until", "lost_of_onset")
                    ),
                    f"{largest_gap(arm):+.2%}",
                ]
            )
    title = f"{subject(result)}, {result['tool']}: {result['pps'] / 1e3:g} kpps to each, "
    title += f"{described(0)} with {first['off']:g} s of calm in between; of the first receiver: "
    title += "packets, median (minimum-maximum) of the repeats"
    heads = ["arm", "floods on and off every", "the first loses", "of it at the socket", "early"]
    below = [[*heads, *(f"nice {nice}" for nice in result["nices"]), "unaccounted"]]
    for step in periods:
        for name, arm in step["arms"].items():
            below.append(
                [
                    name,
                    f"{step['period']:g} s",
                    percents(arm["lost"]),
                    *(of_first(arm, kind) for kind in ("socket_drops_pps", "early_drops_pps")),
                    *map(spread, zip(*arm["received_pps"], strict=True)),
                    f"{largest_gap(arm):+.2%}",
                ]
            )
    said = "floods that go on and off beside a first that is sent its packets steadily; kpps"
    return "\n".join([title, *columns(rows), said, *columns(below)])


def percents(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2%} ({min(values):.2%}-{max(values):.2%})"


def of_first(arm: Json, kind: str) -> str:
    """A share of what it was sent."""
    return f"{statistics.median(row[0] for row in arm[kind]) / arm['offered_pps'][0]:.2%}"
