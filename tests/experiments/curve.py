# SPDX-License-Identifier: GPL-2.0-only
"""S1 as a picture: what was received, and how large the buffer was, against the demand.

Medians over the repeats, with the spread (minimum to maximum) as error bars; the two
stock arms are one line.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.arms import OFF
from experiments.chart import INK, OUR_COLOUR, PALE, STOCK_COLOUR, entitle, page, save
from experiments.result import Json
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Of the arms beside stock, in their order; further ones begin again.
COLOURS = ("#d98324", OUR_COLOUR, "#7a5195", "#4c956c")


def lines(result: Json) -> dict[str, list[str]]:
    """The arms that make up each line, by its label."""
    names = [name for name in result["steps"][0]["arms"] if name not in OFF]
    return {"stock kernel": list(OFF), **{name: [name] for name in names}}


def values(step: Json, names: Sequence[str], figure: str) -> list[float]:
    """The receiver's figure in every run of these arms."""
    return [row[0] for name in names for row in step["arms"][name][figure]]


def draw(panel: Axes, result: Json, figure: str, unit: float) -> None:
    demands = [step["demand"] * 100 for step in result["steps"]]
    for i, (label, names) in enumerate(lines(result).items()):
        runs = [[value / unit for value in values(step, names, figure)] for step in result["steps"]]
        middle = [statistics.median(one) for one in runs]

        def off(
            pick: Callable[[list[float]], float],
            runs: list[list[float]] = runs,
            middle: list[float] = middle,
        ) -> list[float]:
            return [abs(pick(one) - at) for one, at in zip(runs, middle, strict=True)]

        panel.errorbar(
            demands,
            middle,
            [off(min), off(max)],
            label=label,
            color=COLOURS[(i - 1) % len(COLOURS)] if i else STOCK_COLOUR,
            linewidth=2,
            elinewidth=1,
            capsize=3,
            marker="o",
            markersize=5,
        )
    panel.set_xlabel("CPU that the packets need, percent", color=INK)
    panel.set_ylim(bottom=0)
    panel.grid(axis="y", color=PALE, linewidth=0.8, zorder=0)
    panel.tick_params(length=0, colors=INK)
    for edge in ("top", "right", "left"):
        panel.spines[edge].set_visible(False)
    panel.spines["bottom"].set_color(PALE)


def picture(result: Json, paths: Sequence[Path]) -> None:
    """Into every path by its suffix."""
    save(compose(result), paths)


def compose(result: Json) -> Figure:
    """Both panels."""
    figure = page(12.4)
    received, size = figure.subplots(1, 2)
    draw(received, result, "received_pps", 1e3)
    received.axhline(result["pps"] / 1e3, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    received.set_title("received, thousand packets a second", loc="left", fontsize=12.5)
    draw(size, result, "rcvbuf_bytes", 1024)
    size.set_title("receive buffer, KiB", loc="left", fontsize=12.5)
    entitle(
        figure,
        "Random arrivals at a receiver with more and more to do",
        f"Linux {result['version']}, {result['date'][:10]}. Medians; thin lines: smallest to "
        f"largest; dashed: {result['pps'] / 1e3:g} kpps sent.",
    )
    handles, labels = received.get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), frameon=False)
    figure.subplots_adjust(left=0.06, right=0.985, top=0.79, bottom=0.2, wspace=0.12)
    return figure
