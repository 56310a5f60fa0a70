# SPDX-License-Identifier: GPL-2.0-only
"""The picture of docs/performance.md and the README: what four kinds of programs get.

Drawn from kept results, and the same to the byte when it is drawn again from the same ones.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import matplotlib
from experiments import chart
from experiments.arms import OFF
from experiments.result import Json

OVERLOAD, WEB, CONTAINERS, LOGS = RESULTS = ("U1-6.12", "W1-6.12", "C1-6.12", "R1-6.12")
Kept = Callable[[str], Json]


def picture(kept: Kept) -> str:
    """As SVG, with text as text."""
    settings: dict[str, Any] = {"svg.hashsalt": "packetflow", "svg.fonttype": "none"}
    with matplotlib.rc_context(settings):
        figure = chart.page(12.5)
        figure.set_size_inches(12.5, 9.5)
        panels = figure.subplots(2, 2)
        chart.draw(panels[0][0], kept(OVERLOAD))
        panels[0][0].set_title("Three receivers that are sent too much", loc="left", pad=10)
        chart.draw_answers(panels[0][1], kept(WEB))
        panels[0][1].set_title("A web server beside floods to nice 10", loc="left", pad=10)
        chart.draw(panels[1][0], chart.deepest(kept(CONTAINERS)))
        panels[1][0].set_title("Receivers in a container", loc="left", pad=10)
        chart.draw_values(panels[1][1], lost_lines(kept(LOGS)), "{:.1f} %")
        panels[1][1].set_ylabel("lines lost, percent")
        panels[1][1].set_title("rsyslog at nice 0 beside floods to nice 10", loc="left", pad=10)
        handles, labels = panels[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncols=2, frameon=False)
        figure.subplots_adjust(left=0.06, right=0.985, top=0.95, bottom=0.09, hspace=0.3)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def lost_lines(result: Json) -> list[tuple[str, str, list[float]]]:
    kinds = (
        ("stock kernel", chart.STOCK_COLOUR, OFF),
        ("with PacketFlow", chart.OUR_COLOUR, ("all",)),
        ("SCHED_FIFO by hand", chart.HAND_COLOUR, ("fifo-by-hand",)),
    )
    return [
        (
            label,
            colour,
            [100 * one for name in names for one in result["arms"][name]["lost"]],
        )
        for label, colour, names in kinds
    ]
