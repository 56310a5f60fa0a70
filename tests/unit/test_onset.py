# SPDX-License-Identifier: GPL-2.0-only
"""onset: what is lost until the suite has found out, and what is said of it."""

from dataclasses import replace
from pathlib import Path

import pytest
from experiments import flat, onset, report, show
from experiments.measure import Account, Closing, Load, Run
from experiments.onset import SAMPLE_MS, Losses
from hypothesis import given
from hypothesis import strategies as st
from rig.guest import Guest
from rig.kernels import Kernel
from rig.traffic import Received, Sample

GUEST = Guest(Kernel("6.1", "6.1.0", *[Path("/")] * 2), icount=True)
PPS = 10_000.0
GRAIN = round(PPS * SAMPLE_MS / 1e3)  # packets between samples


def samples(lost: list[int]) -> list[Sample]:
    """Of a receiver that lost so many of the packets of each grain."""
    found, gone = [Sample(0, 0, 0, 0)], 0
    for i, one in enumerate(lost, 1):
        gone += one
        found.append(Sample(i * SAMPLE_MS * 10**6, i * GRAIN - gone, i * GRAIN, gone))
    return found


def losses(lost: list[int]) -> Losses:
    sent = len(lost) * GRAIN
    return Losses(samples(lost), sent, sent - sum(lost))


def test_an_onset_lasts_from_the_first_loss_until_it_is_bearable() -> None:
    lost = [0, 0, 50, 40, 30, 1, *[0] * 30]
    found = onset.onset(losses(lost), PPS, 0, len(lost) * GRAIN)
    # One of the next thousand is less than a hundredth.
    assert (found.before_ms, found.settled_ms) == (20, 30)
    assert (found.lost_until, found.lost) == pytest.approx((120, 121))


def test_what_is_lost_again_later_counts_in_all() -> None:
    lost = [0, 50, *[0] * 20, 80]
    found = onset.onset(losses(lost), PPS, 0, len(lost) * GRAIN)
    assert (found.before_ms, found.settled_ms, round(found.lost)) == (10, 10, 130)


def test_an_onset_may_never_end_or_lose_nothing() -> None:
    never = onset.onset(losses([20] * 40), PPS, 0, 40 * GRAIN)
    assert (never.settled_ms, never.lost_until, round(never.lost)) == (None, None, 800)
    assert onset.onset(losses([0] * 40), PPS, 0, 40 * GRAIN) == onset.Onset(None, 0, 0, 0)


def test_a_receiver_that_got_nothing_lost_all() -> None:
    found = onset.onset(Losses([Sample(0, 0, 0, 0)], 4000, 0), PPS, 0, 4000)
    assert found.settled_ms is None and found.lost == 4000


@given(st.lists(st.integers(0, GRAIN), min_size=1, max_size=50), st.floats(0, 1))
def test_losses_never_shrink(lost: list[int], part: float) -> None:
    one = losses(lost)
    at = part * len(lost) * GRAIN
    assert 0 <= one.of(at / 2) <= one.of(at) <= sum(lost)
    assert one.of(len(lost) * GRAIN) == sum(lost)


def ran(load: Load, lost: list[int]) -> Run:
    sent = len(lost) * GRAIN
    account = Account(sent, sent - sum(lost), 9e3, sum(lost), {})
    closing = Closing(2.0, sent, sent - sum(lost), sum(lost), 0, 0)
    seen = Received(sent - sum(lost), sum(lost), 0, [], None, samples(lost))
    return Run([account] * 3, closing, 0.1, 0, {}, [], received=[seen] * 3)


def test_each_onset_and_each_period_is_told_of() -> None:
    grains = round(onset.ON * 1e3 / SAMPLE_MS)
    both = [50, *[0] * (grains - 1), 10, 10, *[0] * (grains - 2)]
    steps = []
    for period, load in onset.loads(PPS):
        assert load.sample_ms == SAMPLE_MS and load.steady == (1 if period else 0)
        if period:
            assert load.on + load.off == period
        runs = [ran(replace(load, pps=PPS), both)]
        steps.append(onset.Step(period, load, {"stock": runs, "stock2": runs, "filter": runs}))
    found = onset.result_json(GUEST, PPS, steps)
    said = show.table(found).splitlines()
    assert len(said) == 2 + 3 * onset.ONSETS + 2 + 3 * len(onset.PERIODS)
    assert said[2].split() == ["stock", "1", "0", "10", "50", "50", "+0.00%"]
    assert said[3].split() == ["stock", "2", "0", "10", "10", "20", "+0.00%"]
    assert said[-1].split()[:6] == ["filter", "10", "s", "0.18%", "(0.18%-0.18%)", "0.18%"]
    assert report.section(found).count("<svg") == 1
    assert ",period 0.1.filter.lost,0,," in flat.text(found)


def test_never_is_more_than_any() -> None:
    assert onset.middle([None, 10, 20]) == "20 (10-never)"
    assert onset.middle([None]) == "never"
    assert onset.middle([7, 7]) == "7"
