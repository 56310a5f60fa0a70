# SPDX-License-Identifier: GPL-2.0-only
"""The policy of pf_flow: never too fast, never idle without need, and to each its share."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
from unit.flow import (
    ASLEEP,
    BURST_MOST,
    ELIGIBLE,
    LENGTH_MOST,
    NEVER,
    NOWHERE,
    RATE_MOST,
    WEIGHT_MOST,
    Bucket,
    Choice,
    burst_bytes,
    peak_bytes,
    queue_bytes,
    queue_packets,
)

BYTE = 8 * 10**9  # tokens

rates = st.integers(1, RATE_MOST)
bursts = st.integers(1, BURST_MOST)
sizes = st.one_of(st.integers(20, 1500), st.integers(1, LENGTH_MOST))
times = st.integers(0, 2**64 - 1)
gaps = st.one_of(st.integers(0, 10**7), st.integers(0, 2**62))
arrivals = st.lists(st.tuples(gaps, sizes), max_size=40)
weights = st.lists(st.integers(1, WEIGHT_MOST), min_size=1, max_size=8)


@given(rates, bursts, arrivals, times)
def test_never_over_rate_times_time_and_burst(
    rate: int, burst: int, packets: list[tuple[int, int]], start: int
) -> None:
    """Between any two packets, on a clock that may wrap meanwhile."""
    bucket, now, gone = Bucket(rate, burst, start), 0, []
    for gap, size in packets:
        now = min(now + gap, 2**62)
        if bucket.take(size, (start + now) % 2**64):
            gone.append((now, size))
    for first, (since, _) in enumerate(gone):
        sizes_since = [size for _, size in gone[first:]]
        for last in range(1, len(sizes_since) + 1):
            some = sizes_since[:last]
            elapsed = gone[first + last - 1][0] - since
            most = max(burst, *some)
            assert sum(some) * BYTE <= rate * elapsed + most * BYTE


@given(rates, bursts, arrivals, times)
def test_it_waits_just_as_long_as_its_tokens_need(
    rate: int, burst: int, packets: list[tuple[int, int]], start: int
) -> None:
    """Against sums of whole numbers of any size: not a nanosecond more, or less."""
    bucket, now = Bucket(rate, burst, start), 0
    held = burst * BYTE
    for gap, size in packets:
        now += gap % 10**9
        held = min(held + rate * (gap % 10**9), burst * BYTE)
        need = min(size, burst) * BYTE
        wait = bucket.wait(size, (start + now) % 2**64)
        assert bucket.tokens == held
        assert wait == (max(need - held, 0) + rate - 1) // rate
        now += wait
        held = min(held + rate * wait, burst * BYTE)
        assert bucket.wait(size, (start + now) % 2**64) == 0
        bucket.spend(size)
        held -= size * BYTE


@given(rates, st.integers(2000, BURST_MOST), st.integers(1, 100))
def test_who_always_sends_gets_the_rate(rate: int, burst: int, number: int) -> None:
    bucket, now = Bucket(rate, burst), 0
    bucket.spend(burst)
    for _ in range(number):
        now += bucket.wait(1500, now)
        bucket.spend(1500)
    # Each waits for less than a nanosecond more than it must, and the next ones do not.
    assert now == -(-number * 1500 * BYTE // rate)


@given(rates, bursts, st.integers(0, 2**30), sizes, st.integers(0, 10**12))
def test_batches_cost_neither_tokens_nor_a_time_that_matters(
    rate: int, burst: int, spent: int, size: int, waited: int
) -> None:
    bucket = Bucket(rate, burst)
    bucket.spend(spent)
    wait = bucket.wait(size, 0)
    later = bucket.batch(wait, waited)
    assert wait <= later <= wait + min(waited // 64, 10**6)
    # Nothing runs over that would not have done so by the wait alone.
    assert later == wait or bucket.tokens + rate * later <= burst * BYTE


def test_what_has_waited_long_goes_in_batches() -> None:
    bucket = Bucket(35_000_000, 43750)
    bucket.spend(43750)
    wait = bucket.wait(1500, 0)
    assert bucket.batch(wait, 10**8) == wait + 10**6
    assert bucket.batch(wait, 32 * 10**6) == wait + 5 * 10**5
    assert bucket.batch(wait, 10**7) == wait  # a 64th is less than one packet takes


@given(bursts, sizes, times)
def test_without_a_rate_there_is_no_bound(burst: int, size: int, now: int) -> None:
    bucket = Bucket(0, burst, now)
    assert all(bucket.take(size, now) for _ in range(10))
    assert bucket.holds(size)
    assert not bucket.slow(size)


@given(rates, bursts, sizes)
def test_what_a_bucket_holds_leaves_no_debt(rate: int, burst: int, size: int) -> None:
    bucket = Bucket(rate, burst)
    assert bucket.take(size, 0)
    assert bucket.holds(size) == (bucket.tokens >= 0)


@given(rates, st.integers(LENGTH_MOST, BURST_MOST), sizes)
def test_slow_is_what_takes_more_than_a_millisecond(rate: int, burst: int, size: int) -> None:
    bucket = Bucket(rate, burst)
    bucket.spend(burst)
    assert bucket.slow(size) == (bucket.wait(size, 0) > 10**6)


@given(rates, rates, bursts, bursts, sizes)
def test_a_change_gives_no_tokens(a: int, b: int, deep: int, flat: int, size: int) -> None:
    bucket = Bucket(a, deep)
    bucket.spend(size)
    before = bucket.tokens
    bucket.set(b, flat, 0)
    assert bucket.tokens == min(before, flat * BYTE)


@given(rates, bursts, sizes, st.integers(1, 2**62))
def test_a_clock_that_steps_back_gives_none_either(
    rate: int, burst: int, size: int, back: int
) -> None:
    bucket = Bucket(rate, burst, 2**62)
    bucket.spend(size)
    before = bucket.tokens
    bucket.wait(size, 2**62 - back)
    assert bucket.tokens == before


@given(rates, rates)
def test_lengths_follow_the_rate(a: int, b: int) -> None:
    for of in (burst_bytes, peak_bytes, queue_bytes, lambda rate: queue_packets(queue_bytes(rate))):
        assert 0 < of(min(a, b)) <= of(max(a, b)) <= BURST_MOST
    for of in (burst_bytes, peak_bytes):
        assert of(a, LENGTH_MOST) == of(a, 1514) + LENGTH_MOST - 1514
    assert queue_bytes(a) == min(max(a // 80, 32 << 10), 64 << 20)


lengths = st.lists(st.integers(20, LENGTH_MOST), min_size=60, max_size=60)


@given(weights, lengths, times)
def test_lag_is_bounded_by_a_packet(shares: list[int], packets: list[int], base: int) -> None:
    """Who always has packets is never behind or ahead of its share by more than the longest one."""
    choice, total = Choice(shares, base), sum(shares)
    longest, served = max(packets), [0] * len(shares)
    for who in range(len(shares)):
        choice.join(who, packets[who])
    for turn, _ in enumerate(packets):
        picked = choice.pick()
        assert picked is not None
        who = picked
        length = choice.entities[who].length
        choice.served(who, length)
        served[who] += length
        choice.again(who, packets[(turn * 7 + who) % len(packets)])
        choice.sound()
        for share, had in zip(shares, served, strict=True):
            assert abs(Fraction(sum(served) * share, total) - had) <= longest + 1


SCHEDULERS = ("eevdf", "by_rank")
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["join", "sleep", "leave", "serve", "serve", "serve", "reweigh", "wake", "switch"]
        ),
        st.integers(0, 7),
        st.integers(20, LENGTH_MOST),
    ),
    max_size=80,
)


@given(weights, steps, times, st.sampled_from(SCHEDULERS))
def test_whoever_comes_and_goes_it_is_work_conserving(
    shares: list[int], doings: list[tuple[str, int, int]], base: int, scheduler: str
) -> None:
    """Somebody is picked as long as somebody has packet and tokens; and never who has not."""
    choice, now = Choice(shares, base, scheduler), 0
    asleep: dict[int, int] = {}
    awake: set[int] = set()
    for what, number, length in doings:
        who = number % len(shares)
        if what == "serve":
            picked = choice.pick()
            assert (picked is not None) == bool(awake)
            if picked is None:
                continue
            assert picked in awake
            choice.served(picked, choice.entities[picked].length)
            if number == 0:
                choice.sleep(picked, length, now + length)
                awake.remove(picked)
                asleep[picked] = now + length
            else:
                choice.again(picked, length)
        elif what == "join" and who not in awake and who not in asleep:
            choice.join(who, length)
            awake.add(who)
        elif what == "sleep":
            choice.sleep(who, length, now + length)
            awake.discard(who)
            asleep[who] = now + length
        elif what == "leave":
            choice.leave(who)
            awake.discard(who)
            asleep.pop(who, None)
            assert choice.entities[who].where == NOWHERE
        elif what == "reweigh":
            choice.reweigh(who, 1 + length % WEIGHT_MOST)
        elif what == "switch":
            choice.switch(SCHEDULERS[number % 2], now)
            asleep |= dict.fromkeys(awake, now)
            awake.clear()
        elif what == "wake":
            now += length
            choice.wake(now)
            woken = {one for one, at in asleep.items() if at <= now}
            awake |= woken
            for one in woken:
                del asleep[one]
        assert set(choice.where(ASLEEP)) == set(asleep)
        assert choice.next() == min(asleep.values(), default=NEVER)
        choice.sound()


@given(st.integers(2, 8), st.integers(20, LENGTH_MOST))
def test_a_flow_without_tokens_holds_up_nobody(number: int, length: int) -> None:
    choice = Choice([WEIGHT_MOST] + [1] * (number - 1))
    for who in range(number):
        choice.join(who, length)
    choice.sleep(0, length, 10**9)
    for _ in range(3 * number):
        picked = choice.pick()
        assert picked
        choice.served(picked, length)
        choice.again(picked, length)
    choice.wake(10**9)
    assert choice.entities[0].where == ELIGIBLE


@given(st.integers(1, WEIGHT_MOST), st.integers(1, WEIGHT_MOST), st.integers(20, 1500))
def test_shares_are_by_weight_where_both_sleep_now_and_then(a: int, b: int, length: int) -> None:
    """Falling asleep for a moment neither gains nor costs a share."""
    choice, served = Choice([a, b]), [0, 0]
    for who in range(2):
        choice.join(who, length)
    for turn in range(200):
        picked = choice.pick()
        assert picked is not None
        choice.served(picked, length)
        served[picked] += length
        if turn % 3:
            choice.again(picked, length)
        else:
            choice.sleep(picked, length, turn)
            choice.wake(turn)
    assert abs(Fraction(sum(served) * a, a + b) - served[0]) <= 8 * length


@given(st.lists(st.integers(0, 140), min_size=1, max_size=8), st.integers(20, LENGTH_MOST))
def test_by_rank_the_most_important_is_next_and_equals_take_turns(
    ranks: list[int], length: int
) -> None:
    choice, served = Choice([1] * len(ranks), scheduler="by_rank"), [0] * len(ranks)
    for who, rank in enumerate(ranks):
        choice.entities[who].rank = rank
        choice.join(who, length)
    for _ in range(3 * len(ranks)):
        picked = choice.pick()
        assert picked is not None
        assert ranks[picked] == max(ranks)
        choice.served(picked, length)
        choice.again(picked, length)
        served[picked] += 1
    equals = [number for number, rank in zip(served, ranks, strict=True) if rank == max(ranks)]
    assert max(equals) - min(equals) <= 1
    for who in sorted(range(len(ranks)), key=lambda one: -ranks[one]):
        picked = choice.pick()
        assert picked is not None
        assert ranks[picked] == ranks[who]
        choice.leave(picked)
    assert choice.pick() is None
