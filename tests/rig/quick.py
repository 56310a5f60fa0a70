# SPDX-License-Identifier: GPL-2.0-only
"""The quick set of tests: each behaviour on the oldest and on the newest kernel. What policy.c
alone decides, and so alike on all kernels, is tested on the oldest one.

What is left to the full set has a mark beside the test, or at the head of its file; see pytest.ini.
Two things are told by the machine. Guests of four CPUs take longer than all the rest together when
they are emulated on two. Guests of two are run on the oldest kernel only.
"""

from collections.abc import Sequence

import pytest

FULL, ENDS, OLDEST, NEWEST, FIRST = "full", "ends", "oldest", "newest", "first"
LATE = "deadline"  # a lever that needs the host to be on time


def left_out(
    item: pytest.Item,
    machine: tuple[str, int] | None,
    kernels: Sequence[str],
    running: Sequence[str],
    again: bool,
) -> bool:
    """Is this item no part of the quick set on these kernels, the oldest first?

    `running`: those of them that this run is about; what needs no kernel runs with the newest.
    `again`: other cases of its test came before it.
    """
    if item.get_closest_marker(FULL):
        return True
    oldest, newest = kernels[0], kernels[-1]
    if not machine:
        return newest not in running
    kernel, cpus = machine
    if cpus > 2 or LATE in case(item):
        return True
    if again and item.get_closest_marker(FIRST):
        return True
    if kernel == oldest:
        return bool(item.get_closest_marker(NEWEST)) and oldest != newest
    if cpus > 1 or again or item.get_closest_marker(OLDEST):
        return True
    return kernel != newest and bool(
        item.get_closest_marker(ENDS) or item.get_closest_marker(NEWEST)
    )


def case(item: pytest.Item) -> Sequence[object]:
    """The values of its parameters."""
    call = getattr(item, "callspec", None)
    return tuple(call.params.values()) if call else ()
