# SPDX-License-Identifier: GPL-2.0-only
"""A trace as a picture: panels one above the other, all of the same time, see trace.py."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from experiments.chart import INK, PALE, bare, save
from experiments.result import Json
from experiments.trace import ONE
from experiments.trace_table import labels, ranked, rates, reach, signals, table
from matplotlib.axes import Axes
from matplotlib.figure import Figure

PAUSE = 0.1  # so long without an event is drawn as nothing
STYLES = ("-", "--", ":", "-.")  # of CPUs
COLOURS = ("#0b6e99", "#d98324", "#7a5195", "#4c956c", "#b42318", "#57606a")


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
    draw_control(cpus, result, ["idle", "softirq"], "CPU, percent")
    for i, panel in enumerate(threads):
        draw_thread(panel, result, i)
    for panel in panels:
        shade(panel, result)
        bare(panel, "both", 0.6)
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
