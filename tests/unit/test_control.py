# SPDX-License-Identifier: GPL-2.0-only
"""The controller in a closed loop, with a model of a CPU that cannot keep up; see cpu.py."""

import functools

import pytest
from unit.cpu import SECOND, TICK_US, Cpu, Rate, Receiver, Run, steady
from unit.policy import ONE

CAPACITY = 120_000
FLOOD, FIRST = 45_000.0, 30_000.0
TEN, FIVE, ZERO = range(3)

# What is not told from what is bearable, 0.5 %: a handful in a window moves nothing.
KEPT = 0.01
# Where nearly all of a level has to be shed, the cut swings by a third of it: it is given back
# in the moments when the first has caught up, and less than half a step is not seen to be missed.
SWINGING = 0.046


def three(ten: Rate, five: Rate, zero: Rate) -> list[Receiver]:
    return [Receiver(10, ten), Receiver(5, five), Receiver(0, zero)]


def on_off(period: float, part: float, on: float, off: float = 0) -> Rate:
    return lambda now: on if now % period < period * part else off


def in_turn(*rates: tuple[float, float]) -> Rate:
    """Until when, and how many a second."""
    return lambda now: next(rate for until, rate in rates if now < until)


def ramp(to: float, seconds: float = 20) -> Rate:
    return lambda now: min(now, seconds) / seconds * to


@functools.cache
def loaded(ten: float, five: float, zero: float, seconds: float = 20, sheds: bool = True) -> Run:
    return Cpu(CAPACITY, three(steady(ten), steady(five), steady(zero)), sheds=sheds).run(seconds)


def settled(run: Run) -> float:
    """Seconds from the first packet that the first loses until it loses next to none in 100 ms."""
    at = [tick * TICK_US / SECOND for tick in range(len(run.ticks))]
    onset = next(now for now, tick in zip(at, run.ticks, strict=True) if tick.lost[ZERO])
    return (
        next(now for now in at if now > onset and run.loses(ZERO, now, now + 0.1) <= KEPT) - onset
    )


STEPS = [(37_000.0, 37_000.0, 37_000.0), (FLOOD, FLOOD, FIRST), (50_000.0, 50_000.0, 28_000.0)]
STEPS += [(10_000.0, 60_000.0, 37_000.0), (80_000.0, 10_000.0, 30_000.0)]


@pytest.mark.parametrize("rates", STEPS)
def test_a_step_is_answered(rates: tuple[float, float, float]) -> None:
    run, without = loaded(*rates), loaded(*rates, sheds=False)
    assert without.loses(ZERO, 1) > 0.1
    assert settled(run) <= 0.18
    assert run.loses(ZERO, 1) <= SWINGING
    assert run.reads(TEN, 1) / 19 >= 98  # the floor


def test_an_onset_is_answered_soon() -> None:
    """The first loses a fifth at once, and nearly all of both others has to be shed for it."""
    rate = in_turn((1, 500), (99, 18_000))
    run, without = (Cpu(60_000, three(rate, rate, rate), sheds=s).run(4) for s in (True, False))
    assert without.loses(ZERO, 1) > 0.2
    assert settled(run) <= 0.16
    assert sum(tick.lost[ZERO] for tick in run.part(0, 1.6)) <= 660
    assert run.loses(ZERO, 1.2) <= KEPT


@pytest.mark.parametrize("rates", STEPS)
def test_it_settles_and_does_not_oscillate(rates: tuple[float, float, float]) -> None:
    late = [tick.reach / ONE for tick in loaded(*rates).part(5)]
    assert max(late) - min(late) < 0.36


@pytest.mark.parametrize("rates", [rates for rates in STEPS if rates[0] >= rates[1]])
def test_the_order_is_never_inverted(rates: tuple[float, float, float]) -> None:
    """Where both are sent as much; a floor is a larger part of less."""
    run = loaded(*rates)
    for tick in range(len(run.ticks) - 17):
        begin = tick * TICK_US / SECOND
        if run.cut(begin, begin + 0.2) == 1:
            assert run.loses(TEN, begin, begin + 0.2) >= run.loses(FIVE, begin, begin + 0.2) - 0.01


def test_a_ramp_is_followed() -> None:
    run = Cpu(CAPACITY, three(ramp(FLOOD), ramp(FLOOD), ramp(FIRST))).run(30)
    assert run.loses(ZERO, 0) <= 0.021
    assert max(run.loses(ZERO, tenth / 10, tenth / 10 + 0.1) for tenth in range(299)) <= 0.1


