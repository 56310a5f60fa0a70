# SPDX-License-Identifier: GPL-2.0-only
"""Who has the places where there are fewer than are wanted: the more important, and of equals
all users about as many."""

import random

from hypothesis import given
from hypothesis import strategies as st
from unit.policy import gives_way

MOST = 16

ranks = st.integers(0, 281)  # levels, too
users = st.integers(0, 3)
taken = st.lists(st.tuples(ranks, users), min_size=1, max_size=MOST)
# Of a few ranks, or equals would be rare.
alike = st.lists(st.tuples(st.integers(0, 1), users), min_size=1, max_size=MOST)


def who_gives_way(of: list[tuple[int, int]], rank: int, user: int) -> int:
    return gives_way([one for one, _ in of], [one for _, one in of], rank, user)


@given(taken, ranks, users)
def test_the_least_important_makes_room_for_a_better_whose_it_may_be(
    of: list[tuple[int, int]], rank: int, user: int
) -> None:
    who = who_gives_way(of, rank, user)
    least = min(of)[0]
    if least < rank:
        assert of[who][0] == least
    else:
        assert who < 0 or of[who][0] == rank


@given(alike, st.integers(0, 1), users)
def test_one_users_places_are_shared_with_an_equal(
    of: list[tuple[int, int]], rank: int, user: int
) -> None:
    """A user with none gets one if another has two. Who gives one up still has as many as he."""
    equals = [his for one, his in of if one == rank]
    who = who_gives_way(of, rank, user)
    if min(of)[0] < rank:
        return
    if user not in equals and len(equals) > len(set(equals)):
        assert who >= 0
    if who >= 0:
        assert of[who][0] == rank
        assert equals.count(of[who][1]) - 1 >= equals.count(user) + 1


@given(st.integers(1, MOST), st.integers(1, 4), st.integers(0, 10_000))
def test_equals_share_the_places_and_then_keep_them(places: int, nr: int, seed: int) -> None:
    """First one user has all. Whoever comes, again and again: nobody is moved in the end."""
    chance = random.Random(seed)
    of = [(0, 0)] * places
    moved = 0
    for _ in range(40 * places * nr):
        user = chance.randrange(nr)
        who = who_gives_way(of, 0, user)
        if who >= 0:
            of[who] = 0, user
            moved += 1
    counts = [[his for _, his in of].count(user) for user in range(nr)]
    assert max(counts) - min(counts) <= 1
    assert moved < places * nr


@given(taken, ranks, st.integers(1, MOST))
def test_one_by_one_the_best_stay(of: list[tuple[int, int]], rank: int, places: int) -> None:
    """Whatever the order they come in, those of the highest ranks are left."""
    left: list[tuple[int, int]] = []
    for one in [*of, (rank, 0)]:
        if len(left) == places:
            who = who_gives_way(left, *one)
            if who < 0:
                continue
            del left[who]
        left.append(one)
    all_of_them = sorted(one for one, _ in [*of, (rank, 0)])
    assert sorted(one for one, _ in left) == all_of_them[-places:]
