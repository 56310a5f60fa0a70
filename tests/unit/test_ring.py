# SPDX-License-Identifier: GPL-2.0-only
"""The controller in a closed loop, where a device's ring overflows; see ring.py."""

import pytest
from unit.cpu import Rate, Receiver, Run, steady
from unit.ring import RingAloneCpu, RingCpu

TEN, FIVE, ZERO = range(3)


def three(ten: float, five: float, zero: float) -> list[Receiver]:
    return [Receiver(10, steady(ten)), Receiver(5, steady(five)), Receiver(0, steady(zero))]


def both(
    capacity: float, rates: tuple[float, float, float], nobodys: Rate, noise: int | None, to: float
) -> tuple[Run, Run]:
    """With shedding, and without."""
    cpus = (RingCpu(capacity, three(*rates), nobodys, sheds, noise) for sheds in (True, False))
    run, without = (cpu.run(to) for cpu in cpus)
    return run, without


def gains(run: Run, without: Run, who: int, begin: float = 1) -> float:
    return run.reads(who, begin) / without.reads(who, begin)


@pytest.mark.parametrize("noise", [None, 1, 2])
@pytest.mark.parametrize(
    ("capacity", "each", "nobodys"),
    [(100_000, 10_000, 270_000), (20_000, 500, 40_000), (20_000, 2_000, 24_000)],
)
def test_a_flood_that_cannot_be_shed_costs_the_lower_next_to_nothing(
    capacity: float, each: float, nobodys: float, noise: int | None
) -> None:
    """To closed ports, or SYNs: packets get hardly cheaper by what else is shed."""
    run, without = both(capacity, (each, each, each), steady(nobodys), noise, 120)
    assert without.reads(ZERO, 1) < 0.9 * each * 119
    assert run.cut(1) <= 0.03
    assert min(gains(run, without, who) for who in (TEN, FIVE)) >= 0.97


@pytest.mark.parametrize("noise", [None, 1])
@pytest.mark.parametrize(
    ("capacity", "rates", "nobodys", "most"),
    [
        (100_000, (60_000, 60_000, 20_000), 0, 1.22),
        (20_000, (12_000, 12_000, 500), 0, 1.4),
        (100_000, (120_000, 0, 20_000), 0, 1.24),
        (100_000, (60_000, 60_000, 20_000), 60_000, 1.18),
    ],
)
def test_a_flood_to_the_lower_is_shed_for_as_long_as_it_lasts(
    capacity: float,
    rates: tuple[float, float, float],
    nobodys: float,
    most: float,
    noise: int | None,
) -> None:
    run, without = both(capacity, rates, steady(nobodys), noise, 150)
    assert gains(run, without, ZERO) >= most
    assert run.cut(1) >= 0.99
    # At no time is it worse off for what is asked.
    worst = min(run.reads(ZERO, second, second + 5) for second in range(2, 145))
    assert worst >= without.reads(ZERO, 1) / 149 * 5


def test_what_helped_once_is_asked_about_anew() -> None:
    """A flood to the lower is followed by one to nobody, of cheaper packets."""

    def nobodys(now: float) -> float:
        return 0 if now < 20 else 270_000

    def ten(now: float) -> float:
        return 120_000 if now < 20 else 10_000

    receivers = [Receiver(10, ten), Receiver(5, steady(10_000)), Receiver(0, steady(10_000))]
    runs = [RingCpu(100_000, receivers, nobodys, sheds, 1).run(240) for sheds in (True, False)]
    assert runs[0].cut(2, 20) == 1
    assert min(gains(runs[0], runs[1], who, 90) for who in (TEN, FIVE)) >= 0.95


@pytest.mark.parametrize("apart", [0.15, 0.5, 2])
def test_nobody_is_shed_for_a_burst_that_an_idle_cpu_loses(apart: float) -> None:
    """A few packets for a queue that takes no more at once, again and again."""
    run = RingCpu(100_000, three(2_000, 2_000, 2_000), bursts=apart).run(20)
    assert run.cut(0) == 0


@pytest.mark.parametrize("noise", [None, 1, 2])
@pytest.mark.parametrize("capacity", [28_000, 30_000, 31_000])
def test_who_is_served_on_another_cpu_keeps_what_shedding_gave(
    capacity: float, noise: int | None
) -> None:
    """All that it lacks is lost in the ring. What is given back slowly is missed like the rest."""
    run = RingAloneCpu(capacity, three(14_000, 14_000, 14_000), noise=noise).run(60)
    had = run.reads(ZERO, 1, 6)
    assert had >= 0.9 * 5 * 14_000
    assert min(run.reads(ZERO, second, second + 5) for second in range(6, 55)) >= 0.96 * had
