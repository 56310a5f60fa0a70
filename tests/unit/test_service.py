# SPDX-License-Identifier: GPL-2.0-only
"""What a raised receiver lacks, and that the trial of its boost can tell by it."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from unit.policy import ONE, Service, Tick, Trial, service_harm, service_step, trial_step

TICK_US = 10_000
MEAN_TICKS = 8
S32_MAX = 2**31 - 1
QUARTER, THIRTIETH = ONE // 4, ONE // 32

words = st.integers(0, 2**32 - 1)
waits = st.integers(0, ONE)
losts = st.integers(0, S32_MAX)
cpu_shares = st.integers(0, ONE)
services = st.builds(Service, losts, cpu_shares)
busy = st.integers(ONE // 64, ONE)
floods = st.integers(10_000, 1_000_000)


def got(lost: int, took_us: int, ticks: int, service: Service | None = None) -> Service:
    service = service or Service()
    for _ in range(ticks):
        service_step(service, lost, took_us, TICK_US)
    return service


@given(services, words, st.integers(0, 10_000_000), words)
def test_what_it_gets_is_bounded(service: Service, lost: int, took_us: int, us: int) -> None:
    service_step(service, lost, took_us, us)
    assert service.lost <= S32_MAX and service.share <= S32_MAX


@given(st.integers(1, 10_000), st.integers(100, TICK_US))
def test_two_thirds_show_in_eight_ticks(lost: int, took_us: int) -> None:
    service = got(lost, took_us, MEAN_TICKS)
    assert 0.6 < service.lost * TICK_US / 1_000_000 / lost < 0.67
    assert 0.6 < service.share * TICK_US / ONE / took_us < 0.67
    service = got(lost, took_us, 200, service)
    assert 0.9 < service.lost * TICK_US / 1_000_000 / lost <= 1


@given(services, services, st.booleans(), waits, waits)
def test_who_gets_less_or_waits_longer_lacks_more(
    a: Service, b: Service, stream: bool, one: int, other: int
) -> None:
    lost, share, wait = (
        sorted(pair) for pair in ((a.lost, b.lost), (a.share, b.share), (one, other))
    )
    least, most = Service(lost[0], share[1]), Service(lost[1], share[0])
    if share[0] > MEAN_TICKS:
        assert service_harm(least, stream, wait[0]) <= service_harm(most, stream, wait[1])


@given(floods, busy, st.booleans())
def test_an_eighth_is_an_eighth(lost: int, share: int, stream: bool) -> None:
    """Of loss, of CPU time, and a thirtieth of the time to wait, beyond a quarter of it."""
    before = service_harm(Service(lost, share), False, QUARTER)
    lost_more = service_harm(Service(lost * 9 // 8, share), False, QUARTER)
    got_less = service_harm(Service(lost, share * 8 // 9), False, QUARTER)
    waited = service_harm(Service(lost, share), False, QUARTER + THIRTIETH)
    for now in (lost_more, got_less, waited):
        assert now / before == pytest.approx(9 / 8, rel=0.01)
    assert service_harm(Service(lost, share), stream, QUARTER) == service_harm(
        Service(lost, share), stream, 0
    )
    assert service_harm(Service(lost, share), True, 0) == service_harm(Service(0, share), True, 0)


@given(services, st.booleans(), waits)
def test_who_stops_running_waits_for_something_else(
    service: Service, stream: bool, wait: int
) -> None:
    assert service_harm(got(0, 0, 200, service), stream, wait) == 0


def is_kept(lost: int, raised_us: int, without_us: int, stream: bool) -> bool:
    """Whether a boost is kept that gives a receiver so much of each tick, and without it so much.

    Its buffer is full all the time.
    """
    service, trial = Service(), Trial(reach=ONE)
    for _ in range(1_000):
        took_us = without_us if trial.asking_us else raised_us
        was_asked = trial.asking_us
        service_step(service, lost, took_us, TICK_US)
        harm = service_harm(service, stream, 0)
        trial_step(trial, Tick(harm, 0, 0, ONE, TICK_US, 0, True))
        if was_asked and not trial.asking_us:
            return trial.reach > 0
    raise AssertionError("it was never asked")


@example(lost=300, raised_us=5_000, stream=False)
@given(st.integers(200, 10_000), st.integers(500, 5_000), st.booleans())
def test_the_trial_tells_by_it_whether_a_boost_helps(
    lost: int, raised_us: int, stream: bool
) -> None:
    assert is_kept(lost, raised_us, raised_us * 3 // 4, stream)
    assert not is_kept(lost, raised_us, raised_us * 19 // 20, stream)
