# SPDX-License-Identifier: GPL-2.0-only
"""What is known of containers' packets has few places: nobody keeps another one from them."""

import socket
import time

from inside import inside, mark
from inside.containers import APART, PACKET, PORT, forwarding, learn, sending, socket_in
from inside.net import Peer, pressure

pytestmark = mark.newest

ANOTHER_WAY = 8  # type of service, by which routes may differ


@inside()
def test_who_sends_a_little_by_another_way_keeps_nobody_from_being_judged() -> None:
    forwarding()
    peer, pod = Peer(), Peer(2)
    other = peer.udp(peer.theirs4)
    other.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ANOTHER_WAY)
    full = socket_in(pod, "0.0.0.0")

    with full, other, pressure() as pressing, sending(peer, pod.theirs4) as send:

        def both(packets: int) -> None:
            other.sendto(PACKET, (pod.theirs4, PORT))
            if packets:
                send(packets)

        for _ in range(10):
            pressing.raise_()
            both(0)
            time.sleep(APART)
        learn(both, pod, pressing)
