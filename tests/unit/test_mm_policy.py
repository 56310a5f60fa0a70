# SPDX-License-Identifier: GPL-2.0-only
"""The policy of pf_mm: how large, when, how far, and what goes back."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from unit.policy import (
    DEADLINE,
    IDLE,
    NICE,
    RANKS,
    RT,
    SIZE_MOST,
    mean_fast,
    mean_slow,
    rank,
    size_grown,
    size_in_time,
    size_most,
    size_shrunk,
    size_threshold,
    size_unused,
)

words = st.integers(0, 2**32 - 1)
sizes = st.integers(1, SIZE_MOST)
# A buffer's size, and how much of it is its owner's own.
owned = st.tuples(sizes, sizes).map(lambda pair: (max(pair), min(pair)))
# The same and what was used of it, so little that it shrinks.
owned_unused = st.integers(4, SIZE_MOST).flatmap(
    lambda size: st.tuples(st.just(size), st.integers(3, size - 1), st.integers(0, size // 3))
)
defaults = st.integers(4 << 10, SIZE_MOST)
scales = st.integers(10, 10_000)
ranks = st.integers(0, RANKS - 1)
reliefs = st.integers(0, 1_000_000)
# A buffer, its arrivals, and a relief within which they fill at most three quarters of it.
reliefs_in_time = st.tuples(sizes, words).flatmap(
    lambda pair: st.tuples(
        *map(st.just, pair), st.integers(0, min(1_000_000, pair[0] * 750 // max(pair[1], 1)))
    )
)


@given(st.integers(-20, 19))
def test_the_limit_is_the_papers(nice: int) -> None:
    """default_size x (140 - prio) / 20, prio being 100..139 for nice -20..19."""
    prio = 120 + nice
    assert size_most(512_000, 100, rank(NICE, nice)) == 512_000 * (140 - prio) // 20


def test_the_papers_example() -> None:
    """Nice 0, 5 and 10 (section 4.6): 500, 375 and 250 KB."""
    assert [size_most(500_000, 100, rank(NICE, n)) for n in (0, 5, 10)] == [
        500_000,
        375_000,
        250_000,
    ]


@given(defaults, scales, st.integers(1, 99))
def test_real_time_is_the_top_and_idle_the_end(default: int, scale: int, priority: int) -> None:
    top = size_most(default, scale, rank(NICE, -20))
    assert size_most(default, scale, rank(RT, 0, priority)) == top
    assert size_most(default, scale, rank(DEADLINE)) == top
    assert size_most(default, scale, rank(IDLE)) == size_most(default, scale, rank(NICE, 19))


@given(words, words, ranks, ranks, words)
def test_the_limit_is_monotone_and_bounded(
    default: int, scale: int, a: int, b: int, other: int
) -> None:
    low, high = min(a, b), max(a, b)
    scale, more = min(scale, other) % 10_001, max(scale, other) % 10_001
    default %= SIZE_MOST + 1
    assert size_most(default, scale, low) <= size_most(default, scale, high) <= SIZE_MOST
    if scale <= more:
        assert size_most(default, scale, low) <= size_most(default, more, low)


@given(sizes, words, reliefs)
def test_the_threshold_is_the_papers_within_its_bounds(size: int, rate: int, relief: int) -> None:
    """min(2L/3, L - lambda x m)."""
    threshold = size_threshold(size, rate, relief)
    papers = min(size * 2 // 3, size - rate * relief // 1000)
    assert threshold == max(papers, size // 4)
    assert size // 4 <= threshold <= size * 2 // 3
    assert size_threshold(size, 0, relief) == size_threshold(size, rate, 0) == size * 2 // 3


@given(sizes, words, words, reliefs)
def test_who_is_sent_more_grows_sooner(size: int, a: int, b: int, relief: int) -> None:
    low, high = min(a, b), max(a, b)
    assert size_threshold(size, high, relief) <= size_threshold(size, low, relief)
    assert size_threshold(size, low, relief) <= size_threshold(size, low, relief // 2)


@given(reliefs_in_time)
def test_no_overflow_while_relief_is_under_way(case: tuple[int, int, int]) -> None:
    """What comes meanwhile fits above the threshold, wherever that is the formula's own."""
    size, rate, relief = case
    assert size_threshold(size, rate, relief) + rate * relief // 1000 <= size


