# SPDX-License-Identifier: GPL-2.0-only
"""The policy: who ranks above whom, how much is shed, and from whom."""

import math

from hypothesis import given
from hypothesis import strategies as st
from unit.policy import (
    DEADLINE,
    IDLE,
    LEVELS,
    NICE,
    ONE,
    RANKS,
    RT,
    Cut,
    cut_share,
    cut_step,
    harm_step,
    harmed,
    keep,
    level,
    rank,
    rank_prio,
    rate_update,
    relieved,
    worth,
)

ranks = st.integers(0, RANKS - 1)
nices = st.integers(-20, 19)
words = st.integers(0, 2**32 - 1)
rates = st.integers(0, 10_000_000)
shares = st.integers(0, ONE)
level_lists = st.lists(st.integers(0, LEVELS - 1), max_size=12, unique=True).map(sorted)
cuts = st.builds(Cut, st.integers(0, LEVELS - 1), st.integers(0, ONE - 1))
times = st.integers(1, 1_000_000)


@given(nices, nices)
def test_a_lower_nice_ranks_higher(one: int, other: int) -> None:
    assert (rank(NICE, one) > rank(NICE, other)) == (one < other)


def test_classes_stand_above_each_other() -> None:
    order = [rank(IDLE)]
    order += [rank(NICE, nice) for nice in range(19, -21, -1)]
    order += [rank(RT, 0, priority) for priority in range(1, 100)]
    order += [rank(DEADLINE)]
    assert order == list(range(RANKS))


@given(st.integers(-(2**31), 2**31 - 1), words, st.integers(0, 3))
def test_ranks_stay_in_range(nice: int, priority: int, kind: int) -> None:
    assert 0 <= rank(kind, nice, priority & 0x7FFFFFFF) < RANKS


def test_the_kernels_scale() -> None:
    assert [rank_prio(rank(NICE, nice)) for nice in range(-20, 20)] == list(range(100, 140))
    assert [rank_prio(rank(RT, 0, p)) for p in range(1, 100)] == list(range(98, -1, -1))
    assert rank_prio(rank(DEADLINE)) == -1
    assert rank_prio(rank(IDLE)) == 139


@given(ranks, ranks, st.booleans(), st.booleans())
def test_an_election_lifts_above_equals_and_never_to_a_higher_rank(
    one: int, other: int, one_elected: bool, other_elected: bool
) -> None:
    if one > other:
        assert level(one, one_elected) > level(other, other_elected)
    assert level(one, True) == level(one, False) + 1
    assert level(one, one_elected) < LEVELS


