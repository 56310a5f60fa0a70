# SPDX-License-Identifier: GPL-2.0-only
"""What the modules cost must not grow: against the figures that the repository keeps.

Instructions are counted, so a figure depends on the kernel and the compiler and on nothing
else of the host. Against stock of the same run a later build of a kernel hardly matters.
"""

import json

import pytest
from experiments import cost
from rig.kernels import REPO, kernel
from rig.shared import Machines

RESULTS = REPO / "docs" / "results"
ARMS = ("stock", "filter_idle", "sched_idle", "mm_idle", "all_idle", "all_busy", "disabled")
DROPS = ("early_drop", "judged", "shed_drop")
FLOWS = ("flow_10", "flow_drop")
WORSE = 0.01
FIGURES = tuple(f"{kind}instructions_per_packet" for kind in cost.KINDS)
# For a receiver in a container: a packet at rest against stock's, and a drop at the first
# hook that sees the packet against one for a receiver here.
AT_REST, AHEAD = 1.02, 1.1


def grown(now: dict[str, float], kept: dict[str, float]) -> dict[str, float]:
    """By arm, how much more of stock's instructions a packet takes than it did."""
    return {
        name: now[name] / now["stock"] - kept[name] / kept["stock"]
        for name in now
        if name != "stock"
    }


@pytest.mark.timeout(1800)
@pytest.mark.ends
def test_no_packet_costs_more_than_it_did(machine: tuple[str, int], machines: Machines) -> None:
    """Fails if any state of the modules, an early drop, or a packet of a flow takes 1 % of a packet
    more, or if what is forwarded to a container costs more than it may."""
    reference = RESULTS / f"cost-{machine[0]}.json"
    if not reference.exists():
        pytest.skip("no figures are kept of this kernel")
    machines.drop()
    chosen = kernel(machine[0])
    arms = cost.cost_arms(chosen.modules)
    found = cost.measured(chosen, {name: arms[name] for name in ARMS + DROPS + FLOWS}, [], 1, print)
    kept = json.loads(reference.read_text())
    for figure in FIGURES:
        more = grown(found[figure], kept[figure])
        assert len(more) >= len(ARMS)
        assert max(more.values()) <= WORSE, (figure, {k: round(v, 4) for k, v in more.items()})
    ours, forwarded = (found[f"{kind}instructions_per_packet"] for kind in cost.KINDS[1:])
    assert forwarded["all_idle"] <= AT_REST * forwarded["stock"]
    for drop in ("early_drop", "shed_drop"):
        assert forwarded[drop] <= AHEAD * ours[drop], drop
