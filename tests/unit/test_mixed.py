# SPDX-License-Identifier: GPL-2.0-only
"""M1 and M2: TCP and UDP beside each other."""

from pathlib import Path

import pytest
from experiments import mixed, result, show
from experiments.measure import Closing
from rig.guest import Guest
from rig.kernels import Kernel

CLOSING = Closing(1.0, 10_000, 9000, 500, 300, 190)
GUEST = Guest(Kernel("6.1", "6.1.0", *[Path("/")] * 2))


def streamed(seconds: float) -> mixed.Run:
    return mixed.Run([18e3] * 3, [9e3, 8e3, 7e3], CLOSING, 0.25, 5, seconds)


def flooded(pps: float) -> mixed.Run:
    return mixed.Run([18e3], [pps], CLOSING, 0.25, 5)


def rows(found: result.Json) -> dict[str, list[str]]:
    return {line.split()[0]: line.split() for line in show.table(found).splitlines()}


def test_a_streams_time_is_compared_with_stock() -> None:
    runs = {"stock": [streamed(4.0)], "stock2": [streamed(2.0)], "both": [streamed(1.5)]}
    found = mixed.result_json("M1", GUEST, 0.8, runs)
    assert (found["alone"], found["noise"], found["nices"]) == (0.8, 2.0, [0, 10, 10, 10])
    arm = found["arms"]["both"]
    assert (arm["seconds"], arm["received_pps"]) == ([1.5], [[9e3, 8e3, 7e3]])
    assert rows(found)["both"][1:4] == ["1.500", "(1.500-1.500)", "-50.0%"]


def test_a_floods_rate_is_compared_with_stock() -> None:
    runs = {"stock": [flooded(4e3)], "stock2": [flooded(4e3)], "both": [flooded(5e3)]}
    found = mixed.result_json("M2", GUEST, None, runs)
    assert "alone" not in found and "seconds" not in found["arms"]["both"]
    assert found["noise"] == 0
    assert rows(found)["both"][1:] == ["5.0", "(5.0-5.0)", "+25.0%", "25%", "5", "+0.10%"]
    assert found["arms"]["both"]["offered_pps"] == [[pytest.approx(18e3)]]
