# SPDX-License-Identifier: GPL-2.0-only
"""What each receiver got, stock against PacketFlow: bars of text, and a picture.

Both show the median over the repeats; the picture has the spread (minimum to
maximum) as error bars. The two stock arms are one bar.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from experiments.arms import OFF
from experiments.result import Json
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

EXPLAINED = {
    "U1": "receivers that only receive",
    "U1w": "receivers that work on every packet",
}
STOCK_COLOUR, OUR_COLOUR, INK, PALE = "#a9b1ba", "#0b6e99", "#24292f", "#d8dee4"
TEXT_WIDTH = 46  # cells for what was sent


@dataclass(frozen=True)
class Bars:
    """One arm: kpps of each receiver."""

    label: str
    colour: str
    low: list[float]
    median: list[float]
    high: list[float]


def bars(label: str, colour: str, result: Json, names: Sequence[str]) -> Bars:
    rows = [row for name in names for row in result["arms"][name]["received_pps"]]
    columns = [[value / 1e3 for value in column] for column in zip(*rows, strict=True)]
    return Bars(
        label,
        colour,
        [min(column) for column in columns],
        [statistics.median(column) for column in columns],
        [max(column) for column in columns],
    )


def both(result: Json) -> list[Bars]:
    return [
        bars("stock kernel", STOCK_COLOUR, result, OFF),
        bars("with PacketFlow", OUR_COLOUR, result, ["all"]),
    ]


def sent_kpps(result: Json) -> float:
    return statistics.median(result["arms"]["all"]["offered_pps"]) / 1e3


def title(result: Json) -> str:
    name = result["experiment"]
    return f"{name}: {EXPLAINED[name]}"


def text(result: Json) -> str:
    """Bars of text; a dot marks what was sent and not received."""
    sent = sent_kpps(result)
    lines = [f"{title(result)}; {sent:.0f} kpps sent to each", ""]
    for i, nice in enumerate(result["nices"]):
        for one in both(result):
            head = f"nice {nice}" if one.label.startswith("stock") else ""
            cells = min(round(one.median[i] / sent * TEXT_WIDTH), TEXT_WIDTH)
            bar = "█" * cells + "·" * (TEXT_WIDTH - cells)
            lines.append(f"{head:8}{one.label:16}{bar} {one.median[i]:5.1f} kpps")
        lines.append("")
    return "\n".join(lines[:-1])


def page(width: float) -> Figure:
    """An empty one."""
    matplotlib.rcParams.update({"font.family": "DejaVu Sans", "font.size": 11, "text.color": INK})
    return Figure(figsize=(width, 5.5))


def entitle(figure: Figure, title: str, below: str) -> None:
    figure.suptitle(title, x=0.02, ha="left", fontsize=17, fontweight="bold")
    figure.text(0.02, 0.885, below, color="#57606a", fontsize=10.5)


def save(figure: Figure, paths: Sequence[Path]) -> None:
    """Into every path by its suffix."""
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=160)


def picture(results: Sequence[Json], paths: Sequence[Path]) -> None:
    save(compose(results), paths)


def compose(results: Sequence[Json]) -> Figure:
    """One panel an experiment, each with a scale of its own: they are not sent alike."""
    width = max(6.2 * len(results), 9.0)
    figure = page(width)
    panels = figure.subplots(1, len(results), squeeze=False)
    for panel, result in zip(panels[0], results, strict=True):
        draw(panel, result)
    panels[0][0].set_ylabel("received, thousand packets a second")
    first = results[0]
    entitle(
        figure,
        "Who gets the packets under receive overload",
        f"Linux {first['version']}, {first['tool']} receivers, {first['date'][:10]}. "
        "Medians; thin lines: smallest to largest.",
    )
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=2, frameon=False)
    figure.subplots_adjust(left=0.7 / width, right=0.985, top=0.79, bottom=0.14, wspace=0.1)
    return figure


def draw(panel: Axes, result: Json) -> None:
    sent, width = sent_kpps(result), 0.38
    for side, one in zip((-1, 1), both(result), strict=True):
        places = [i + side * width / 2 for i in range(len(one.median))]
        errors = [
            [median - low for median, low in zip(one.median, one.low, strict=True)],
            [high - median for median, high in zip(one.median, one.high, strict=True)],
        ]
        panel.bar(places, one.median, width * 0.94, color=one.colour, label=one.label, zorder=2)
        panel.errorbar(
            places, one.median, errors, fmt="none", ecolor=INK, elinewidth=1, capsize=3, zorder=3
        )
        for place, median, high in zip(places, one.median, one.high, strict=True):
            panel.annotate(
                f"{median:.1f}",
                (place, high),
                (0, 4),
                textcoords="offset points",
                ha="center",
                fontweight="bold" if side > 0 else "normal",
                bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"},
            )
    panel.axhline(sent, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1.5)
    panel.annotate(
        f"sent to each: {sent:.0f}",
        (1, sent),
        (-2, 4),
        ha="right",
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        fontsize=9.5,
    )
    panel.set_title(title(result), loc="left", fontsize=12.5, color=INK, pad=10)
    panel.set_xticks(range(len(result["nices"])), [f"nice {nice}" for nice in result["nices"]])
    panel.set_ylim(0, sent * 1.18)
    panel.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    panel.set_axisbelow(True)
    panel.grid(axis="y", color=PALE, linewidth=0.8)
    panel.tick_params(length=0, colors=INK)
    for edge in ("top", "right", "left"):
        panel.spines[edge].set_visible(False)
    panel.spines["bottom"].set_color(PALE)
