# SPDX-License-Identifier: GPL-2.0-only
"""The policy of pf_sched: who is worth an election, how many, how far, how long."""

import random

from hypothesis import given
from hypothesis import strategies as st
from unit.policy import (
    BUDGET_US,
    ELECT_MOST,
    boost_levels,
    budget_step,
    elect_most,
    fills,
    place,
)

words = st.integers(0, 2**32 - 1)
percents = st.integers(1, 100)
cpus = st.integers(1, 8192)
mosts = st.integers(0, 2**31 - 1)
levels = st.integers(1, 39)
ranks = st.integers(0, 255)
fields = st.lists(ranks, max_size=ELECT_MOST)
budgets = st.integers(-(2**31), 2**31 - 1)
LOOK_US = 12_000  # how late the module may look again: three ticks of its 250 a second


@given(words, words, words, percents)
def test_more_waiting_fills_more(a: int, b: int, size: int, threshold: int) -> None:
    assert fills(min(a, b), size, threshold) <= fills(max(a, b), size, threshold)


@given(words, words, words, percents)
def test_a_larger_buffer_fills_less(waiting: int, a: int, b: int, threshold: int) -> None:
    assert fills(waiting, max(a, b), threshold) <= fills(waiting, min(a, b), threshold)


@given(words, words, percents, percents)
def test_a_higher_threshold_fills_less(waiting: int, size: int, a: int, b: int) -> None:
    assert fills(waiting, size, max(a, b)) <= fills(waiting, size, min(a, b))


@given(words, percents)
def test_at_the_threshold_it_does_not_fill_yet(size: int, threshold: int) -> None:
    at = size * threshold // 100
    assert not fills(at, size, threshold)
    assert at == 2**32 - 1 or fills(at + 1, size, threshold)


@given(fields, ranks)
def test_the_places_are_by_rank(field: list[int], rank: int) -> None:
    assert place(field, rank) == sum(other > rank for other in field)
    assert place(field, max(field, default=0)) == 0


@given(mosts, st.booleans(), st.booleans(), cpus)
def test_how_many_stays_in_bounds(most: int, refused: bool, exhausted: bool, cpus: int) -> None:
    assert 1 <= elect_most(most, refused, exhausted, cpus) <= min(2 * cpus, ELECT_MOST)


@given(mosts, mosts, st.booleans(), st.booleans(), cpus)
def test_how_many_is_monotone(a: int, b: int, refused: bool, exhausted: bool, cpus: int) -> None:
    low, high = min(a, b), max(a, b)
    step = [elect_most(most, refused, exhausted, cpus) for most in (low, high)]
    assert step[0] <= step[1]
    assert elect_most(a, False, exhausted, cpus) <= elect_most(a, True, exhausted, cpus)
    assert elect_most(a, refused, True, cpus) <= elect_most(a, refused, False, cpus)


@given(st.integers(1, ELECT_MOST), cpus)
def test_without_a_reason_it_stays_as_many(most: int, cpus: int) -> None:
    most = min(most, 2 * cpus)
    assert elect_most(most, False, False, cpus) == most


@given(mosts, st.integers(0, 40), cpus)
def test_how_many_converges(most: int, bearable: int, cpus: int) -> None:
    """There is CPU left for so many; somebody waits always."""
    limit = min(2 * cpus, ELECT_MOST)
    seen = []
    for _ in range(2 * ELECT_MOST + 4):
        most = elect_most(most, True, most > bearable, cpus)
        seen.append(most)
    late = seen[ELECT_MOST:]
    if bearable >= limit:
        assert set(late) == {limit}
    else:
        # One too many is how it is found out; half of that is the least it falls to.
        assert max(late) <= bearable + 1
        assert min(late) >= max((bearable + 1) // 2, 1)


@given(mosts, st.integers(1, 12), cpus)
def test_it_comes_to_as_many_as_there_are(most: int, worthy: int, cpus: int) -> None:
    limit = min(2 * cpus, ELECT_MOST)
    for _ in range(ELECT_MOST):
        most = elect_most(most, most < worthy, False, cpus)
    assert most >= min(worthy, limit)
    assert elect_most(most, most < worthy, False, cpus) == most


@given(levels, st.integers(1, ELECT_MOST), st.data())
def test_a_boost_never_rises_with_the_place(level: int, elected: int, data: st.DataObject) -> None:
    places = [boost_levels(level, place, elected) for place in range(elected)]
    assert places == sorted(places, reverse=True)
    assert places[0] == level
    assert all(1 <= place <= level for place in places)
    place = data.draw(st.integers(0, elected - 1))
    if level < 39:
        assert boost_levels(level + 1, place, elected) >= places[place]
    assert boost_levels(level, place, elected + 1) >= places[place]


@given(budgets, words, words, words, percents)
def test_the_budget_is_bounded_and_monotone(
    budget: int, used: int, other: int, elapsed: int, cap: int
) -> None:
    full = BUDGET_US * cap // 100
    new = budget_step(budget, used, elapsed, cap)
    assert -BUDGET_US <= new <= full
    more, less = max(used, other), min(used, other)
    assert budget_step(budget, more, elapsed, cap) <= budget_step(budget, less, elapsed, cap)
    more, less = max(elapsed, other), min(elapsed, other)
    assert budget_step(budget, used, more, cap) >= budget_step(budget, used, less, cap)
    if cap < 100:
        assert new <= budget_step(budget, used, elapsed, cap + 1) or new < 0


@given(budgets, words, percents)
def test_whoever_takes_nothing_has_a_full_budget_in_time(
    budget: int, elapsed: int, cap: int
) -> None:
    """A debt is bounded too."""
    budget = budget_step(budget, 0, elapsed, cap)
    enough = BUDGET_US * (100 + cap) // cap + 100
    assert budget_step(budget, 0, enough, cap) == BUDGET_US * cap // 100


steps = st.lists(st.tuples(st.integers(1, 1_000_000), st.integers(0, 1_000_000)), max_size=60)


@given(steps, percents)
def test_what_is_granted_is_the_share_and_one_bucket(
    wants: list[tuple[int, int]], cap: int
) -> None:
    """Whoever takes no more than there is: nothing is granted twice."""
    full = BUDGET_US * cap // 100
    budget, taken, passed = full, 0, 0
    for elapsed, want in wants:
        use = min(want, elapsed, max(budget, 0))
        budget = budget_step(budget, use, elapsed, cap)
        taken, passed = taken + use, passed + elapsed
        assert taken <= full + passed * cap // 100


@given(st.integers(1_000, LOOK_US), percents, st.integers(0, 2**32))
def test_whoever_takes_all_until_it_is_stopped_gets_the_share(
    look_us: int, cap: int, seed: int
) -> None:
    """As it is used: a boost lasts until a look finds the budget spent."""
    chance = random.Random(seed)
    full = BUDGET_US * cap // 100
    budget, taken, passed = full, 0, 0
    while passed < 3_000_000:
        elapsed = chance.randint(look_us // 2, look_us)
        use = elapsed if budget >= 0 else 0
        budget = budget_step(budget, use, elapsed, cap)
        taken, passed = taken + use, passed + elapsed
        assert taken <= full + passed * cap / 100 + LOOK_US
