# SPDX-License-Identifier: GPL-2.0-only
"""S1: what counts as overflow, and what is said of it."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from experiments import curve, result, s1, show
from experiments.buffers import Buffers
from experiments.measure import Account, Closing, Run
from rig.guest import Guest
from rig.kernels import Kernel

BUDGET = 1 << 20
STOCK = Buffers([212992], 200_000, 90_000, 0, 0, 0)
GROWN = Buffers([900_000], 850_000, 500_000, 700_000, BUDGET, 0)
SPENT = Buffers([1_200_000], 1_190_000, 800_000, BUDGET, BUDGET, 0)


def run(buffers: Buffers, drops: int = 0, early: Mapping[str, int] | None = None) -> Run:
    account = Account(1000, 1000 - drops, 500.0, drops, dict(early or {}))
    closing = Closing(2.0, 1000, 1000 - drops, drops, 0, 0)
    return Run([account], closing, 0.0, 0.0, {}, [], buffers)


def example(at_95: list[Run], at_120: list[Run]) -> result.Json:
    steps = [
        s1.Step(0.95, 100, {"stock": [run(STOCK)], "stock2": [run(STOCK, 40)], "mm": at_95}),
        s1.Step(1.2, 200, {"stock": [run(STOCK, 90)], "stock2": [run(STOCK, 80)], "mm": at_120}),
    ]
    guest = Guest(Kernel("6.1", "6.1.0", *[Path("/")] * 2))
    return s1.result_json(guest, 8000, steps)


def test_result_has_what_is_promised() -> None:
    found = example([run(GROWN)], [run(SPENT, 10)])
    assert (found["experiment"], found["pps"], found["nices"]) == ("S1", 8000, [0])
    assert [(step["demand"], step["work"]) for step in found["steps"]] == [(0.95, 100), (1.2, 200)]
    arm = found["steps"][1]["arms"]["mm"]
    assert (arm["socket_drops_pps"], arm["rcvbuf_bytes"]) == ([[5]], [[1_200_000]])
    assert (arm["granted_bytes_peak"], arm["budget_bytes"]) == ([BUDGET], [BUDGET])


def test_what_was_dropped_early_at_a_full_buffer_is_overflow_too() -> None:
    arm = result.arm_json([run(GROWN, 10, {"full": 20, "harm": 100}), run(GROWN)])
    assert s1.full_pps(arm) == [15, 0]


def test_budget_lasts_where_there_is_one_and_some_is_left() -> None:
    arm = result.arm_json([run(STOCK), run(GROWN), run(SPENT)])
    assert s1.lasted(arm) == [False, True, False]


@pytest.mark.parametrize(
    ("at_95", "at_120", "said"),
    [
        ([run(GROWN)], [run(SPENT)], "mm: the buffer never overflowed in 2 runs"),
        (
            [run(GROWN)],
            [run(SPENT, 10)],
            "mm: the buffer overflowed in 1 of 2 runs, from a demand of 120% on; "
            "in none while the budget lasted",
        ),
        (
            [run(GROWN), run(GROWN, early={"full": 1})],
            [run(SPENT, 10), run(SPENT, 10)],
            "mm: the buffer overflowed in 3 of 4 runs, from a demand of 95% on; "
            "in 1 of them, from 95% on, while the budget lasted",
        ),
    ],
)
def test_verdict(at_95: list[Run], at_120: list[Run], said: str) -> None:
    found = example(at_95, at_120)
    assert s1.verdict(found, "mm") == said
    # Without a budget there is none that could have lasted.
    stock = "stock: the buffer overflowed in 1 of 2 runs, from a demand of 120% on"
    assert s1.verdict(found, "stock") == stock
    assert said in show.table(found).splitlines()


def test_table_shows_every_step_and_arm() -> None:
    rows = show.table(example([run(GROWN)], [run(SPENT, 10)])).splitlines()[2:8]
    assert [row.split()[:2] for row in rows] == [
        [demand, arm] for demand in ("95%", "120%") for arm in ("stock", "stock2", "mm")
    ]
    rates = "500.0 (500.0-500.0) 5.0 (5.0-5.0) 0.0 (0.0-0.0)"
    last = ["120%", "mm", *rates.split()]
    assert rows[-1].split() == [*last, "1172", "1162", "1024", "0"]


def test_work_grows_with_the_demand_past_what_there_is() -> None:
    # At the rate a packet may take 2000 loops, at twice the rate 1000; 500 are no work.
    assert [s1.work(demand, 1500, 500) for demand in (0.2, 0.5, 1.0, 1.5)] == [0, 500, 1500, 2500]
    assert s1.work(0.5, 1500, 800) == 750  # what is measured may be off
    assert list(s1.DEMANDS) == sorted(s1.DEMANDS)
    assert s1.DEMANDS[0] < 1 < s1.DEMANDS[-1]


def test_both_stock_arms_are_one_line() -> None:
    found = example([run(GROWN)], [run(SPENT)])
    assert curve.lines(found) == {"stock kernel": ["stock", "stock2"], "mm": ["mm"]}
    assert curve.values(found["steps"][0], ["stock", "mm"], "rcvbuf_bytes") == [212992, 900_000]


def test_picture_is_written(tmp_path: Path) -> None:
    paths = [tmp_path / "a.png", tmp_path / "a.svg"]
    curve.picture(example([run(GROWN)], [run(SPENT)]), paths)
    assert all(path.stat().st_size > 1000 for path in paths)
