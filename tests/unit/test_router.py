# SPDX-License-Identifier: GPL-2.0-only
"""N1 to N3: what a router forwards and at what price, and what is said of it."""

from dataclasses import replace
from pathlib import Path

import pytest
from experiments import flat, isolation, report, router, show
from experiments.limits import LIMITS, Limited, Limiting
from experiments.result import Json
from rig.guest import Guest
from rig.kernels import Kernel

GUEST = Guest(Kernel("6.1", "6.1.0", *[Path("/")] * 2), icount=True, routed=True)
SECOND = 1_000_000_000
FLOW = Limited("a", "udp", 5000, 5_000_000, 1500, "eth0", "eth2")


def run(mbit: float, cost: float) -> router.Run:
    """Where the sender takes 1000 instructions a packet."""
    return router.Run(mbit * 1e6, mbit * 1e6 / 12_000, 8000.0, 8000.0, 1000 + cost)


def made(name: str, at: int, runs: dict[str, router.Run]) -> Json:
    steps = [router.Step(at, 1000, {arm: [one] for arm, one in runs.items()})]
    return router.result_json(name, GUEST, 8000, steps)


def test_a_packet_counts_from_its_ip_header_on() -> None:
    """Two seconds, 100 packets a second come to the router, 10 of 1000 bytes leave it."""
    before = (0, [[0, 0, 0, 0], [0, 0, 5, 5], [1, 1, 0, 0]])
    after = (2 * SECOND, [[200, 9, 9, 9], [9, 9, 25, 5 + 20 * 1014], [2, 2, 220, 9]])
    assert router.told(before, after, 300) == router.Run(80_000, 10, 100, 110, 300)


def test_what_counts_frames_may_have_as_many_packets() -> None:
    assert FLOW.framed / (1514 * 8) == pytest.approx(FLOW.rate / (1500 * 8), rel=1e-6)
    assert (FLOW.burst, replace(FLOW, rate=1).burst) == (6250, 3000)


def test_each_arm_is_known() -> None:
    for name, plan in router.EXPERIMENTS.items():
        assert set(plan.arms.split(",")) < set(LIMITS), name
    assert set(isolation.ARMS.split(",")) < set(LIMITS)
    with pytest.raises(ValueError, match="no such arm: nothing"):
        Limiting("nothing", [FLOW])


def test_the_price_is_compared_with_others_of_each_kind() -> None:
    costs = {"stock": 10_000, "flow": 4000, "tc-police": 3200, "ifb-htb": 8000, "ifb-cake": 5000}
    costs |= {"egress-htb": 8000}
    runs = {name: run(5.04 if name != "ifb-cake" else 4.9, cost) for name, cost in costs.items()}
    found = made("N1", 5_000_000, runs | {"stock2": run(96, 10_000)})
    said = show.table(found).splitlines()
    rows = {line.split()[2]: line.split() for line in said if line.startswith("5 Mbit/s  ")}
    assert rows["flow"][3:] == [
        *("5.040", "+0.80%", "0.42", "4000", "(4000-4000)", "40.0%", "0.0%")
    ]
    assert said[-1] == (
        "5 Mbit/s: not within 1%: ifb-cake -2.0%; flow takes 0.80 of ifb-cake's, the cheapest "
        "with a queue; flow takes 1.25 of tc-police's; flow takes 0.50 of egress-htb's (the "
        "paper: 0.13 of IMQ's)"
    )
    assert "rate 5e+06.flow.reached_bps,0,,5040000" in flat.text(found)
    assert "<svg" in report.section(found)


def test_what_is_forwarded_is_compared_with_bare_linux_and_the_detours() -> None:
    rates = {"stock": 20.0, "stock2": 20.0, "flow": 18.0, "ifb-htb": 12.0}
    found = made("N3", 64, {name: run(rate, 9000) for name, rate in rates.items()})
    assert show.table(found).splitlines()[-2:] == [
        "flow: 90.0% to 90.0% of what stock forwards",
        "flow: 150.0% to 150.0% of what ifb-htb forwards",
    ]
    assert "<svg" in report.section(found)


def test_the_papers_ratios_are_those_that_are_asked() -> None:
    ratios = [round(router.RATIOS[mbit * 10**6], 2) for mbit in router.MBITS]
    assert (ratios[0], ratios[-1], len(ratios)) == (0.11, 0.28, 8)


def test_a_second_belongs_to_a_step_if_it_is_wholly_in_it() -> None:
    found = isolation.rates([(0, 0), (SECOND, 1000), (2 * SECOND, 3000), (3 * SECOND, 3500)])
    assert [rate for *_, rate in found] == [8000, 16_000, 4000]
    assert isolation.within(found, SECOND - 1, 3 * SECOND - 1) == [16_000]


def test_deviations_are_from_the_mean_of_their_own_period() -> None:
    """The stream has 5 and 4 Mbit/s by turns in the first four steps, then always 3."""
    count = len(isolation.MBITS)
    rates = [3e6 if i >= 2 * isolation.BEFORE else 5e6 - i % 2 * 1e6 for i in range(2 * count)]
    tcp = [(i * SECOND, (i + 1) * SECOND, rate) for i, rate in enumerate(rates)]
    udp = [(begin, end, 1e6) for begin, end, _ in tcp]
    steps = [(2 * i * SECOND, 2 * (i + 1) * SECOND) for i in range(count)]
    one = isolation.run_json(isolation.Run(tcp, udp, steps))
    assert (one["tcp_before_bps"], one["tcp_after_bps"]) == (500_000, 0)
    assert one["tcp_step_bps"] == [4_500_000] * 4 + [3_000_000] * 2
    assert one["tcp_bps"] == 4_000_000
    found = isolation.result_json(GUEST, 2, {"flow": [isolation.Run(tcp, udp, steps)]})
    row = show.table(found).splitlines()[-1].split()
    assert row == ["flow", "4.0000", "816.5", "500.0", "0.0", *["1.000"] * 6]
    assert report.section(found).count("<svg") == 1