@pytest.mark.parametrize(
    ("period", "loses", "leaves"),
    # What is given back in a pause is lost at the next onset: so it is held over all pauses.
    [
        (0.1, KEPT, 0.8),
        (0.2, 0.01, 0.6),
        (0.3, 0.01, 0.4),
        (1, KEPT, 0.28),
        (2, 0.011, 0.5),
        (3, KEPT, 0.5),
        (10, 0.011, 0.5),
    ],
)
def test_floods_on_and_off(period: float, loses: float, leaves: float) -> None:
    flood = on_off(period, 0.5, FLOOD)
    run = Cpu(CAPACITY, three(flood, flood, steady(FIRST))).run(60)
    without = Cpu(CAPACITY, three(flood, flood, steady(FIRST)), sheds=False).run(20)
    assert without.loses(ZERO, 1) > 0.06
    assert run.loses(ZERO, 1) <= loses
    assert run.reads(FIVE) / 3 >= leaves * without.reads(FIVE)


def test_bursts_are_paid_for_by_the_lower_and_not_below_the_floor() -> None:
    rates = [on_off(1, 0.1, rate, rate / 8) for rate in (FLOOD, FLOOD, FIRST)]
    run, without = (Cpu(CAPACITY, three(*rates), sheds=sheds).run(60) for sheds in (True, False))
    assert run.loses(ZERO, 1) <= 0.6 * without.loses(ZERO, 1)
    assert run.reads(TEN) / 60 >= 98
    assert run.reads(FIVE) >= 0.5 * without.reads(FIVE)


def test_a_slow_reader_is_nobodys_concern() -> None:
    """It sleeps while its buffer is full: others have nothing that it could use."""
    receivers = [Receiver(10, steady(15_000)), Receiver(5, steady(15_000))]
    receivers.append(Receiver(0, steady(30_000), pace=10_000))
    run = Cpu(100_000, receivers).run(10)
    assert run.loses(ZERO, 0) > 0.6
    assert run.loses(TEN, 0) == run.loses(FIVE, 0) == run.cut(0) == 0


def test_of_several_that_are_harmed_the_most_important_counts() -> None:
    """The one below it loses more, and what could be shed for that one is not enough for it."""
    without = loaded(10_000, 60_000, 37_000, sheds=False)
    assert without.loses(FIVE, 1) > 2 * without.loses(ZERO, 1) > 0.2
    assert loaded(10_000, 60_000, 37_000).loses(ZERO, 1) <= SWINGING


@pytest.mark.parametrize(("ten", "five"), [(60_000, 30_000), (50_000, 32_000), (0, 60_000)])
def test_who_is_harmed_is_not_shed_for_itself(ten: float, five: float) -> None:
    """Nice 0 lacks nothing: for nice 5's loss at most nice 10 is shed."""
    run, without = loaded(ten, five, 10_000), loaded(ten, five, 10_000, sheds=False)
    assert without.loses(FIVE, 1) > 0.1 and without.loses(ZERO, 0) == 0
    assert all(tick.reach < ONE for tick in run.ticks)
    assert all(tick.shed[FIVE] == tick.shed[ZERO] == 0 for tick in run.ticks)
    if ten:
        assert run.loses(FIVE, 1) <= SWINGING
    else:
        assert run.cut(0) == 0


def test_what_was_enough_for_the_first_is_too_much_for_the_next() -> None:
    """Nice 0 is harmed for a while, with nice 5 shed for it; then nice 5 is."""
    zero = in_turn((5, 37_000), (99, 5_000))
    five = in_turn((5, 37_000), (5.5, 5_000), (99, 37_000))
    ten = in_turn((5, 37_000), (5.5, 5_000), (99, 60_000))
    run = Cpu(CAPACITY, three(ten, five, zero)).run(15)
    assert max(tick.reach for tick in run.part(0, 5)) > 1.9 * ONE
    assert all(tick.reach < ONE for tick in run.part(6.5))


def test_a_flood_that_cannot_be_shed_costs_the_lower_next_to_nothing() -> None:
    """A router's packets, say: the measure is vain and is given up, for longer and longer."""
    run, without = (
        Cpu(
            CAPACITY, three(steady(1_000), steady(1_000), steady(37_000)), steady(70_000), sheds
        ).run(120)
        for sheds in (True, False)
    )
    assert without.loses(ZERO, 1) > 0.5
    assert run.loses(ZERO, 1) <= without.loses(ZERO, 1) + KEPT
    assert run.cut(1) <= 0.03
    for lower in (TEN, FIVE):
        assert run.reads(lower) >= 0.97 * without.reads(lower)


@pytest.mark.parametrize("rate", [1_000, 10_000, 19_500])
def test_without_overload_nobody_loses_anything(rate: float) -> None:
    run = loaded(rate, rate, rate, 10)
    assert [run.loses(who, 0) for who in range(3)] == [0, 0, 0]
    assert run.cut(0) == 0


def test_it_lets_go_when_the_load_ends() -> None:
    """After it has held what it had for 1.6 s at most, in an eighth of a second a step."""
    flood = in_turn((10, FLOOD), (99, 2_000))
    run = Cpu(CAPACITY, three(flood, flood, steady(FIRST))).run(15)
    assert run.cut(9, 10) == 1
    assert run.cut(12) == 0
    assert run.loses(TEN, 12) == run.loses(FIVE, 12) == 0
