# SPDX-License-Identifier: GPL-2.0-only
"""T1b: throughput of TCP receivers that read in bursts."""

from pathlib import Path

import pytest
from experiments import result, show, t1b
from experiments.arms import arms
from experiments.measure import rates
from experiments.mm import Granted
from experiments.settings import FOUR_MIB, TcpBuffers
from rig.guest import Guest
from rig.kernels import Kernel
from rig.traffic import Received


def runs(*throughput: list[float], granted: int = 0) -> list[t1b.Run]:
    size = [6_291_456 + granted, 6_291_456]
    return [t1b.Run(one, size, Granted(granted, granted, 1 << 25), 0.5, 3) for one in throughput]


def example() -> result.Json:
    found = {
        "stock": runs([10e6, 8e6], [11e6, 8e6]),
        "stock2": runs([10.5e6, 8e6]),
        "mm": runs([21e6, 4e6], granted=1 << 20),
        "tcp4m": runs([20e6, 8e6]),
    }
    guest = Guest(Kernel("6.1", "6.1.0", *[Path("/")] * 2))
    return t1b.result_json(guest, 7 << 20, found)


def test_result_has_what_is_promised() -> None:
    found = example()
    assert (found["experiment"], found["nices"]) == ("T1b", [0, 10])
    assert (found["delay_ms"], found["pause_ms"], found["tcp4m_bytes"]) == (20, 50, 7 << 20)
    assert found["noise"] == pytest.approx(1e6)
    arm = found["arms"]["mm"]
    assert arm["bytes_per_second"] == [[21_000_000, 4_000_000]]
    assert arm["rcvbuf_bytes"] == [[7 << 20, 6 << 20]]
    assert (arm["granted_bytes_peak"], arm["budget_bytes"]) == ([1 << 20], [1 << 25])
    assert (arm["idle"], arm["retransmitted"]) == ([0.5], [3])


def test_receivers_are_compared_with_stock() -> None:
    rows = {line.split()[0]: line.split() for line in show.table(example()).splitlines()}
    assert rows["mm"][1:5] == ["21.00", "(21.00-21.00)", "+100.0%", "7168"]
    assert rows["mm"][5:] == ["4.00", "(4.00-4.00)", "-50.0%", "6144", "1024", "50%", "3"]


def test_arms_by_hand_raise_buffers_to_what_pf_mm_gives() -> None:
    chosen = arms(["mm", "tcp4m", "filter+tcp4m"])
    by_hand = [one for arm in chosen for one in arm.settings if isinstance(one, TcpBuffers)]
    assert [one.most for one in by_hand] == [FOUR_MIB] * 2
    t1b.size_for(chosen, 7 << 20)
    assert [one.most for one in by_hand] == [7 << 20] * 2


def test_throughput_is_of_the_time_after_the_windows_have_grown() -> None:
    """1000 bytes in the second before, then 5000 a second, in bursts of 100 ms."""
    second = 1_000_000_000
    bursts = [(second * tenth // 10, 1000 + 500 * (tenth - 10)) for tenth in range(11, 51)]
    one = Received(bursts[-1][1], None, 0, [(second, 1000), *bursts], 1)
    assert rates([one], 3.0, t1b.WARM_UP) == [pytest.approx(5000)]
    assert rates([one], 3.0, 0.0) == [pytest.approx((1000 + 2 * 5000) / 3)]
