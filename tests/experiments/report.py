# SPDX-License-Identifier: GPL-2.0-only
"""One page of all results in a directory: pictures, tables, and how each was made.

The page is a single file, for the browser and for paper. A result that could not be had
stands in it as failed, with the reason.
"""

from __future__ import annotations

import html
import io
import itertools
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from experiments import cost, curve, flat, router, shares, show, web
from experiments.arms import OFF
from experiments.chart import INK, OUR_COLOUR, STOCK_COLOUR, bare, page
from experiments.result import Json, told_cpus
from matplotlib.axes import Axes
from matplotlib.figure import Figure

NAME = "index.html"
RECEIVERS = (OUR_COLOUR, "#5fa8c9", "#b9d9e8", "#d8dee4")  # in their order of priority
LINES = (STOCK_COLOUR, OUR_COLOUR, "#d98324", "#7a5195", "#4c956c", "#c44536")

# What the papers report of the same experiment, to stand beside ours.
PAPERS = {
    "U1": "In the paper all receivers of the original system got the same; with filter and "
    "scheduler the most important one got about 2000 packets/s (14 %) more.",
    "U1-drops": "In the paper 22.4 to 22.7 thousand packets/s and receiver were dropped at the "
    "sockets of the original system. With the filter none were, and 20.4 to 20.7 early.",
    "T1": "In the paper the scheduler took 7 % off the time of the most important receiver and "
    "added 25 ms to the least; the filter changed nothing.",
    "M1": "In the paper the filter took 30 % off the time, both modules 36 %.",
    "M2": "In the paper the rate rose by 10 %.",
    "B1": "In the paper all receivers got more, in their order, and all buffers grew to their "
    "bounds.",
    "P1": "In the paper filter and both stay above the original system at every rate.",
    "L1": "In the paper (Eclipse/BSD) what is received stays at 5700 packets/s, where FreeBSD's "
    "collapses.",
    "V1": "In the paper (Eclipse/BSD) nothing is lost below saturation; beyond, each receives its "
    "share, and all together 81 % of their best with equal shares, 89 % with 97/1/1/1.",
    "N1": "In the paper its scheduler took 1.7 to 4.8 % of the CPU at 1 to 35 Mbit/s, IMQ "
    "14.3 to 18.8 %: a ratio of 0.11 to 0.28.",
    "N2": "In the paper the stream had 4.978 Mbit/s with the scheduler, deviation 43.8 kbit/s, and "
    "4.138 with IMQ, deviation 1432.",
    "N3": "In the paper the mean of all sizes is 68.1 Mbit/s for TCP with the scheduler, 65.6 with "
    "IMQ, and 36.2 and 35.2 for datagrams.",
    "S1": "In the paper no buffer overflowed, at 16.7 % less throughput, where the original "
    "system lost 88.2 %.",
}

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #24292f; max-width: 74rem;
  margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.9rem; margin-bottom: 0 } h2 { margin-top: 3rem; font-size: 1.3rem }
