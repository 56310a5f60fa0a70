# SPDX-License-Identifier: GPL-2.0-only
"""The order of ranks holds in a container, whose packets are shed where the host first sees them.

Receivers in it are sent more than the host can forward to them: a stock kernel hands on next to
nothing. By the guest's own clock, so that it is as much too much on any host.
"""

import pytest
from experiments import containers
from experiments.arms import Arm
from experiments.measure import Load, measure
from rig.guest import Guest

pytestmark = [pytest.mark.counted, pytest.mark.newest]

PPS, SECONDS = 12_000, 2.0
NOISE = 300.0  # packets/s
LOAD = Load(ports=(5000, 5001, 5002), nices=(0, 5, 10), pps=PPS)
HANDED_ON = "/sys/class/net/pod0/statistics/tx_packets"
# Of the container's own.
RULES = {
    "none": "",
    "tracking": "chain in { type filter hook prerouting priority mangle; ct state new counter; };",
    "masquerade": "chain out { type nat hook postrouting priority srcnat; masquerade; };",
}


@pytest.mark.parametrize("rules", list(RULES))
def test_the_order_holds_and_the_host_keeps_it(guest: Guest, rules: str) -> None:
    if guest.kernel.debug or guest.kernel.name.endswith("-rt"):
        pytest.skip("on debug kernels time is the host's, and on rt kernels the container judges")
    with containers.routed(guest) as tool:
        inside = ["nsenter", f"--net=/run/netns/{containers.PODS[0]}"]
        guest.run([*inside, "nft", f"table ip own {{ {RULES[rules]} }}"])
        before = int(guest.read(HANDED_ON))
        run = measure(guest, Arm("filter"), LOAD, tool, SECONDS)
        handed_on = int(guest.read(HANDED_ON)) - before
    first, second, third = (one.received_pps for one in run.accounts)
    early = [one.early_drops for one in run.accounts]
    told = first, second, third, early, handed_on, run.closing
    assert first > 0.7 * PPS, told
    assert first > second - NOISE and second > third - NOISE, told
    assert early[2] > 0, told
    # What is handed on is received, but for what the onset costs.
    assert handed_on - run.closing.received < sum(early) / 2, told