@given(words, words, st.integers(1, 2**32 - 1))
def test_a_rate_lies_between_what_was_and_what_is(rate: int, packets: int, elapsed: int) -> None:
    sample = min(packets * 1_000_000 // elapsed, 2**32 - 1)
    new = rate_update(rate, packets, elapsed)
    assert min(rate or sample, sample) - 4 <= new <= max(rate, sample)


@given(rates, st.integers(1, 1_000_000))
def test_a_steady_rate_is_found(before: int, steady: int) -> None:
    rate = before
    for _ in range(100):
        rate = rate_update(rate, steady * 20_000 // 1_000_000, 20_000)
    assert abs(rate - steady) <= steady // 100 + 54  # a window's packets are whole numbers


@given(rates)
def test_a_pause_is_not_averaged_with_the_past(before: int) -> None:
    assert rate_update(before, 1, 1_000_000) == 1


@given(cuts, st.integers(0, LEVELS - 1), st.integers(0, LEVELS - 1))
def test_more_important_receivers_are_never_shed_more(cut: Cut, one: int, other: int) -> None:
    assert 0 <= cut_share(cut, one) <= ONE
    if one > other:
        assert cut_share(cut, one) <= cut_share(cut, other)


@given(shares, rates, rates, rates)
def test_the_floor_is_held(share: int, rate: int, top: int, floor: int) -> None:
    kept = keep(share, rate, top, floor)
    assert 0 <= kept <= ONE
    if rate <= floor or not share:
        assert kept == ONE
    else:
        assert rate * kept / ONE >= min(rate, floor) - rate / ONE  # within the coin's grain


@given(st.integers(1, ONE), rates, rates, rates)
def test_the_fair_part_is_never_shed(share: int, rate: int, top: int, floor: int) -> None:
    allowed = max(top * (ONE - share) // ONE, floor)
    kept = keep(share, rate, top, floor)
    assert (kept == ONE) == (rate <= allowed or kept * rate // ONE >= rate)
    if rate > allowed:
        # The water falls from the top: all above the mark are brought down to it.
        assert abs(rate * kept / ONE - allowed) <= rate / ONE + 1


@given(shares, shares, rates, rates, rates)
def test_a_larger_share_never_keeps_more(a: int, b: int, rate: int, top: int, floor: int) -> None:
    if a <= b:
        assert keep(a, rate, top, floor) >= keep(b, rate, top, floor)


@given(words, words, words, words)
def test_more_loss_is_more_harm(harm: int, a: int, b: int, elapsed: int) -> None:
    if a <= b:
        assert harm_step(harm, a, elapsed) <= harm_step(harm, b, elapsed)
        assert harmed(a) <= harmed(b)


def until_harmed(*losses: float) -> float:
    """Seconds of windows of these losses, over and over, until it counts as harm."""
    harm = 0
    for window in range(100):
        if harmed(harm):
            return window / 10
        harm = harm_step(harm, round(losses[window % len(losses)] * ONE), 100_000)
    return math.inf


def test_what_counts_as_harm() -> None:
    assert until_harmed(0.84) == 0.1
    assert 0.2 <= until_harmed(0.28) <= 0.4
    assert until_harmed(0.15) <= 1.2
    assert until_harmed(0.09) == math.inf
    assert until_harmed(0.3, 0, 0, 0) == math.inf  # a burst now and then


@given(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 2**40))
def test_looking_pays_by_what_is_dropped(dropped: int, more: int, passed: int) -> None:
    if dropped + passed >= 256:
        assert worth(dropped, passed) <= worth(dropped + more, passed)
        assert not worth(0, max(passed, 256))
    assert worth(passed // 6 + 1, passed)
    assert not worth(passed // 8, max(passed, 256))


@given(shares, shares, shares)
def test_relief_is_less_loss(before: int, a: int, b: int) -> None:
    if before:
        assert not relieved(before, before)
    if a <= b:
        assert relieved(before, a) >= relieved(before, b)
    assert relieved(before, before // 2)


def test_a_tenth_more_is_relief_where_most_is_lost() -> None:
    assert relieved(round(0.7 * ONE), round(0.48 * ONE))
    assert not relieved(round(0.06 * ONE), round(0.05 * ONE))


def position(cut: Cut, levels: list[int]) -> int:
    """How far up the order a cut stands."""
    below = sum(other < cut.level for other in levels)
    return below * ONE + (cut.share if cut.level in levels else 0)


@given(cuts, words, times, level_lists)
def test_a_step_goes_the_right_way(
    cut: Cut, pressure: int, elapsed: int, levels: list[int]
) -> None:
    new = cut_step(cut, pressure, elapsed, levels)
    top = len(levels) * ONE
    before, after = min(position(cut, levels), top), position(new, levels)
    assert new == Cut() or new.level in levels
    assert after < max(top, 1)
    assert after - before <= ONE
    assert before - after <= ONE // 40 + 1  # a late tick does not open the gate at once
    if pressure > ONE // 50 and elapsed:
        assert after >= min(before, max(top - 1, 0))
    if pressure < ONE // 100:
        assert after <= before


@given(cuts, words, times, level_lists)
def test_with_time_to_spare_it_lets_go_sooner(
    cut: Cut, pressure: int, elapsed: int, levels: list[int]
) -> None:
    busy = cut_step(cut, pressure, elapsed, levels)
    idle = cut_step(cut, pressure, elapsed, levels, spare=True)
    assert position(idle, levels) <= position(busy, levels)


@given(cuts, words, times)
def test_with_nobody_to_shed_nothing_is_cut(cut: Cut, pressure: int, elapsed: int) -> None:
    assert cut_step(cut, pressure, elapsed, []) == Cut()


@given(cuts, level_lists.filter(bool), st.integers(0, LEVELS - 1))
def test_whoever_is_not_listed_is_not_shed_in_part(cut: Cut, levels: list[int], of: int) -> None:
    new = cut_step(cut, ONE, 10_000, levels)
    if of > levels[-1]:
        assert cut_share(new, of) == 0
