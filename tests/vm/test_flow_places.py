# SPDX-License-Identifier: GPL-2.0-only
"""What pf_flow drops is seen by those who trace drops: each cause by a function of its own."""

import socket

from inside import inside, mark
from inside.flows import FLOW, change, flow, flows
from inside.net import Peer, bond_over, ip, nft, udp
from inside.suite import is_real_time, setting
from inside.tracing import drops_by_function

pytestmark = mark.oldest

PACKET = b"x" * 1000


def send(sender: socket.socket, receiver: socket.socket, packets: int) -> None:
    for _ in range(packets):
        sender.sendto(PACKET, receiver.getsockname())


@inside(modules=FLOW)
def test_what_a_full_queue_drops_and_what_is_dropped_ahead_of_tracking() -> None:
    peer = Peer()
    receiver, sender = udp(peer.ours4), peer.udp()
    nft("add table ip t\nadd chain ip t c { type filter hook input priority 0 ; }")
    nft("add rule ip t c ct state invalid drop")  # which switches tracking on
    with flows("a proto=udp rate=8k burst=2000 queue=4000"):
        with drops_by_function() as places:
            send(sender, receiver, 100)
        found = flow("a")
    assert places["pflow_drop_queue_full"] == found["full"] > 0
    assert places["pflow_drop_queue_full_ahead"] == found["early"]
    assert (found["early"] > 0) != is_real_time(), found


@inside(modules=FLOW)
def test_what_the_memory_of_all_flows_is_too_small_for() -> None:
    peer = Peer()
    receiver, sender = udp(peer.ours4), peer.udp()
    with (
        setting("flow/memory", "1", "64"),
        flows("a proto=udp rate=1k burst=1000 queue=2m"),
    ):
        with drops_by_function() as places:
            send(sender, receiver, 1000)
        assert places["pflow_drop_no_memory"] == flow("a")["memory"] > 0


@inside(modules=FLOW)
def test_what_waits_for_a_device_that_goes_and_what_cannot_wait_for_it() -> None:
    """A bond's members bring packets in its name until they are released."""
    peer = Peer()
    receiver, sender = udp(peer.ours4), peer.udp()
    bond_over(peer)
    with flows("a dev=bond7 proto=udp rate=8k burst=2000 queue=100k"):
        with drops_by_function() as places:
            send(sender, receiver, 20)
            ip("link set bond7 down")
        found = flow("a")
        assert places["pflow_drop_device_gone"] == found["gone"] > 10
        with drops_by_function() as places:
            send(sender, receiver, 20)
        unfit = flow("a")["unfit"] - found["unfit"]
        assert places["pflow_drop_cannot_wait"] == unfit > 10
        change("replace")
    ip("link delete bond7")
