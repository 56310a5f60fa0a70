# SPDX-License-Identifier: GPL-2.0-only
"""What two arms came to: a table, what differs, and what the tests themselves measured."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from selftests.arm import Outcome

RATE = re.compile(
    r"(\d+(?:\.\d+)?) ?((?:[KMG]?[Bb](?:it|ytes)?|calls|msg|pkts|packets)/s(?:ec)?)\b"
)
SKIPPED = re.compile(r"\bSKIP\b.*|\[SKIP\].*", re.IGNORECASE)
FAR = 2.0  # by this factor a rate is named; the arms share a host, whose speed varies


@dataclass
class Pair:
    """A test in both arms; the second is not run where the first did not pass."""

    name: str
    without: Outcome
    loaded: Outcome | None = None
    heeds_taint: bool = False

    @property
    def spoiled(self) -> bool:
        """Does it pass on the stock kernel, and not with the modules?"""
        if self.loaded is None or self.without.state != "pass":
            return False
        if self.loaded.complaints and not self.without.complaints:
            return True
        skips = self.loaded.state == "skip" and self.heeds_taint
        return self.loaded.state != "pass" and not skips

    @property
    def skips_more(self) -> list[str]:
        """Checks within it that were made without the modules only."""
        if self.loaded is None or self.loaded.state != "pass":
            return []
        before = set(SKIPPED.findall(self.without.log))
        return [line for line in SKIPPED.findall(self.loaded.log) if line not in before]

    def rates(self) -> list[tuple[str, float, float]]:
        """What it printed in both arms, the middle of each unit: (unit, without, with)."""
        if self.loaded is None:
            return []
        before, after = _rates(self.without.log), _rates(self.loaded.log)
        return [(unit, before[unit], after[unit]) for unit in before if unit in after]


def _rates(log: str) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for value, unit in RATE.findall(log):
        found.setdefault(unit, []).append(float(value))
    return {unit: median(values) for unit, values in found.items()}


def line(pair: Pair) -> str:
    """For people, as soon as it is known."""
    text = f"{pair.name}: without {_told(pair.without)}"
    if pair.loaded is not None:
        text += f", with {_told(pair.loaded)}"
    return text + ("  <-- passes without the modules only" if pair.spoiled else "")


def _told(outcome: Outcome) -> str:
    complained = ", the kernel complained" if outcome.complaints else ""
    return f"{outcome.state} ({outcome.seconds:.0f} s{complained})"


def report(title: str, pairs: Sequence[Pair]) -> str:
    """All of a kernel."""
    both = [pair for pair in pairs if pair.loaded is not None]
    counts = {state: sum(p.without.state == state for p in pairs) for state in _states(pairs)}
    passed = sum(p.loaded is not None and p.loaded.state == "pass" for p in pairs)
    lines = [
        title,
        "without the modules: " + ", ".join(f"{n} {state}" for state, n in counts.items()),
        f"with them: {passed} of the {counts.get('pass', 0)} that pass without"
        + (f", of which {len(both)} were run" if len(both) < counts.get("pass", 0) else ""),
        "",
    ]
    width = max(len(pair.name) for pair in pairs)
    lines.append(f"{'test':{width}}  without  with   pressed")
    for pair in pairs:
        loaded = pair.loaded
        cells = f"{loaded.state:5}  {loaded.pressed:.0%}" if loaded else "-"
        lines.append(f"{pair.name:{width}}  {pair.without.state:7}  {cells}".rstrip())
    lines += _section("passes without the modules only", (p.name for p in pairs if p.spoiled))
    lines += _section(
        "skips, in whole or in part, on a kernel that a module from outside has tainted",
        (p.name for p in pairs if p.heeds_taint),
    )
    lines += _section(
        "checks that were skipped with the modules only",
        (f"{p.name}: {text.strip()}" for p in pairs for text in p.skips_more),
    )
    lines += _section(
        f"rates that tests print, without and with (! where they differ {FAR:g} times or more)",
        (
            f"{p.name}: {before:g} and {after:g} {unit}{_far(before, after)}"
            for p in pairs
            for unit, before, after in p.rates()
        ),
    )
    lines += _section(
        "complaints of the kernel",
        (
            f"{p.name}, {arm}: {text}"
            for p in pairs
            for arm, outcome in (("without", p.without), ("with", p.loaded))
            if outcome
            for text in outcome.complaints
        ),
    )
    return "\n".join(lines) + "\n"


def _states(pairs: Sequence[Pair]) -> list[str]:
    return list(dict.fromkeys(["pass", *(p.without.state for p in pairs)]))


def _far(before: float, after: float) -> str:
    low, high = sorted((before, after))
    return " !" if high >= FAR * low else ""


def _section(head: str, found: Iterable[str]) -> list[str]:
    lines = [f"  {text}" for text in found]
    return ["", f"{head}:", *lines] if lines else []
