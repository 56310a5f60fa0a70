# SPDX-License-Identifier: GPL-2.0-only
"""pf_flow, asked in the driver: what a full queue drops is dropped there, and nothing else."""

import re
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

from inside import inside, mark
from inside.driver import PORT, asking, ended, met, tags_stay
from inside.flows import FLOW, flow, flows
from inside.net import Peer, Pressure, drain, nft, port_of, udp
from inside.suite import is_real_time, wait_for

pytestmark = mark.ends

SENT = 300
FEW = "rate=8k burst=200 queue=1000"  # some packets of these
OF_MANY = 20  # at least so many are dropped where they may be; each jiffy one is not
DATA = b"x" * 100


def peer_without_tags() -> Peer:
    """A program is asked only where no tag of a VLAN can be beside a frame."""
    peer = Peer()
    tags_stay(peer.device)
    with peer:
        tags_stay("eth0")
    return peer


def met6() -> int:
    """Packets that came to IPv6, in this namespace."""
    text = Path("/proc/thread-self/net/snmp6").read_text()
    found = re.search(r"^Ip6InReceives\s+(\d+)", text, re.MULTILINE)
    assert found
    return int(found[1])


def ends_of(found: dict[str, int]) -> int:
    """All that a flow's packets can come to."""
    names = "direct", "waiting", "deferred", "full", "early", "unfit", "memory", "gone"
    return sum(found[name] for name in names)


def by_udp(peer: Peer, kind: str) -> Callable[[], object]:
    sender = peer.udp(peer.theirs6 if kind == "v6" else peer.theirs4)
    to = peer.ours6 if kind == "v6" else peer.ours4, PORT
    return lambda: sender.sendto(DATA, to)


def by_tcp(peer: Peer) -> Callable[[], object]:
    """Segments of no connection."""
    with peer:
        sender = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
    segment = struct.pack("!HHIIBBHHH", 40000, PORT, 1, 1, 0x50, 0x10, 1000, 0, 0) + DATA
    return lambda: sender.sendto(segment, (peer.ours4, 0))


def told(came: Callable[[], int], send: Callable[[], object]) -> tuple[dict[str, int], int]:
    """What became of the flow's packets, and how many of them never came to IP."""
    before = came()
    for _ in range(SENT):
        send()
    wait_for(lambda: ends_of(flow("a")) == SENT)
    return flow("a"), SENT - (came() - before)


@mark.parametrize("kind", ["v4", "v6", "tcp"])
@inside(modules=FLOW)
def test_what_a_full_queue_drops_is_dropped_in_the_driver(kind: str) -> None:
    peer = peer_without_tags()
    send = by_tcp(peer) if kind == "tcp" else by_udp(peer, kind)
    # IPv6 sends of its own, too.
    spare = 10 if kind == "v6" else 0
    with asking(peer.device), flows(f"a dport={PORT} {FEW}"):
        found, kept_off = told(met6 if kind == "v6" else met, send)
    if is_real_time():
        assert found["early"] == 0 and abs(kept_off) <= spare, (found, kept_off)
    else:
        assert OF_MANY < kept_off <= found["early"] + spare, (found, kept_off)


@inside(modules=FLOW)
def test_what_a_raw_rule_marks_is_not_dropped_in_the_driver() -> None:
    """The driver cannot see a mark, and by it the packet may be another flow's."""
    peer = peer_without_tags()
    nft("""table ip t {
    chain c {
        type filter hook prerouting priority raw
        meta mark set 1
    }
}
""")
    with asking(peer.device), flows(f"a dport={PORT} {FEW}"):
        found, kept_off = told(met, by_udp(peer, "v4"))
    assert kept_off == 0, found
    assert is_real_time() or found["early"] > OF_MANY, found


@inside(modules=FLOW)
def test_another_flow_is_not_dropped_in_the_driver_for_one_whose_queue_is_full() -> None:
    peer = peer_without_tags()
    other, sender = udp(peer.ours4, rcvbuf=1 << 20), peer.udp()
    rows = f"a dport={PORT} {FEW}", f"b dport={port_of(other)} rate=100m"

    def send() -> None:
        """From one port, so that they differ by the other's alone."""
        for port in PORT, port_of(other):
            sender.sendto(DATA, (peer.ours4, port))

    with asking(peer.device), flows(*rows):
        found, _ = told(met, send)
        assert is_real_time() or found["early"] > OF_MANY, found
        wait_for(lambda: flow("b")["direct"] == SENT)
        assert len(drain(other)) == SENT


@inside(modules=FLOW)
def test_a_stream_through_a_full_queue_arrives_whole() -> None:
    peer = peer_without_tags()
    server = socket.create_server((peer.ours4, 0))
    sent = b"".join(struct.pack("!I", number) for number in range(20_000))
    with asking(peer.device), flows(f"a dport={port_of(server)} rate=1m burst=2000 queue=3000"):
        with peer:
            client = socket.create_connection(server.getsockname())
        connection, _ = server.accept()
        connection.settimeout(20)
        sending = threading.Thread(target=client.sendall, args=(sent,))
        sending.start()
        got = b""
        while len(got) < len(sent):
            got += connection.recv(1 << 16)
        sending.join()
        assert got == sent
        assert flow("a")["full"] > 0, flow("a")


@inside(modules=("pf_filter", "pf_flow"))
def test_both_modules_are_asked() -> None:
    peer, full = peer_without_tags(), Pressure("0.0.0.0", PORT)
    send = by_udp(peer, "v4")
    with asking(peer.device):
        in_driver, early = ended(full, send)
        full.sock.close()
        with flows(f"a dport={PORT} {FEW}"):
            found, kept_off = told(met, send)
    if is_real_time():
        assert (in_driver, kept_off) == (0, 0), (early, found)
    else:
        assert in_driver > OF_MANY, (in_driver, early)
        assert OF_MANY < kept_off <= found["early"], (found, kept_off)
