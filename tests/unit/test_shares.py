# SPDX-License-Identifier: GPL-2.0-only
"""V1: shares of the CPU, and what is said of them."""

from dataclasses import replace
from pathlib import Path

from experiments import flat, report, shares, show
from experiments.arms import arms
from experiments.measure import Account, Closing, Run
from rig.guest import Guest
from rig.kernels import Kernel

GUEST = Guest(Kernel("6.1", "6.1.0", *[Path("/")] * 2))


def run(pps: float, *received_pps: float) -> Run:
    accounts = [Account(round(2 * pps), 1000, one, 0, {}) for one in received_pps]
    return Run(accounts, Closing(2.0, 4000, 4000, 0, 0, 0), 0.1, 0.0, {}, [])


def test_what_is_left_of_the_best_is_told_by_weights() -> None:
    steps = []
    for beneath, weights in shares.WEIGHTS.items():
        chosen = arms(["filter"], (beneath,))
        assert [arm.name for arm in chosen] == ["stock", "stock2", "filter"]
        for pps, got in ((1000.0, (1000.0,) * 4), (5000.0, (1500.0, 500.0, 500.0, 500.0))):
            runs = {arm.name: [run(pps, *got)] for arm in chosen}
            steps.append(shares.Step(replace(shares.V1, pps=pps, work=9), weights, runs))
    found = shares.result_json(GUEST, steps)
    said = show.table(found).splitlines()
    assert len(said) == 2 + 4 * 3 + 2 * 3
    assert said[2].startswith("1/1/1/1") and said[8].startswith("97/1/1/1")
    assert said[-1] == (
        "97/1/1/1: filter: with the most that is offered the sum is 75% of its best; the first "
        "receives 30% of what it is sent, 50% of the sum"
    )
    assert report.section(found).count("<svg") == 1
    for step in found["steps"]:
        for arm in step["arms"].values():
            arm["age_ms"] = [[1.0, 2.0, 3.0, None]]
    assert show.table(found).splitlines()[2].endswith(" 1/2/3/-")
    assert ",pps 5000 weights 97/1/1/1.filter.sum_pps,0,,3000" in flat.text(found)


def test_it_goes_past_what_can_be_taken() -> None:
    offered = [shares.COUNT * pps for pps in shares.rates()]
    assert offered == sorted(offered) and offered[-1] == shares.MOST * shares.SATURATION
    assert len(shares.V1.ports) == len(shares.V1.nices) == shares.COUNT
