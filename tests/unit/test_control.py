# SPDX-License-Identifier: GPL-2.0-only
"""The controller in a closed loop, with a model of a CPU that cannot keep up.

The model: receivers offer packets; each tick the policy keeps some of each
receiver's; dropping costs a part of what delivery costs; when what is left
costs more than the CPU has, the queue stands and everybody, whoever it is,
loses alike. That is what the modules see, without the noise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from unit.policy import ONE, Cut, cut_share, cut_step, keep, level, rank

TICK_US = 10_000
DROP_COST = 0.2
SPARE = 7 / 8
FLOOR = 100

LEVELS = [level(rank(1, nice)) for nice in (10, 5, 0)]

Load = Callable[[float], Sequence[float]]


@dataclass
class Run:
    """By tick: the cut's place, and what each receiver got, packets/s."""

    cuts: list[float] = field(default_factory=list)
    got: list[list[float]] = field(default_factory=list)
    pressed: list[bool] = field(default_factory=list)

    def mean(self, receiver: int, begin: float, end: float) -> float:
        part = self.got[round(begin * 100) : round(end * 100)]
        return sum(tick[receiver] for tick in part) / len(part)


def simulate(load: Load, seconds: float, capacity: float, floor: int = FLOOR) -> Run:
    """Receivers lowest first; the highest is served, never listed as one to shed."""
    run, cut = Run(), Cut()
    listed = LEVELS[:-1]
    for tick in range(round(seconds * 100)):
        rates = load(tick / 100)
        kept = []
        for one, rate in zip(LEVELS, rates, strict=True):
            share = cut_share(cut, one)
            kept.append(rate * keep(share, int(rate), int(rate), floor) / ONE)
        cost = sum(kept) + DROP_COST * (sum(rates) - sum(kept))
        through = min(1.0, capacity / cost) if cost else 1.0
        run.got.append([part * through for part in kept])
        run.pressed.append(cost > capacity)
        spare = cost < SPARE * capacity
        cut = cut_step(cut, ONE if cost > capacity else 0, TICK_US, listed, spare)
        run.cuts.append(sum(other < cut.level for other in listed) + cut.share / ONE)
    return run


def steady(*rates: float) -> Load:
    return lambda _: rates


def test_a_step_is_answered_in_a_quarter_of_a_second() -> None:
    run = simulate(steady(37_000, 37_000, 37_000), 5, capacity=60_000)
    assert sum(run.pressed[25:125]) <= 4
    assert run.mean(2, 0.25, 5) >= 0.98 * 37_000
    assert run.mean(2, 1, 5) > run.mean(1, 1, 5) > run.mean(0, 1, 5) > 0


@pytest.mark.parametrize("capacity", [60_000, 75_000, 90_000, 105_000])
def test_it_settles_and_does_not_oscillate(capacity: float) -> None:
    run = simulate(steady(37_000, 37_000, 37_000), 40, capacity)
    late = run.cuts[1000:]
    assert max(late) - min(late) < 0.25  # the saw's tooth, in levels
    assert sum(run.pressed[1000:]) / len(late) < 0.05
    sums = [sum(tick) for tick in run.got[1000:]]
    assert min(sums) > 0.8 * max(sums)


@pytest.mark.parametrize("floor", [0, 100, 5_000])
def test_the_lowest_keeps_its_floor_and_no_less(floor: int) -> None:
    run = simulate(steady(37_000, 37_000, 37_000), 20, capacity=65_000, floor=floor)
    assert run.mean(0, 10, 20) >= floor * 0.97
    assert min(tick[0] for tick in run.got[200:]) >= floor * 0.9


def test_a_ramp_is_followed() -> None:
    def ramp(now: float) -> Sequence[float]:
        return [min(now, 20) * 2_000] * 3

    run = simulate(ramp, 30, capacity=60_000)
    top = [got[2] / (min(t / 100, 20) * 2_000) for t, got in enumerate(run.got) if t > 50]
    assert sum(top) / len(top) > 0.99
    assert sum(share < 0.98 for share in top) / len(top) < 0.05


def test_bursts_do_not_pump_it_up() -> None:
    def burst(now: float) -> Sequence[float]:
        return [37_000 if now % 1 < 0.1 else 5_000] * 3

    run = simulate(burst, 60, capacity=60_000)
    assert max(run.cuts[3000:]) < 2
    between = [t for t in range(3000, 6000) if t % 100 >= 60]
    assert max(run.cuts[t] for t in between) == 0
    assert min(got[0] for got in run.got[3000:]) >= 0.75 * FLOOR
    top = [got[2] / burst(t / 100)[2] for t, got in enumerate(run.got) if t > 3000]
    assert sum(top) / len(top) > 0.97


def test_it_lets_go_when_the_load_ends() -> None:
    def load(now: float) -> Sequence[float]:
        return [37_000 if now < 10 else 1_000] * 3

    run = simulate(load, 25, capacity=60_000)
    assert run.cuts[999] > 0.5
    assert run.cuts[-1] == 0
    assert run.got[-1] == [1_000, 1_000, 1_000]
    released = next(t for t in range(1000, 2500) if run.cuts[t] == 0)
    assert released <= 1000 + 60  # two levels, a quarter of a second each


def test_no_load_no_cut() -> None:
    run = simulate(steady(10_000, 10_000, 10_000), 10, capacity=60_000)
    assert set(run.cuts) == {0}
    assert run.mean(0, 0, 10) == 10_000
