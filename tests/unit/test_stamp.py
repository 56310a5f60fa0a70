# SPDX-License-Identifier: GPL-2.0-only
"""Stamps: when something was, as jiffies that come round."""

from hypothesis import given
from hypothesis import strategies as st
from unit.policy import ahead, within

HZ = 1000
ALL = 2**32

words = st.integers(0, ALL - 1)
stamps = words.map(lambda at: at | 1)
periods = st.integers(1, 600 * HZ)


@given(stamps, periods, st.floats(0, 1, exclude_max=True))
def test_what_was_is_believed_for_so_long(at: int, how_long: int, part: float) -> None:
    assert within((at + int(how_long * part)) % ALL, at, how_long)


@given(stamps, periods, words)
def test_what_was_is_not_believed_again(at: int, how_long: int, age: int) -> None:
    """Not even when half of all jiffies have passed: a quiet machine reaches that in 25 days."""
    if how_long <= age < ALL - HZ:
        assert not within((at + age) % ALL, at, how_long)


def test_half_of_all_jiffies_later() -> None:
    assert not within(1 + 2**31 + HZ, 1, HZ)
    assert not within(1 + 2**31 + 10 * HZ, 1, HZ)
    assert not within(1 + 3 * 2**30, 1, HZ)


@given(stamps, periods, st.integers(1, HZ))
def test_what_another_cpu_has_just_written_is_believed(at: int, how_long: int, ahead: int) -> None:
    assert within((at - ahead) % ALL, at, how_long)


@given(words, periods)
def test_never_is_never(now: int, how_long: int) -> None:
    assert not within(now, 0, how_long)


@given(words, periods, words)
def test_what_is_to_come_has_come_once_and_for_all(until: int, most: int, age: int) -> None:
    assert ahead((until - most) % ALL, until, most)
    assert ahead((until - 1) % ALL, until, most)
    if age < ALL - most - HZ:
        assert not ahead((until + age) % ALL, until, most)
