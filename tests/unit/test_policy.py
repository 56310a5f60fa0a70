# SPDX-License-Identifier: GPL-2.0-only
"""The policy: who ranks above whom, how much is shed, and from whom."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.policy import (
    DEADLINE,
    IDLE,
    LEVELS,
    NICE,
    ONE,
    OUTCOMES,
    RANKS,
    RT,
    Crowd,
    Cut,
    cut_at,
    cut_most,
    cut_reach,
    cut_share,
    floor_of,
    group_counts,
    keep,
    level,
    looked_in_vain,
    rank,
    rank_prio,
    rate_update,
    stood_long,
    stood_step,
    worth,
)

ranks = st.integers(0, RANKS - 1)
nices = st.integers(-20, 19)
words = st.integers(0, 2**32 - 1)
rates = st.integers(0, 10_000_000)
shares = st.integers(0, ONE)
level_lists = st.lists(st.integers(0, LEVELS - 1), max_size=12, unique=True).map(sorted)
cuts = st.builds(Cut, st.integers(0, LEVELS - 1), st.integers(0, ONE - 1))


@given(nices, nices)
def test_a_lower_nice_ranks_higher(one: int, other: int) -> None:
    assert (rank(NICE, one) > rank(NICE, other)) == (one < other)


@given(st.integers(-20, 19), st.booleans())
def test_a_group_that_is_not_trusted_only_lowers(nice: int, trusted: bool) -> None:
    assert group_counts(nice, trusted) == (nice if trusted or nice > 0 else 0)


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


def test_a_floor_by_weight_is_what_that_share_of_the_cpu_can_handle() -> None:
    # A third of a CPU, at 50 us a packet.
    assert floor_of(100, 100, 1024, 3072, 50_000) == 6666
    assert floor_of(100, 50, 1024, 3072, 50_000) == 3333
    assert floor_of(100, 100, 5000, 3072, 50_000) == 20_000  # no more than all of it


@given(words, st.integers(0, 100), words, words, words)
def test_a_floor_by_weight_is_never_below_the_floor(
    floor: int, percent: int, weight: int, weights: int, packet_ns: int
) -> None:
    floor = min(floor, 1_000_000)
    found = floor_of(floor, percent, weight, weights, packet_ns)
    assert found >= floor
    if not percent or not weights or not packet_ns:
        assert found == floor


@given(shares, rates, rates, rates)
def test_the_floor_is_held(share: int, rate: int, top: int, floor: int) -> None:
    kept = keep(share, rate, top, floor)
    assert 0 <= kept <= ONE
    if rate <= floor or not share:
        assert kept == ONE
    else:
        assert rate * kept >= floor * ONE  # the coin's grain is nobody's loss


def test_the_floor_is_held_in_the_greatest_flood() -> None:
    assert keep(ONE, 10_000_000, 10_000_000, 100) > 0
    assert keep(ONE, 70_000, 70_000, 1) > 0
    assert keep(ONE, 10_000_000, 10_000_000, 0) == 0


FLOORS = 16


@given(st.integers(1, 100_000), rates, st.integers(0, 1_000_000))
def test_many_sockets_keep_a_few_floors_together(sockets: int, rate: int, floor: int) -> None:
    kept = keep(ONE, rate, rate, floor, sockets)
    if sockets <= FLOORS:
        assert kept == keep(ONE, rate, rate, floor)
    else:
        # The coin's grain is one in ONE packets.
        assert sockets * rate * kept <= FLOORS * floor * ONE + sockets * rate
    if floor:
        assert kept > 0


def counted(sockets: int, rate: int, seconds: int) -> list[int]:
    """How many they are taken to be, at the end of each second, where each is sent that rate and
    its windows end with the first packet after 20 ms."""
    crowd, found = Crowd(), []
    began = [0.0] * sockets
    packets = sorted(
        ((turn + sock / sockets) * 1000 / rate, sock)
        for sock in range(sockets)
        for turn in range(rate * seconds)
    )
    now_sockets = 0
    for number, (at, sock) in enumerate(packets, 1):
        if at - began[sock] >= 20:
            now_sockets = crowd.note(int(at), int(at - began[sock]))
            began[sock] = at
        if number % (rate * sockets) == 0:
            found.append(now_sockets)
    return found


@pytest.mark.parametrize("sockets", [1, 10, 100, 1000])
@pytest.mark.parametrize("rate", [5, 40, 51, 70, 100, 300])
def test_a_users_sockets_are_counted_by_their_time(sockets: int, rate: int) -> None:
    for found in counted(sockets, rate, 3):
        assert sockets * 0.8 - 1 <= found <= sockets * 1.3 + 2


def test_sockets_that_are_sent_nothing_any_more_are_forgotten() -> None:
    crowd = Crowd()
    assert [crowd.note(10_000, 1000) for _ in range(1000)][-1] == 1000
    assert crowd.note(10_300, 1000) == 1000
    assert crowd.note(10_600, 1000) == 1
    assert [crowd.note(11_000, 1000) for _ in range(1000)][-1] == 1000
    assert crowd.note(20_000, 1000) == 1


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


@given(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 2**40))
def test_looking_pays_by_what_is_dropped(dropped: int, more: int, passed: int) -> None:
    if dropped + passed >= 256:
        assert worth(dropped, passed) <= worth(dropped + more, passed)
        assert not worth(0, max(passed, 256))
    assert worth(passed // 6 + 1, passed)
    assert not worth(passed // 8, max(passed, 256))


def test_a_flood_that_ends_at_no_receiver_is_not_looked_at_for_ever() -> None:
    """Whatever was looked up costs a look; what its header tells does not."""
    vain = {outcome for outcome in OUTCOMES if looked_in_vain(outcome)}
    assert vain == {"judged", "exempt", "untracked", "no_receiver", "kernel_socket", "forwarded"}
    assert not worth(0, 256)


@given(words, level_lists)
def test_a_cut_stands_where_it_was_put(reach: int, levels: list[int]) -> None:
    cut = cut_at(reach, levels)
    assert cut_reach(cut, levels) == min(reach, cut_most(levels))
    assert cut == Cut() or cut.level in levels
    assert cut.share < ONE


@given(cuts, level_lists)
def test_a_cut_is_found_again_unless_its_level_is_gone(cut: Cut, levels: list[int]) -> None:
    again = cut_at(cut_reach(cut, levels), levels)
    if cut.level in levels and cut_reach(cut, levels):
        # A rank of two levels has half of the places for each.
        assert again.level == cut.level and 0 <= cut.share - again.share <= 1
    else:  # it stands below the next, at the end of the last, or on the other of its rank
        others = [of for of in levels if of // 2 > cut.level // 2]
        assert all(cut_share(again, of) == 0 for of in others)


@given(st.integers(0, LEVELS // 2 - 1), st.booleans(), st.integers(1, ONE - 1))
def test_an_election_changes_nothing_for_a_receiver_alone_in_its_rank(
    of: int, elected: bool, share: int
) -> None:
    before, after = level(of, elected), level(of, not elected)
    cut = cut_at(share, [before])
    assert cut_share(cut, before) == share
    again = cut_at(cut_reach(cut, [after]), [after])
    assert cut_share(again, after) == share


@given(st.lists(st.integers(0, LEVELS // 2 - 1), unique=True, max_size=8), st.data())
def test_elections_take_no_cut_further(ranks: list[int], data: st.DataObject) -> None:
    """A rank is one step, of which those who are not elected are shed first."""
    both = sorted(level(of, elected) for of in ranks for elected in (False, True))
    assert cut_most(both) == cut_most(sorted(level(of) for of in ranks))
    reach = data.draw(st.integers(0, cut_most(both)))
    for of in ranks:
        cut = cut_at(reach, both)
        assert cut_share(cut, level(of, True)) <= cut_share(cut, level(of))
        if cut_share(cut, level(of, True)):
            assert cut_share(cut, level(of)) == ONE


@given(words, words, level_lists, st.integers(0, LEVELS - 1))
def test_who_reaches_further_sheds_no_less(a: int, b: int, levels: list[int], of: int) -> None:
    one, two = sorted((a, b))
    assert cut_reach(cut_at(one, levels), levels) <= cut_reach(cut_at(two, levels), levels)
    if of in levels:
        assert cut_share(cut_at(one, levels), of) <= cut_share(cut_at(two, levels), of)


@given(words, level_lists)
def test_nobody_above_the_listed_is_shed(reach: int, levels: list[int]) -> None:
    cut = cut_at(reach, levels)
    top = levels[-1] if levels else 0
    assert all(cut_share(cut, of) == 0 for of in range(top + 1, LEVELS))
    if not levels:
        assert cut == Cut() and cut_most([]) == 0


@given(words, st.booleans(), words)
def test_what_a_queue_stood_is_bounded(stood: int, stands: bool, elapsed: int) -> None:
    new = stood_step(stood, stands, elapsed)
    assert new <= 500_000 if stands else new <= stood
    assert stood_step(min(stood, 500_000), True, elapsed) >= min(stood, 500_000)


def stood_after(stands: float, of: float, seconds: float) -> float:
    """Seconds until a queue that stands so long at a time has stood for long."""
    stood = 0
    for tick in range(round(seconds * 100)):
        if stood_long(stood):
            return tick / 100
        stood = stood_step(stood, tick / 100 % of < stands, 10_000)
    return math.inf


def test_what_is_no_burst() -> None:
    assert stood_after(1, 1, 1) <= 0.26
    assert stood_after(0.2, 0.4, 10) <= 0.7
    assert stood_after(0.05, 1, 600) == math.inf
    assert stood_after(0.2, 4, 600) == math.inf