@given(sizes, words, words, reliefs)
def test_a_step_is_upward_and_within_the_limit(
    size: int, most: int, rate: int, relief: int
) -> None:
    grown = size_grown(size, most, rate, relief)
    assert size <= grown <= max(size, most)
    if most > size:
        assert grown > size
        assert grown >= min(2 * size, most)
        assert grown >= min(size + 2 * (rate * relief // 1000), most)


@given(st.integers(2304, SIZE_MOST), sizes, words, reliefs)
def test_few_steps_reach_the_limit(size: int, most: int, rate: int, relief: int) -> None:
    for _ in range(17):
        size = size_grown(size, most, rate, relief)
    assert size >= most


@given(owned, words)
def test_what_shrinks_keeps_its_own_and_what_was_used(buffer: tuple[int, int], used: int) -> None:
    size, own = buffer
    shrunk = size_shrunk(size, own, used)
    assert own <= shrunk <= size
    if shrunk < size:
        assert used < shrunk


@given(owned_unused, reliefs)
def test_no_oscillation(buffer: tuple[int, int, int], relief: int) -> None:
    """The same load that let a buffer shrink does not let it grow, nor shrink further."""
    size, own, used = buffer
    shrunk = size_shrunk(size, own, used)
    assert shrunk < size
    assert used <= size_threshold(shrunk, 0, relief)
    assert size_shrunk(shrunk, own, used) == shrunk
    # And what has just grown, from a buffer filled to its threshold, stays.
    grown = size_grown(shrunk, SIZE_MOST, 0, 0)
    filled = size_threshold(shrunk, 0, 0) + 1
    assert size_shrunk(grown, own, filled) == grown


@given(owned, words)
def test_in_time_all_comes_back(buffer: tuple[int, int], used: int) -> None:
    """Unless it is used: one look gives back all but twice what was used."""
    size, own = buffer
    assert size_shrunk(size, own, 0) == own
    if used * 3 <= size:
        assert size_shrunk(size, own, used) == min(size, max(own, 2 * used))


@given(words, words, st.integers(0, 60_000))
def test_a_content_does_not_wait_longer_than_allowed(most: int, drain: int, max_delay: int) -> None:
    bound = size_in_time(most, drain, max_delay)
    assert bound <= most
    if max_delay:
        assert bound == min(most, drain * max_delay)
    else:
        assert bound == most


@given(owned, words)
def test_unused_is_what_neither_it_nor_its_packets_need(buffer: tuple[int, int], used: int) -> None:
    size, own = buffer
    unused = size_unused(size, own, used)
    assert 0 <= unused <= size - own
    if unused:
        assert size - unused == max(own, used)
    else:
        assert max(own, used) >= size


@given(words, words)
def test_means_lie_between(mean: int, sample: int) -> None:
    for filtered in (mean_fast(mean, sample), mean_slow(mean, sample)):
        if mean:
            # Eighths are rounded down, each by less than one.
            assert min(mean, sample) - 1 <= filtered <= max(mean, sample) + 1
        else:
            assert filtered == sample


@given(st.integers(8, 2**32 - 1), st.integers(8, 2**32 - 1))
def test_the_slow_mean_is_slower_and_both_arrive(mean: int, sample: int) -> None:
    fast, slow = mean_fast(mean, sample), mean_slow(mean, sample)
    assert abs(sample - fast) <= abs(sample - slow) + 1
    for _ in range(400):
        fast, slow = mean_fast(fast, sample), mean_slow(slow, sample)
    assert abs(sample - fast) <= 2
    assert abs(sample - slow) <= 16


@dataclass
class Buffer:
    rank: int
    own: int
    size: int
    used: int

    @property
    def unused(self) -> int:
        return size_unused(self.size, self.own, self.used)


class Memory:
    """The budget as the module keeps it: room is taken before a buffer grows."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.buffers: list[Buffer] = []

    @property
    def left(self) -> int:
        return self.budget - sum(buffer.size - buffer.own for buffer in self.buffers)

    def _next_to_give(self, below: int) -> Buffer | None:
        able = [one for one in self.buffers if one.rank < below and one.unused]
        return min(able, key=lambda one: one.rank) if able else None

    def grow(self, buffer: Buffer, most: int) -> bool:
        """By a step, or by what there is of it."""
        to = size_grown(buffer.size, most, 0, 0)
        while self.left < to - buffer.size:
            giver = self._next_to_give(buffer.rank)
            if giver is None:
                break
            giver.size -= min(giver.unused, to - buffer.size - self.left)
        to = min(to, buffer.size + self.left)
        grows = to > buffer.size
        buffer.size = to
        return grows


buffers = st.tuples(st.integers(0, 5), st.integers(1, 1000), st.integers(0, 4000))
actions = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 5000)), max_size=60)


@given(st.integers(0, 20_000), st.lists(buffers, min_size=1, max_size=8), actions)
def test_the_sum_stays_in_the_budget_and_goes_by_priority(
    budget: int, given_buffers: list[tuple[int, int, int]], wishes: list[tuple[int, int]]
) -> None:
    memory = Memory(budget)
    memory.buffers = [Buffer(r, own, own, used) for r, own, used in given_buffers]
    for which, used in wishes:
        buffer = memory.buffers[which % len(memory.buffers)]
        buffer.used = used
        before = {id(other): other.size for other in memory.buffers}
        grew = memory.grow(buffer, 4000)
        assert 0 <= memory.left <= budget
        for other in memory.buffers:
            assert other.size >= other.own
            if other.size < before[id(other)]:
                assert other.rank < buffer.rank
                # What waits there is never cut off.
                assert other.size >= min(other.used, before[id(other)])
        if not grew and buffer.size < 4000:
            assert memory.left == 0
            assert not any(o.unused for o in memory.buffers if o.rank < buffer.rank)
    for buffer in memory.buffers:
        buffer.used = 0
        buffer.size = size_shrunk(buffer.size, buffer.own, 0)
    assert memory.left == budget
