# SPDX-License-Identifier: GPL-2.0-only
"""Who is harmed: what a receiver loses and whether for want of CPU, and by a standing queue."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.policy import (
    ONE,
    Losses,
    Queue,
    QueueTick,
    Unshed,
    kept_from_running,
    losses_step,
    queue_lost_step,
    queue_step,
    slept,
    stood_long,
    stood_step,
    unshed_step,
)

SECOND = 1_000_000
TICK_US = 12_000
WINDOW_US, WINDOW_MOST_US, WINDOW_PACKETS = 50_000, 2_000_000, 64
POINT = 256
BEARABLE = ONE // 200
STOOD_LONG_US = 250_000

words = st.integers(0, 2**32 - 1)
shares = st.integers(0, ONE)
rates = st.integers(0, 1_000_000)
apart = st.integers(5_000, 100_000)
# What came in an interval, and how many of those were lost.
counts = st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)).map(
    lambda both: (max(both), min(both))
)
histories = st.lists(st.tuples(counts, rates, apart), max_size=40)


def window_us(rate: int) -> int:
    return min(max(WINDOW_PACKETS * SECOND // rate, WINDOW_US) if rate else ONE**2, WINDOW_MOST_US)


def counted(history: list[tuple[tuple[int, int], int, int]]) -> Losses:
    losses = Losses()
    for (arrived, lost), rate, elapsed_us in history:
        losses_step(losses, arrived, lost, rate, elapsed_us)
    return losses


@given(histories, counts, rates, apart)
def test_no_more_is_lost_than_arrived(
    history: list[tuple[tuple[int, int], int, int]], count: tuple[int, int], rate: int, us: int
) -> None:
    losses = counted(history)
    share = losses_step(losses, *count, rate, us)
    arrived = count[0] + sum(arrived for (arrived, _), _, _ in history)
    lost = count[1] + sum(lost for (_, lost), _, _ in history)
    assert losses.lost <= losses.arrived <= POINT * arrived
    assert losses.lost <= POINT * lost
    assert share * max(losses.arrived, WINDOW_PACKETS * POINT) <= ONE * losses.lost


@given(histories, counts, rates, apart)
def test_who_loses_nothing_now_is_not_harmed(
    history: list[tuple[tuple[int, int], int, int]], count: tuple[int, int], rate: int, us: int
) -> None:
    assert losses_step(counted(history), count[0], 0, rate, us) == 0


@given(histories, rates, apart)
def test_what_was_lost_is_forgotten(
    history: list[tuple[tuple[int, int], int, int]], rate: int, us: int
) -> None:
    losses = counted(history)
    windows = window_us(rate) / us
    for _ in range(math.ceil(max(windows, 1) * (math.log(losses.arrived + 1) + 1)) + 1):
        before = losses.lost
        losses_step(losses, 0, 0, rate, us)
        assert losses.lost < before or before == 0
    assert losses.arrived == losses.lost == 0


@given(st.integers(0, 2), st.integers(0, 10_000), rates, apart)
def test_a_handful_moves_nothing(lost: int, others: int, rate: int, us: int) -> None:
    assert losses_step(Losses(), lost + others, lost, rate, us) == 0


def lost_by(rate: int, part: float, seconds: float = 10) -> int:
    """The most that a receiver is found to lose of what it is sent evenly, in ticks to the end."""
    losses, found, sent, gone = Losses(), 0, 0, 0
    for tick in range(1, round(seconds * SECOND / TICK_US)):
        arrived = int(rate * tick * TICK_US / SECOND)
        lost = int(arrived * part)
        share = losses_step(losses, arrived - sent, lost - gone, rate, TICK_US)
        sent, gone = arrived, lost
        if tick * TICK_US > (seconds - 2) * SECOND:
            found = max(found, share)
    return found


@given(st.integers(5_000, 1_000_000), st.floats(0.05, 1))
def test_a_steady_loss_is_found_as_it_is(rate: int, part: float) -> None:
    handful = 2 / (rate * WINDOW_US / SECOND)
    rounding = 2 / (rate * TICK_US / SECOND)
    assert part - handful - rounding <= lost_by(rate, part) / ONE <= part + rounding


def test_a_few_lost_packets_a_second_count_where_few_come() -> None:
    assert lost_by(50, 0.1) > 2 * BEARABLE
    assert lost_by(30, 0.01) == 0


@given(shares, shares)
def test_who_sleeps_is_slow_by_itself(awake: int, wait: int) -> None:
    assert not kept_from_running(awake // 3 - 1 if awake > 2 else 0, wait)


@given(shares, shares)
def test_who_is_awake_and_waits_is_kept_from_running(awake: int, wait: int) -> None:
    if 3 * awake >= ONE:
        assert kept_from_running(awake, wait) == (16 * wait >= ONE)


@given(shares, shares, shares)
def test_who_waits_longer_slept_less(run: int, a: int, b: int) -> None:
    more, less = slept(max(a, b), run), slept(min(a, b), run)
    assert more <= less <= ONE
    assert slept(0, run) == (ONE if run < ONE else 0)
    assert slept(ONE - run, run) == 0


@given(apart)
def test_a_queue_that_stands_is_found_and_one_that_stood_released(us: int) -> None:
    stood = ticks = 0
    while not stood_long(stood):
        stood, ticks = stood_step(stood, True, us), ticks + 1
    assert ticks == math.ceil(STOOD_LONG_US / us)
    for _ in range(ticks):
        stood = stood_step(stood, True, us)
    for _ in range(math.ceil(8 * STOOD_LONG_US / us) + 1):
        stood = stood_step(stood, False, us)
    assert not stood_long(stood)
    for _ in range(math.ceil(8 * STOOD_LONG_US / us)):
        stood = stood_step(stood, False, us)
    assert stood == 0


@given(st.lists(st.tuples(words, words, apart), max_size=20))
def test_a_queue_loses_no_more_than_it_was_sent(history: list[tuple[int, int, int]]) -> None:
    losses = Losses()
    for lost, polled, us in history:
        assert queue_lost_step(losses, lost, polled, us) <= ONE
        assert losses.lost <= losses.arrived


@given(st.integers(1, 1_000), st.integers(0, 100), apart)
def test_a_queue_that_loses_a_part_is_found_to_lose_that(sent: int, percent: int, us: int) -> None:
    """Found in every fourth interval, and forgotten once there is no more."""
    losses, lost = Losses(), 4 * sent * percent // 100
    found = [
        queue_lost_step(losses, lost * (tick % 4 == 3), sent - lost // 4, us) for tick in range(400)
    ]
    mean = sum(found[200:]) / 200 / ONE
    assert abs(mean - percent / 100) <= 0.12 + 2 / sent
    for _ in range(400):
        now = queue_lost_step(losses, 0, sent, us)
    assert now <= ONE // 1000


def test_a_queue_that_loses_more_than_can_be_counted_is_found_to_lose_much() -> None:
    losses = Losses()
    found = [queue_lost_step(losses, 2**32 - 1, 2**32 - 1, 4_000) for _ in range(200)]
    assert {ONE // 2 - 1, ONE // 2} >= set(found)


packets = st.integers(0, 100_000)
reaches = st.integers(0, 40 * ONE)
queues = st.builds(Queue, words, words, words, words, words, st.booleans(), words, words)
queue_ticks = st.builds(
    QueueTick,
    shares,
    shares,
    packets,
    packets,
    st.booleans(),
    reaches,
    reaches,
    apart,
    st.booleans(),
)


@given(queues, queue_ticks)
def test_a_queue_harms_no_more_than_it_stands(queue: Queue, tick: QueueTick) -> None:
    known = queue.unshed_ns
    assert queue_step(queue, tick) <= tick.standing
    assert queue.served <= queue.served_most or not queue.served_most
    assert queue.unshed_ns == known or not tick.shedding


def queue_after(queue: Queue, tick: QueueTick, times: int) -> int:
    harm = 0
    for _ in range(times):
        harm = queue_step(queue, tick)
    return harm


@given(st.integers(10, 1_000), st.integers(1, 20), shares)
def test_a_queue_harms_by_what_its_packets_cost(polled: int, cheaper: int, standing: int) -> None:
    """Shed for it is no more than helps; the cut does not yet reach as far as it can."""
    queue = Queue()
    unshed = QueueTick(ONE, ONE, polled, 0, False, 0, ONE, TICK_US)
    assert queue_after(queue, unshed, 40) == ONE
    shed = QueueTick(ONE, ONE, polled * cheaper, 0, True, ONE // 2, ONE, TICK_US)
    assert abs(queue_after(queue, shed, 40) * cheaper / ONE - 1) < 0.01
    cost = queue.packet_ns
    # A queue that does not stand waits for packets, which tells nothing of what one costs.
    calm = QueueTick(
        min(standing, ONE // 2), min(standing, ONE // 2), 1, 0, True, ONE // 2, ONE, TICK_US
    )
    assert queue_after(queue, calm, 40) <= min(standing, ONE // 2)
    assert queue.packet_ns == cost
    # Nor does one that has lost some in a burst, and does not stand any more.
    queue_after(queue, QueueTick(ONE, ONE // 2, 1, 0, False, 0, ONE, TICK_US), 40)
    assert queue.packet_ns == cost


@pytest.mark.parametrize("cheaper", [1.0, 1.1, 1.3, 1.8])
def test_whether_the_last_step_helps_is_told_by_what_packets_cost(cheaper: float) -> None:
    queue = Queue()
    unshed = QueueTick(ONE, ONE, 300, 10, False, 0, ONE - 1, TICK_US)
    queue_after(queue, unshed, 30)
    shed = QueueTick(ONE, ONE, round(300 * cheaper), 10, True, ONE - 1, ONE - 1, TICK_US)
    harm = queue_after(queue, shed, 60)
    if cheaper >= 1.3:
        assert harm == 0, "that it helps is known, and not asked"
        # Until that is long ago.
        harm = queue_after(queue, shed, 60 * SECOND // TICK_US)
    assert harm > ONE // 3
    unshed.asking = True
    without = queue_after(queue, unshed, 7)
    assert (without > harm + harm // 8) == (cheaper >= 1.3)


@given(st.integers(20, 10_000), st.integers(5, 100))
def test_a_queue_harms_until_the_first_gets_what_it_had(most: int, percent: int) -> None:
    """What it had is forgotten in time while all are shed, and at once where nobody is."""
    queue = Queue()
    shed = QueueTick(ONE, ONE, 10_000, most, True, ONE - 1, ONE - 1, TICK_US)
    assert queue_after(queue, shed, 160) == 0
    less = most * percent // 100
    fewer = QueueTick(ONE, ONE, 10_000, less, True, ONE // 2, ONE, TICK_US)
    for ticks in (25, 1_000):
        lacks = queue_after(queue, fewer, ticks)
        assert lacks / ONE <= 1 - less / most + 0.01
        assert lacks / ONE >= 1 - less / most - 0.2
    # That makes packets cheaper, and is not asked about.
    fewer.reach, fewer.most, fewer.polled = ONE - 1, ONE - 1, 13_000
    fades = math.ceil(128 * math.log(most / less)) + 140
    assert queue_after(queue, fewer, fades) < ONE / 100
    assert queue_after(queue, QueueTick(ONE, ONE, 10_000, less, False, 0, ONE, TICK_US), 1) == ONE
    assert queue.served_most == 0


@given(st.lists(st.tuples(words, words, shares, words), max_size=20))
def test_what_shedding_keeps_away_costs_no_more_than_all(
    history: list[tuple[int, int, int, int]],
) -> None:
    unshed = Unshed()
    for tick in history:
        assert unshed_step(unshed, *tick) <= ONE


@given(st.integers(0, 20_000), st.integers(10, 50), st.integers(1, 30), apart)
def test_each_packet_that_is_shed_is_taken_to_cost_as_one_that_is_not(
    shed: int, passed: int, percent: int, us: int
) -> None:
    unshed = Unshed()
    for _ in range(200):
        found = unshed_step(unshed, passed + shed, passed, ONE * percent // 100, us)
    wanted = min(percent / 100 * (passed + shed) / passed, 1)
    assert abs(found / ONE - wanted) <= 0.02 * wanted + 0.001


def test_a_flood_is_known_to_cost_much_from_the_moment_on_that_it_is_shed() -> None:
    """It took half of the time. Then a packet in each interval is let through."""
    unshed = Unshed()
    for _ in range(4):
        unshed_step(unshed, 200, 200, ONE // 2, 8_000)
    for _ in range(1_000):
        assert unshed_step(unshed, 200, 1, ONE // 400, 8_000) > 0.45 * ONE


def test_where_hardly_any_is_let_through_nothing_is_known_of_what_one_costs() -> None:
    unshed = Unshed()
    assert {unshed_step(unshed, 2, tick % 8 == 0, 0, 8_000) for tick in range(1_000)} == {ONE}


def test_a_flood_that_is_over_is_soon_forgotten() -> None:
    unshed = Unshed()
    for _ in range(400):
        unshed_step(unshed, 200, 1, ONE // 400, 8_000)
    found = [unshed_step(unshed, 2, 1, ONE // 400, 8_000) for _ in range(250)]
    assert max(found[:10]) > ONE // 4
    assert found[-1] < ONE // 50
