# SPDX-License-Identifier: GPL-2.0-only
"""P1 and L1: more and more is offered, and what is said of what is received."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments import result, show, sweep
from experiments.ages import age_ms
from experiments.buffers import Buffers
from experiments.measure import Account, Closing, Load, Run
from experiments.rules import ALONE_PPS, LOWER_PPS, limits
from rig.guest import Guest
from rig.kernels import Kernel
from rig.traffic import Received, Sample

GUEST = Guest(Kernel("6.1", "6.1.0", *[Path("/")] * 2))


class Recorder(Guest):
    """Keeps what it is to run."""

    def __init__(self) -> None:
        self.ran: list[Any] = []

    def run(self, command: Any, *_: Any, **__: Any) -> Any:
        self.ran.append(command)


def run(*received_pps: float) -> Run:
    accounts = [Account(1000, 1000, pps, 0, {}) for pps in received_pps]
    closing = Closing(2.0, 1000 * len(accounts), 1000 * len(accounts), 0, 0, 0)
    return Run(accounts, closing, 0.1, 0.0, {}, [])


def watched(one: Run, mean: int, peak: int) -> Run:
    return replace(one, buffers=Buffers([212992], peak, mean, 0, 0, 0))


def swept(experiment: str, *steps: dict[str, list[Run]]) -> result.Json:
    load = Load(ports=(1,), nices=(0,) if experiment == "L1" else (0, 5), pps=0, work=7)
    made = [sweep.Step(replace(load, pps=5e3 * n), one) for n, one in enumerate(steps, 1)]
    return sweep.result_json(experiment, GUEST, made)


def test_an_arm_is_under_stock_where_it_is_under_both_of_its_arms() -> None:
    stock = {"stock": [run(100, 80)], "stock2": [run(110, 90)]}
    found = swept("P1", {**stock, "all": [run(105, 60)]}, {**stock, "all": [run(84, 120)]})
    said = show.table(found).splitlines()[-2:]
    assert said == [
        "all: the first under stock at 10 kpps by 20.0%",
        "all: the sum under stock at 5 kpps by 13.2%",
    ]


def test_an_age_is_the_time_since_a_datagram_was_due() -> None:
    """1000 a second from 5 s on; each is received 40 ms later, but in the pause of a second."""
    seen = [Sample(int((5.04 + n / 10) * 1e9), n * 100, n * 100 + 1, 0) for n in range(10)]
    seen += [Sample(int((6.04 + n / 10) * 1e9), 900, 901, 0) for n in range(10)]
    one = Received(900, 0, 5, [], None, seen)
    age = age_ms(one, int(5e9), 1000.0, 5e9, 8e9)
    assert age is not None and abs(age - 40) < 0.01
    assert age_ms(one, int(5e9), 1000.0, 6.2e9, 8e9) is None


def test_a_table_has_ages_where_all_are_known() -> None:
    aged = [
        replace(run(100, 1), ages_ms=[1.0, None]),
        replace(run(100, 1), ages_ms=[3.0, 40.0]),
    ]
    said = show.table(swept("P1", {"stock": aged, "stock2": aged})).splitlines()
    assert said[1].split()[-2:] == ["age", "ms"] and said[2].split()[-1] == "2/40"
    said = show.table(swept("P1", {"stock": [run(1, 1)], "stock2": [run(1, 1)]})).splitlines()
    assert "age" not in said[1]


def test_what_is_left_of_the_best_is_told_of_one_receiver() -> None:
    found = swept(
        "L1",
        {"stock": [run(100)], "stock2": [run(100)], "filter": [run(98)]},
        {"stock": [run(20)], "stock2": [run(10)], "filter": [run(90)]},
    )
    assert found["work"] == 7
    said = show.table(found).splitlines()[-4:]
    assert said == [
        "filter: the sum under stock at 5 kpps by 2.0%",
        "stock: with the most that is offered 20% of its best",
        "stock2: with the most that is offered 10% of its best",
        "filter: with the most that is offered 92% of its best",
    ]


def test_where_buffers_are_watched_what_waits_in_them_is_told() -> None:
    one = watched(run(100, 80), 50 << 10, 120 << 10)
    found = swept("S1-5", {"stock": [one], "stock2": [one]})
    lines = show.table(found).splitlines()
    assert lines[1].endswith("queued KiB  at most")
    assert lines[2].split()[-2:] == ["50", "120"]


def test_the_costly_step_is_as_long_as_it_is_said_to_be_and_goes_again() -> None:
    guest = Recorder()
    with sweep.costly(guest, 5):
        assert guest.ran[-1][1].count("saddr") == 5 * sweep.TICK_RULES
    assert guest.ran[-1] == "nft delete table netdev step"


def test_what_the_first_can_have_is_what_it_is_sent_or_what_dropping_gives() -> None:
    stock = {"stock": [run(100, 80)], "stock2": [run(100, 80)]}
    found = swept(
        "P1",  # each is sent 500
        {**stock, "shed-all": [run(600, 0)], "all": [run(495, 10)]},
        {**stock, "shed-all": [run(400, 0)], "all": [run(380, 10)]},
    )
    said = show.table(found).splitlines()[-3:]
    assert said[0].startswith("all: the first under stock")  # nothing is said of shed-all
    assert said[-1] == "all: the first under 99% of what it can have at 10 kpps by 5.0%"


def test_every_sweep_goes_past_what_can_be_taken() -> None:
    for plan in sweep.EXPERIMENTS.values():
        assert list(plan.pps) == sorted(plan.pps)
    assert sweep.EXPERIMENTS["L1"].pps[-1] == sweep.MOST * sweep.SATURATION


def test_rules_spare_the_first_and_leave_one_alone_what_it_can_take() -> None:
    assert limits((5, 6, 7), LOWER_PPS) == {6: LOWER_PPS, 7: LOWER_PPS}
    assert limits((5,), LOWER_PPS) == {5: ALONE_PPS}
