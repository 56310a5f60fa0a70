# SPDX-License-Identifier: GPL-2.0-only
"""A result as one flat list of numbers, for a spreadsheet.

The columns: experiment, kernel, version; the place of the number in the JSON, its names joined
by "."; which repeat and which receiver, where it is one of several, from 0; and the number.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from experiments import web
from experiments.result import Json

HEAD = ("experiment", "kernel", "version", "figure", "repeat", "receiver", "value")
Row = tuple[str, list[int], float]


def numbers(value: object, name: str = "", at: tuple[int, ...] = ()) -> Iterator[Row]:
    """Every number below a value: its name, its places in lists, and itself."""
    if isinstance(value, bool):
        return
    if isinstance(value, (int, float)):
        yield name, list(at), float(value)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from numbers(part, f"{name}.{key}" if name else str(key), at)
    elif isinstance(value, list):
        for i, part in enumerate(value):
            yield from numbers(part, name, (*at, i))


def text(result: Json) -> str:
    """As CSV."""
    made = io.StringIO()
    out = csv.writer(made, lineterminator="\n")
    out.writerow(HEAD)
    whose = [result["experiment"], result["kernel"], result.get("version", "")]
    for name, parts in parted(result):
        for figure, at, value in numbers(parts, name):
            repeat, receiver, *_ = [*map(str, at), "", ""]
            out.writerow([*whose, figure, repeat, receiver, f"{value:.8g}"])
    return made.getvalue()


def parted(result: Json) -> Iterator[tuple[str, object]]:
    """What it says of each arm, by part, or by what was offered where that was varied."""
    for key, value in result.items():
        if key == "steps":
            for step in value:
                told = next(f"{name} {step[name]:g}" for name in step if name != "arms")
                if "weights" in step:
                    told += f" weights {'/'.join(map(str, step['weights']))}"
                yield told, step["arms"]
        elif key == "parts":
            for part in value:
                yield web.described(part["part"], part["floods"]), part["arms"]
        elif isinstance(value, dict):
            yield key, value