p.made, p.paper { color: #57606a } svg { max-width: 100%; height: auto }
pre { font: 11px/1.45 ui-monospace, monospace; overflow-x: auto; background: #f6f8fa;
  padding: .8rem; border-radius: 6px }
.failed { color: #b42318; font-weight: bold }
nav a { margin-right: .9rem }
@page { size: A4 landscape; margin: 12mm }
@media print { body { max-width: none; margin: 0 } nav { display: none }
  section { break-inside: avoid } svg { max-height: 85mm } h2 { margin: 0 }
  pre { font-size: 7pt; white-space: pre; overflow: visible } }
"""


def write(directory: Path) -> Path:
    """Make the page of all results there, and of each a list of its numbers; gives the page's
    path."""
    paths = sorted(directory.glob("*.json"))
    results = [json.loads(path.read_text()) for path in paths]
    for result, path in zip(results, paths, strict=True):
        path.with_suffix(".csv").write_text(flat.text(result))
    path = directory / NAME
    path.write_text(text(results))
    return path


def text(results: Sequence[Json]) -> str:
    found = sorted(results, key=place)
    links = " ".join(f'<a href="#{anchor(one)}">{title(one)}</a>' for one in found)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>PacketFlow: measured</title><style>{STYLE}</style></head><body>"
        "<h1>PacketFlow: measured</h1>"
        '<p class="made">Medians of the repeats, thin lines from the least to the greatest. '
        "Both stock arms are the same system: what differs between them is noise. Rates belong "
        f"to the machine, ratios count.</p><nav>{links}</nav>"
        + "\n".join(section(one) for one in found)
        + "</body></html>\n"
    )


def place(result: Json) -> tuple[int, str, str]:
    """U, T and the others in the papers' order, and their kernels."""
    order = [
        "U1",
        "U1w",
        "U1-drops",
        "T1",
        "T1c",
        "M1",
        "M2",
        "B1",
        "P1",
        "onset",
        "H1",
        "S1",
        "S1-5",
        "S1-10",
    ]
    order += ["L1", "V1", "R1", "R2", "W1", "D1", "K1", "E1", "C1", "C1-nat", "C2"]
    order += ["N1", "N2", "N3"]
    name = result["experiment"]
    return order.index(name) if name in order else len(order), name, result["kernel"]


def title(result: Json) -> str:
    return f"{result['experiment']}, {result['kernel']}{told_cpus(result)}"


def anchor(result: Json) -> str:
    return title(result).replace(", ", "-").replace(" ", "-")


def section(result: Json) -> str:
    """One result."""
    parts = [f'<section id="{anchor(result)}"><h2>{html.escape(title(result))}</h2>']
    if "failed" in result:
        reason = html.escape(result["failed"])
        parts.append(f'<p class="failed">failed</p><pre>{reason}</pre>')
    else:
        made = f"Linux {result['version']}, {result['date'][:10]}"
        if result.get("clock") == "instructions":
            made += "; the clock counts the guest's instructions"
        if "host" in result:
            made += f"; on {result['host']}"
        parts.append(f'<p class="made">{html.escape(made)}</p>')
        if figure := drawn(result):
            parts.append(svg(figure))
        if result["experiment"] in PAPERS:
            parts.append(f'<p class="paper">{html.escape(PAPERS[result["experiment"]])}</p>')
        parts.append(f"<pre>{html.escape(show.table(result))}</pre>")
        for arm, reason in result.get("failed_arms", {}).items():
            parts.append(f'<p class="failed">{html.escape(arm)}: failed</p>')
            parts.append(f"<pre>{html.escape(reason)}</pre>")
    if "command" in result:
        parts.append(f"<pre>{html.escape(result['command'])}</pre>")
    parts.append("</section>")
    return "\n".join(parts)


def svg(figure: Figure) -> str:
    """The picture as part of a page."""
    made = io.StringIO()
    figure.savefig(made, format="svg", bbox_inches="tight")
    return made.getvalue()[made.getvalue().index("<svg") :]


def drawn(result: Json) -> Figure | None:
    """The picture that belongs to it."""
    if result["experiment"] == "S1":
        return curve.compose(result)
    if result["experiment"] == "onset":
        return onsets(result)
    if result["experiment"] == "V1":
        return weighted(result)
    if result["experiment"] in router.EXPERIMENTS:
        return routed(result)
    if result["experiment"] == "N2":
        return steadiness(result)
    if "steps" in result:
        return curves(result)
    if "parts" in result:
        return answered(result)
    if "instructions_per_packet" in result:
        return costs(result)
    if "arms" not in result:
        return None
    arm = next(iter(result["arms"].values()))
    if "seconds" in arm:
        return bars(result, "seconds", 1, "seconds until all is received")
    if "lost" in arm:
        return bars(result, "lost", 0.01, f"{result['what']} lost, percent")
    if "bytes_per_second" in arm:
        return bars(result, "bytes_per_second", 1e6, "megabytes a second")
    return bars(result, "received_pps", 1e3, "received, thousand packets a second")


def rows(arm: Json, figure: str) -> list[list[float]]:
    """By run, of each receiver; some are of one alone."""
    return [row if isinstance(row, list) else [row] for row in arm[figure]]


def bars(result: Json, figure: str, unit: float, what: str) -> Figure:
    """Each arm's receivers beside each other."""
    names = list(result["arms"])
    count = len(rows(result["arms"][names[0]], figure)[0])
    made = page(max(9.0, 0.9 * len(names) + 2))
    panel = made.subplots()
    width = 0.84 / count
    for i in range(count):
        for n, name in enumerate(names):
            values = [row[i] / unit for row in rows(result["arms"][name], figure)]
            middle, at = statistics.median(values), n + (i - (count - 1) / 2) * width
            label = f"nice {result['nices'][i]}" if n == 0 else None
            panel.bar(at, middle, width * 0.94, color=RECEIVERS[i], label=label, zorder=2)
            off = [[middle - min(values)], [max(values) - middle]]
            panel.errorbar(
                at, middle, off, fmt="none", ecolor=INK, elinewidth=1, capsize=2, zorder=3
            )
    labels = [name.replace("+", "\n+") for name in names]
    panel.set_xticks(range(len(names)), labels, rotation=35, ha="right")
    panel.set_ylabel(what)
    panel.legend(frameon=False, ncols=count, loc="lower left", bbox_to_anchor=(0, 1))
    bare(panel, "y")
    return made


def curves(result: Json) -> Figure:
    """What the first receives, and all together, against what is offered."""
    made = page(12.4)
    panels = made.subplots(1, 2) if len(result["nices"]) > 1 else [made.subplots()]
    for panel, first in zip(panels, (True, False), strict=False):
        what = "the first receives" if first else "all receive"
        draw_curve(panel, result["steps"], first, what)
    beside(panels[0])
    return made


def weighted(result: Json) -> Figure:
    """The same for each choice of weights."""
    made = page(12.4)
    found = list(shares.by_weights(result))
    panels = made.subplots(1, 2 * len(found))
    for i, (weights, steps) in enumerate(found):
        for panel, first in zip(panels[2 * i : 2 * i + 2], (True, False), strict=True):
            what = "the first receives" if first else "all receive"
            draw_curve(panel, steps, first, f"{weights}:\n{what}")
            panel.set_xlabel("sent to each, kpps")
            panel.set_ylabel("" if i or not first else panel.get_ylabel())
    beside(panels[0])
    return made


def beside(panel: Axes) -> None:
    """The legend, above the first panel."""
    count = len(panel.get_legend_handles_labels()[0])
    panel.legend(frameon=False, ncols=count, bbox_to_anchor=(0, 1.1), loc="lower left")


def draw_curve(panel: Axes, steps: Sequence[Json], first: bool, title: str) -> None:
    """Of the first receiver, or of all together; both stock arms are one."""
    offered = [step["pps"] / 1e3 for step in steps]
    names = [name for name in steps[0]["arms"] if name not in OFF]
    drawn_arms = {"stock kernel": list(OFF), **{name: [name] for name in names}}
    for colour, (label, same) in zip(itertools.cycle(LINES), drawn_arms.items(), strict=False):
        runs = [
            [
                (row[0] if first else sum(row)) / 1e3
                for name in same
                for row in step["arms"][name]["received_pps"]
            ]
            for step in steps
        ]
        middle = [statistics.median(one) for one in runs]
        low = [at - min(one) for one, at in zip(runs, middle, strict=True)]
        high = [max(one) - at for one, at in zip(runs, middle, strict=True)]
        panel.errorbar(
            offered, middle, [low, high], label=label, color=colour, linewidth=2,
            elinewidth=1, capsize=3, marker="o", markersize=5,
        )  # fmt: skip
    panel.set_title(title, loc="left", fontsize=12.5)
    panel.set_xlabel("sent to each, thousand packets a second")
    panel.set_ylabel("thousand packets a second")
    panel.set_ylim(bottom=0)
    bare(panel, "y")


def onsets(result: Json) -> Figure:
    """What the first loses of each onset, and where floods go on and off."""
    made = page(12.4)
    left, right = made.subplots(1, 2)
    first, *periods = result["steps"]
    names = list(first["arms"])
    for n, (colour, name) in enumerate(zip(itertools.cycle(LINES), names, strict=False)):
        lost = list(zip(*first["arms"][name]["lost_of_onset"], strict=True))
        places = [i + (n - (len(names) - 1) / 2) * 0.84 / len(names) for i in range(len(lost))]
        middle = [statistics.median(one) for one in lost]
        left.bar(places, middle, 0.8 / len(names), color=colour, label=name)
        parts = [100 * statistics.median(step["arms"][name]["lost"]) for step in periods]
        right.plot([step["period"] for step in periods], parts, marker="o", color=colour)
    left.set_xticks(range(len(lost)), [f"onset {i + 1}" for i in range(len(lost))])
    left.set_title("packets that the first loses of an onset", loc="left", fontsize=12.5)
    right.set_title("where floods go on and off: it loses, percent", loc="left", fontsize=12.5)
    right.set_xscale("log")
    ticks = [step["period"] for step in periods]
    right.set_xticks(ticks, [f"{one:g}" for one in ticks])
    right.minorticks_off()
    right.set_xlabel("period, seconds")
    for panel in (left, right):
        panel.set_ylim(bottom=0)
        bare(panel, "y")
    left.legend(frameon=False, ncols=len(names), bbox_to_anchor=(0, 1.08), loc="lower left")
    return made


def routed(result: Json) -> Figure:
    """What each step gave, and its price, by arm."""
    made = page(12.4)
    reached, price = made.subplots(1, 2)
    limited = result["experiment"] == "N1"
    for colour, name in zip(itertools.cycle(LINES), result["steps"][0]["arms"], strict=False):
        steps = [step for step in result["steps"] if name in step["arms"]]
        at = [step["rate"] / 1e6 if limited else step["size"] for step in steps]
        arms = [step["arms"][name] for step in steps]
        if name not in OFF or not limited:
            got = [statistics.median(arm["reached_bps"]) / 1e6 for arm in arms]
            reached.plot(at, got, marker="o", color=colour)
        costs = [router.price(arm) for arm in arms]
        price.plot(at, costs, marker="o", color=colour, label=name)
    reached.set_title("Mbit/s forwarded", loc="left", fontsize=12.5)
    price.set_title("the router's instructions for a packet sent", loc="left", fontsize=12.5)
    for panel in (reached, price):
        panel.set_xlabel("rate, Mbit/s" if limited else "size, bytes")
        panel.set_ylim(bottom=0)
        bare(panel, "y")
    beside(price)
    return made


def steadiness(result: Json) -> Figure:
    """The stream's rate over time, of each arm's first run."""
    made = page(12.4)
    panel = made.subplots()
    for colour, (name, arm) in zip(itertools.cycle(LINES), result["arms"].items(), strict=False):
        series = [rate / 1e6 for rate in arm["series_bps"][0]]
        panel.plot(range(1, len(series) + 1), series, color=colour, label=name)
    panel.set_title("TCP, Mbit/s", loc="left", fontsize=12.5)
    panel.set_xlabel("second")
    bare(panel, "y")
    beside(panel)
    return made


def answered(result: Json) -> Figure:
    """Each part's answers a second beside each other."""
    made = page(12.4)
    panels = made.subplots(1, len(result["parts"]), sharey=True, squeeze=False)[0]
    for panel, part in zip(panels, result["parts"], strict=True):
        for n, arm in enumerate(part["arms"].values()):
            values = arm["answers_per_s"]
            middle = statistics.median(values)
            off = [[middle - min(values)], [max(values) - middle]]
            panel.barh(n, middle, xerr=off, color=OUR_COLOUR, ecolor=INK, capsize=2)
        panel.set_yticks(range(len(part["arms"])), list(part["arms"]))
        panel.set_xlabel("answers a second")
        panel.set_title(
            web.described(part["part"], part["floods"]).replace(", ", ",\n"),
            loc="left",
            fontsize=12.5,
        )
        bare(panel, "x")
    panels[0].invert_yaxis()
    return made


def costs(result: Json) -> Figure:
    """What each state adds to a packet, against stock with as many sockets."""
    made = page(12.4)
    panels = made.subplots(1, 3, sharey=True)
    for panel, figure, what in (
        (panels[0], "instructions_per_packet", "sent and received on lo"),
        (panels[1], "receive_instructions_per_packet", "receive side"),
        (panels[2], "forwarded_instructions_per_packet", "to a container"),
    ):
        found = result[figure]
        names = [name for name in found if not name.startswith("stock")]
        more = [100 * (found[name] / found[cost.stock_of(name)] - 1) for name in names]
        panel.barh(names, more, color=OUR_COLOUR)
        panel.set_xlabel("instructions a packet against stock, percent")
        panel.set_title(what, loc="left", fontsize=12.5)
        bare(panel, "x")
    panels[0].invert_yaxis()
    return made
