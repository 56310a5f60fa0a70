# SPDX-License-Identifier: GPL-2.0-only
"""What each receiver got, stock against PacketFlow: bars of text, and a picture.

Both show the median over the repeats; the picture has the spread (minimum to
maximum) as error bars. The two stock arms are one bar. Of W1 it is the answers of the web
server. Beside that, and beside what receivers in a container got, is what an administrator
could get by hand for them; and, where it was measured, what PacketFlow gives if its drops are
made in the driver.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib
from experiments.arms import OFF
from experiments.result import Json
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

EXPLAINED = {
    "U1": "receivers that only receive",
    "U1w": "receivers that work on every packet",
    "W1": "a web server of nice 0 beside floods to nice 10",
    "C1": "receivers in a container",
    "C1-nat": "receivers in a container, behind NAT",
}
STOCK_COLOUR, OUR_COLOUR, INK, PALE = "#a9b1ba", "#0b6e99", "#24292f", "#d8dee4"
HAND_COLOUR, DRIVER_COLOUR = "#d98324", "#12394c"
IN_DRIVER = "all-xdp"  # the arm
TEXT_WIDTH = 46  # cells for what was sent


@dataclass(frozen=True)
class Bars:
    """One arm: kpps of each receiver, and of all together."""

    label: str
    colour: str
    low: list[float]
    median: list[float]
    high: list[float]


def bars(label: str, colour: str, result: Json, names: Sequence[str]) -> Bars:
    rows = [row for name in names for row in result["arms"][name]["received_pps"]]
    rows = [[*row, sum(row)] for row in rows]
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


def by_hand(result: Json) -> list[Bars]:
    """What others than the first were sent is dropped where the host first sees it."""
    return [bars("others dropped by hand", HAND_COLOUR, result, ["shed-all"])]


def in_driver(result: Json) -> list[Bars]:
    """What PacketFlow drops is dropped in the driver, where that was measured."""
    if IN_DRIVER not in result["arms"]:
        return []
    return [bars("dropped in the driver", DRIVER_COLOUR, result, [IN_DRIVER])]


def deepest(result: Json) -> Json:
    """Of a sweep the step at which most was sent, as an experiment of one load."""
    return {**result, "arms": result["steps"][-1]["arms"]}


def sent_kpps(result: Json) -> float:
    return statistics.median(result["arms"]["all"]["offered_pps"]) / 1e3


def title(result: Json) -> str:
    name = result["experiment"]
    return f"{name}: {EXPLAINED[name]}"


def answers(result: Json) -> list[tuple[str, str, list[float]]]:
    """Of W1 beside floods, kept alive: label, colour, and answers a second in every run."""
    arms = next(part["arms"] for part in result["parts"] if part["floods"])
    kinds = (
        ("stock kernel", STOCK_COLOUR, OFF),
        ("with PacketFlow", OUR_COLOUR, ["all"]),
        ("dropped in the driver", DRIVER_COLOUR, [IN_DRIVER]),
        ("floods dropped by hand", HAND_COLOUR, ["shed-all"]),
    )
    return [
        (label, colour, [value for name in names for value in arms[name]["answers_per_s"]])
        for label, colour, names in kinds
        if set(names) <= arms.keys()
    ]


def text(result: Json) -> str:
    """Bars of text."""
    if "parts" in result:
        return web_text(result)
    if "steps" in result:
        one = deepest(result)
        return flood_text(one, both(one) + by_hand(one))
    return flood_text(result, both(result) + in_driver(result))


def web_text(result: Json) -> str:
    """Answers a second."""
    found = [(label, statistics.median(values)) for label, _, values in answers(result)]
    most = max(value for _, value in found) or 1.0
    lines = [f"{title(result)}: answers a second", ""]
    for label, value in found:
        bar = "█" * round(value / most * TEXT_WIDTH)
        lines.append(f"{label:24}{bar:{TEXT_WIDTH}} {value:5.0f}/s")
    return "\n".join(lines)


def flood_text(result: Json, found: Sequence[Bars]) -> str:
    """Packets; a dot marks what was sent and not received."""
    sent, width = sent_kpps(result), max(len(one.label) for one in found) + 1
    lines = [f"{title(result)}; {sent:.0f} kpps sent to each", ""]
    heads = [*(f"nice {nice}" for nice in result["nices"]), "all"]
    for i, name in enumerate(heads):
        most = sent * (len(heads) - 1 if name == "all" else 1)
        for one in found:
            head = name if one.label.startswith("stock") else ""
            cells = min(round(one.median[i] / most * TEXT_WIDTH), TEXT_WIDTH)
            bar = "█" * cells + "·" * (TEXT_WIDTH - cells)
            lines.append(f"{head:8}{one.label:{width}}{bar} {one.median[i]:5.1f} kpps")
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


def bare(panel: Axes, lines: Literal["x", "y", "both"], width: float = 0.8) -> None:
    """Without a frame, but with lines across that axis."""
    panel.grid(axis=lines, color=PALE, linewidth=width)
    panel.set_axisbelow(True)
    panel.tick_params(length=0, colors=INK)
    for edge in ("top", "right", "left"):
        panel.spines[edge].set_visible(False)
    panel.spines["bottom"].set_color(PALE)


def picture(results: Sequence[Json], paths: Sequence[Path]) -> None:
    save(compose(results), paths)


def compose(results: Sequence[Json]) -> Figure:
    """One panel an experiment, each with a scale of its own: they are not sent alike."""
    width = max(6.2 * len(results), 9.0)
    figure = page(width)
    panels = figure.subplots(1, len(results), squeeze=False)
    for panel, result in zip(panels[0], results, strict=True):
        if "parts" in result:
            draw_answers(panel, result)
        elif "steps" in result:
            one = deepest(result)
            draw(panel, one, by_hand(one))
        else:
            draw(panel, result, in_driver(result))
    first = results[0]
    entitle(
        figure,
        "What is important keeps its packets under receive overload",
        f"Linux {first['version']}, {first['date'][:10]}. "
        "Medians; thin lines: smallest to largest.",
    )
    legend: dict[str, Artist] = {}
    for panel in panels[0]:
        handles, labels = panel.get_legend_handles_labels()
        legend |= dict(zip(labels, handles, strict=True))
    below: dict[str, Any] = {"loc": "lower center", "ncols": len(legend), "frameon": False}
    figure.legend(legend.values(), legend.keys(), **below)
    figure.subplots_adjust(left=0.8 / width, right=0.985, top=0.79, bottom=0.14, wspace=0.18)
    return figure


def draw_answers(panel: Axes, result: Json) -> None:
    draw_values(panel, answers(result), "{:.0f}")
    panel.set_title(title(result), loc="left", fontsize=12.5, color=INK, pad=10)
    panel.set_ylabel("answers a second")


def draw_values(panel: Axes, found: Sequence[tuple[str, str, list[float]]], form: str) -> None:
    """Bars with the spread of each: label, colour, and the value in every run."""
    for i, (_, colour, values) in enumerate(found):
        middle = statistics.median(values)
        panel.bar([i], [middle], 0.6, color=colour, zorder=2)
        off = [[middle - min(values)], [max(values) - middle]]
        panel.errorbar(
            [i], [middle], off, fmt="none", ecolor=INK, elinewidth=1, capsize=3, zorder=3
        )
        panel.annotate(
            form.format(middle),
            (i, max(values)),
            (0, 4),
            textcoords="offset points",
            ha="center",
            fontweight="bold" if colour == OUR_COLOUR else "normal",
        )
    panel.set_xticks(range(len(found)), [label.replace(" ", "\n", 1) for label, *_ in found])
    panel.set_ylim(0, max(max(values) for *_, values in found) * 1.18)
    bare(panel, "y")


def draw(panel: Axes, result: Json, beside: Sequence[Bars] = ()) -> None:
    sent, found = sent_kpps(result), [*both(result), *beside]
    width = 0.38 if len(found) == 2 else 0.29
    for k, one in enumerate(found):
        places = [i + (k - (len(found) - 1) / 2) * width for i in range(len(one.median))]
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
                fontsize=11 if len(found) == 2 else 9.5,
                fontweight="bold" if one.colour == OUR_COLOUR else "normal",
                bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"},
            )
    panel.axhline(sent, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1.5)
    panel.annotate(
        f"sent to each: {sent:.0f}",
        (len(result["nices"]) - 1, sent),  # over the last receiver, who has the least
        (0, 4),
        ha="center",
        textcoords="offset points",
        fontsize=9.5,
    )
    panel.set_title(title(result), loc="left", fontsize=12.5, color=INK, pad=10)
    heads = [*(f"nice {nice}" for nice in result["nices"]), "all together"]
    panel.set_xticks(range(len(heads)), heads)
    panel.set_ylabel("received, thousand packets a second")
    panel.set_ylim(0, max(sent, *(one.high[-1] for one in found)) * 1.18)
    panel.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    bare(panel, "y")
