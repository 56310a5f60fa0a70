# SPDX-License-Identifier: GPL-2.0-only
"""pf_flow: what a flow may do it does, and no more; in order, and nothing gets lost."""

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from inside import inside, mark
from inside.flows import FLOW, IP_UDP, change, flow, flows
from inside.net import UDP_SEGMENT, Peer, datagram, drain, ip, nft, port_of, udp
from inside.suite import entry, is_debug, is_real_time, setting, settle, sockets, wait_for
from inside.tracing import polls

pytestmark = mark.ends

SERVER = "packetflow"  # the device of pf_flow's server

TRACKED = """table inet t {
    chain c {
        type filter hook input priority 0
        ct state new accept
    }
}
"""


@mark.parametrize("kind", ["v4", "v6"])
@inside(modules=FLOW)
def test_what_has_tokens_passes_and_what_has_none_waits(kind: str) -> None:
    peer = Peer()
    own = peer.ours4 if kind == "v4" else peer.ours6
    receiver, sender = udp(own), peer.udp(peer.theirs4 if kind == "v4" else peer.theirs6)
    headers = IP_UDP if kind == "v4" else IP_UDP + 20
    size = 1000 - headers
    with flows(f"a dst={own} dport={port_of(receiver)} rate=80k burst=2000 queue=10000"):
        for number in range(20):
            sender.sendto(datagram(number, size), receiver.getsockname()[:2])
        assert drain(receiver) == [datagram(number, size) for number in range(2)]
        found = flow("a")
        assert (found["direct"], found["direct_bytes"]) == (2, 2000)
        assert (found["waiting"], found["waiting_bytes"]) == (10, 10_000)
        assert (found["full"] + found["early"], found["deferred"]) == (8, 0)
        # One each tenth of a second.
        began = time.monotonic()
        receiver.settimeout(5)
        got = [receiver.recv(2000) for _ in range(10)]
        assert got == [datagram(number, size) for number in range(2, 12)]
        assert 0.8 < time.monotonic() - began < 1.3
        wait_for(lambda: flow("a")["waiting"] == 0)
        found = flow("a")
        assert (found["deferred"], found["deferred_bytes"]) == (10, 10_000)
        assert 400_000 < found["delay_us"] < 800_000
        assert 900_000 < found["delay_most_us"] < 1_300_000


@inside(modules=FLOW)
def test_what_has_waited_long_is_continued_in_batches() -> None:
    """At last a packet has its tokens after half a millisecond, and all wait for longer than 64."""
    peer = Peer()
    receiver, sender = udp(peer.ours4, rcvbuf=1 << 20), peer.udp()
    size = 1000 - IP_UDP
    with flows(f"a dport={port_of(receiver)} rate=8k queue=200000"), polls(SERVER) as taken:
        for number in range(200):
            sender.sendto(datagram(number, size), receiver.getsockname())
        time.sleep(0.1)
        change("change a rate=16m")
        wait_for(lambda: flow("a")["waiting"] == 0)
        deferred = flow("a")["deferred"]
    assert drain(receiver) == [datagram(number, size) for number in range(200)]
    assert deferred > 150
    assert sum(taken) >= deferred, taken  # a look at a flow without tokens counts, too
    assert len([work for work in taken if work]) < deferred * 0.6, taken


@inside(modules=FLOW)
def test_what_is_no_flows_passes_untouched() -> None:
    peer = Peer()
    receiver, sender = udp(peer.ours4), peer.udp()
    with flows(f"a dst=10.1.0.0/24 dport={port_of(receiver) ^ 1} rate=1 burst=1 queue=1"):
        for number in range(20):
            sender.sendto(datagram(number, 100), receiver.getsockname())
        assert len(drain(receiver)) == 20
        assert flow("a")["direct"] == flow("a")["full"] == 0


@inside(modules=FLOW)
def test_deleting_a_flow_loses_nothing_and_keeps_the_order() -> None:
    peer = Peer()
    receiver, sender = udp(peer.ours4), peer.udp()
    change(f"add a dport={port_of(receiver)} rate=8k burst=1000")
    for number in range(20):
        sender.sendto(datagram(number, 500), receiver.getsockname())
    assert flow("a")["waiting"] > 15
    change("delete a")
    for number in range(20, 30):
        sender.sendto(datagram(number, 500), receiver.getsockname())
    assert drain(receiver) == [datagram(number, 500) for number in range(30)]


@inside(modules=FLOW)
def test_a_higher_rate_holds_for_what_waits() -> None:
    peer = Peer()
    receiver, sender = udp(peer.ours4), peer.udp()
    with flows(f"a dport={port_of(receiver)} rate=8k burst=1000"):
        for number in range(20):
            sender.sendto(datagram(number, 500), receiver.getsockname())
        change("change a rate=100m")
        wait_for(lambda: flow("a")["waiting"] == 0, 2)
        assert drain(receiver) == [datagram(number, 500) for number in range(20)]


@mark.parametrize("kind", ["tcp4", "tcp6"])
@inside(modules=FLOW)
def test_a_connection_gets_its_rate(kind: str) -> None:
    """Super-packets count as what they were on the wire."""
    peer = Peer()
    own = peer.ours6 if kind == "tcp6" else peer.ours4
    family = socket.AF_INET6 if kind == "tcp6" else socket.AF_INET
    server = socket.create_server((own, 0), family=family)
    with peer:
        client = socket.create_connection(server.getsockname()[:2])
    connection, _ = server.accept()
    with flows(f"a dport={port_of(server)} rate=8m"):
        client.setblocking(False)
        connection.setblocking(False)
        got, began, end = 0, 0.0, time.monotonic() + 6
        while (now := time.monotonic()) < end:
            with suppress(BlockingIOError):
                client.send(b"x" * 65536)
            try:
                got += len(connection.recv(1 << 20))
            except BlockingIOError:
                time.sleep(0.001)
            if not began and now > end - 3:
                began, got = now, 0
        rate = got * 8 / (time.monotonic() - began)
    assert 7_400_000 < rate < 8_000_000, rate


BY_HARDWARE = (
    "table inet mac { chain in { type filter hook input priority 0;"
    " ether saddr 02:00:00:00:01:02 meta l4proto udp counter; }; }"
)


def counted_by_rule() -> int:
    """Packets that had the other machine's Ethernet header behind pf_flow's hook."""
    listing = ["nft", "list", "table", "inet", "mac"]
    told = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
    (found,) = re.findall(r"counter packets (\d+)", told)
    return int(found)


@mark.parametrize("tracked", [False, True])
@mark.parametrize("kind", ["v4", "v6"])
@inside(modules=FLOW)
def test_a_super_packet_goes_packet_by_packet(kind: str, tracked: bool) -> None:
    """Each when it has its tokens, and as it was, its Ethernet header included; but a new
    connection is not shared."""
    peer, number = Peer(), 20
    v6 = kind == "v6"
    own = peer.ours6 if v6 else peer.ours4
    receiver, sender = udp(own), peer.udp(peer.theirs6 if v6 else peer.theirs4)
    to = receiver.getsockname()[:2]
    size = 500 - IP_UDP - 20 * v6
    if tracked:
        nft(TRACKED)
    nft(BY_HARDWARE)
    sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, size)
    data = [datagram(n, size) for n in range(number)]
    with flows(f"a dst={own} dport={port_of(receiver)} rate=80k burst=1000 queue=64k"):
        if tracked:
            sender.sendto(b"".join(data), to)
            assert flow("a")["direct"] == number
            assert drain(receiver) == data
            change("replace", f"add a dport={port_of(receiver)} rate=80k burst=1000 queue=64k")
        began = time.monotonic()
        sender.sendto(b"".join(data), to)
        receiver.settimeout(5)
        found = flow("a")
        assert found["direct"] == 0
        assert found["waiting"] > number - 5
        assert [receiver.recv(2000) for _ in range(number)] == data
        # One each twentieth of a second, after the two for which there were tokens.
        assert 0.8 < time.monotonic() - began < 1.3
        found = flow("a")
        assert (found["deferred"], found["deferred_bytes"]) == (number, number * 500)
        assert found["direct"] == found["full"] == 0
    assert counted_by_rule() == number + tracked
    with flows(f"a dport={port_of(receiver)} rate=80k burst=500 queue=5000"):
        sender.sendto(b"".join(data), to)
        assert flow("a")["full"] == 10


@contextmanager
def real_time() -> Iterator[None]:
    """Receive with that class for a while."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    settle()
    time.sleep(0.02)
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        settle()
        time.sleep(0.02)


@mark.parametrize("kind", ["v4", "v6"])
@inside(modules=FLOW)
def test_what_is_for_a_real_time_receiver_never_waits(kind: str) -> None:
    peer = Peer()
    own = peer.ours4 if kind == "v4" else peer.ours6
    receiver, sender = udp(own), peer.udp(peer.theirs4 if kind == "v4" else peer.theirs6)
    to = receiver.getsockname()[:2]
    with flows(f"a dst={own} rate=2k burst=1000 queue=5000"):
        with real_time():
            assert entry(receiver)["rank"] == "41"
            for number in range(50):
                sender.sendto(datagram(number, 500), to)
            # Before 6.5 softirqs may have been left to a thread that has not run yet.
            time.sleep(0.05)
            assert drain(receiver) == [datagram(number, 500) for number in range(50)]
            found = flow("a")
            assert found["urgent"] + found["direct"] == 50
            assert found["urgent"] > 45
        for number in range(50):
            sender.sendto(datagram(number, 500), to)
        assert flow("a")["waiting"] > 5
        # Now it passes those, and a full queue is none of its business.
        with real_time():
            before = len(drain(receiver))
            for number in range(50):
                sender.sendto(datagram(number, 500), to)
            time.sleep(0.05)
            assert len(drain(receiver)) >= 50
        assert before < 10


@inside(modules=FLOW)
def test_a_connection_of_a_real_time_receiver_is_not_held_up() -> None:
    peer = Peer()
    server = socket.create_server((peer.ours4, 0))
    with peer:
        client = socket.create_connection(server.getsockname())
    connection, _ = server.accept()
    connection.settimeout(5)
    with flows(f"a dport={port_of(server)} rate=8k"), real_time():
        for _ in range(30):
            client.send(b"x" * 10_000)
            left = 10_000
            while left:
                left -= len(connection.recv(left))
        found = flow("a")
        assert found["urgent"] > 100
        assert found["waiting"] == found["deferred"] == 0


@contextmanager
def owned(nices: tuple[int, ...], address: str) -> Iterator[list[int]]:
    """Ports of sockets that processes of these nice levels hold and do not read."""
    ports, children = [], []
    for nice in nices:
        receiver = udp(address, rcvbuf=8 << 20)
        ports.append(port_of(receiver))
        child = os.fork()
        if not child:
            os.nice(nice)
            signal.pause()
        receiver.close()
        children.append(child)
    try:
        yield ports
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


@inside(modules=FLOW)
def test_by_rank_the_more_important_receiver_has_its_packets_first() -> None:
    """Of two flows that have tokens at once, and more packets than the server takes at a time."""
    peer, later = Peer(), {}
    senders = [peer.udp() for _ in range(2)]
    with owned((10, 0), peer.ours4) as ports:
        wait_for(lambda: {10, 20} <= {int(row["rank"]) for row in sockets()})
        for scheduler in ("rank", "eevdf"):
            with setting("flow/scheduler", scheduler, "eevdf"):
                change(*(f"add f{n} dport={port} rate=8k queue=1m" for n, port in enumerate(ports)))
                for _ in range(3000):
                    for sender, port in zip(senders, ports, strict=True):
                        sender.sendto(b"x" * 200, (peer.ours4, port))
                assert min(flow(f"f{n}")["waiting"] for n in range(2)) > 2900
                change("change f0 rate=100g", "change f1 rate=100g")
                wait_for(lambda: flow("f0")["waiting"] == flow("f1")["waiting"] == 0)
                later[scheduler] = flow("f0")["delay_us"] - flow("f1")["delay_us"]
                change("replace")
    # By EEVDF whose rate is changed first may be a moment ahead.
    assert later["rank"] > 0, later
    assert later["rank"] - later["eevdf"] > 2 * abs(later["eevdf"]), later


def flood(sender: socket.socket, to: tuple[str, int], size: int) -> None:
    """As much as goes, for ever; each datagram as long as the others."""
    while True:
        for _ in range(50):
            sender.sendto(b"x" * size, to)


@mark.parametrize("tracked", [False, True])
@mark.parametrize("kind", ["v4", "v6"])
@mark.first()
@inside(modules=FLOW, pinned=False)
def test_what_exceeds_a_full_queue_is_dropped_first_and_the_rate_is_reached(
    kind: str, tracked: bool
) -> None:
    """Within one percent; and each packet is accounted for."""
    peer = Peer()
    v6 = kind == "v6"
    own, theirs = (peer.ours6, peer.theirs6) if v6 else (peer.ours4, peer.theirs4)
    receiver, sender = udp(own, rcvbuf=4 << 20), peer.udp(theirs)
    if tracked:
        nft(TRACKED)
    on_wire = 1200
    size = on_wire - IP_UDP - 20 * v6
    receiver.settimeout(5)
    with flows(f"a dst={own} dport={port_of(receiver)} rate=5m"):
        child = os.fork()
        if not child:
            flood(sender, receiver.getsockname()[:2], size)
        try:
            for _ in range(100):
                receiver.recv(2000)
            got, began = 0, time.monotonic()
            while (now := time.monotonic()) - began < 4:
                assert len(receiver.recv(2000)) == size
                got += on_wire
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        rate = got * 8 / (now - began)
        assert 4_950_000 < rate < 5_050_000, rate
        found = flow("a")
        if is_real_time():
            assert found["full"] > found["early"] == 0, found
        elif is_debug():  # it is sent little more than the flow may have
            assert min(found["early"], found["full"]) > 0, found
        else:
            assert found["early"] > found["full"] > 0, found


@inside(modules=FLOW)
def test_another_connection_is_not_dropped_for_one_whose_queue_is_full() -> None:
    peer = Peer()
    full, other = udp(peer.ours4), udp(peer.ours4, rcvbuf=1 << 20)
    sender = peer.udp()
    with flows(f"a dport={port_of(full)} rate=8k burst=200 queue=1000", "b default rate=100m"):
        for number in range(300):
            sender.sendto(datagram(number, 100), full.getsockname())
            sender.sendto(datagram(number, 100), other.getsockname())
        assert drain(other) == [datagram(number, 100) for number in range(300)]
        found = flow("a")
        assert found["full" if is_real_time() else "early"] > 100
        assert (
            found["early"] + found["full"] + found["direct"] + found["deferred"] + found["waiting"]
            == 300
        )


@inside(modules=FLOW)
def test_packets_that_rules_mark_apart_are_not_dropped_for_each_other() -> None:
    """They have the same addresses and ports, and are told apart behind the early hook only."""
    peer = Peer()
    receiver, sender = udp(peer.ours4, rcvbuf=1 << 20), peer.udp()
    nft("""table ip t {
    chain c {
        type filter hook prerouting priority mangle
        ip dscp ef meta mark set 1
    }
}
""")
    with flows("a default rate=8k burst=200 queue=1000", "b mark=1 rate=100m"):
        for number in range(300):
            for tos in (0, 0xB8):
                sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
                sender.sendto(datagram(number + 1000 * bool(tos), 100), receiver.getsockname())
        got = drain(receiver)
        assert [datagram(1000 + number, 100) for number in range(300)] == [
            one for one in got if one not in [datagram(number, 100) for number in range(300)]
        ]
        assert flow("b")["direct"] == 300


def sent_by_tcp(sock: socket.socket) -> int:
    """Bytes of data, with what it sent again: tcpi_bytes_sent."""
    return int.from_bytes(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 208)[200:], "little")


@inside(modules=FLOW)
def test_what_is_merged_inside_a_tunnel_counts_with_all_of_its_headers() -> None:
    """Each packet on the wire had its own, outer and inner."""
    peer = Peer()
    own = "link add vx mtu 1450 type vxlan id 7 dstport 4789 local {} remote {}\n"
    own += "link set vx address {} up\n"
    ip(own.format(peer.ours4, peer.theirs4, "02:00:00:00:07:01") + "address add 10.7.0.1/24 dev vx")
    with peer:
        ip(
            own.format(peer.theirs4, peer.ours4, "02:00:00:00:07:02")
            + "address add 10.7.0.2/24 dev vx"
        )
    server = socket.create_server(("10.7.0.1", 0))
    with peer:
        client = socket.create_connection(server.getsockname())
    connection, _ = server.accept()
    connection.settimeout(5)
    with flows("a dport=4789"):
        for _ in range(20):
            client.send(bytes(50_000))
            left = 50_000
            while left:
                left -= len(connection.recv(left))
        found, sent = flow("a"), sent_by_tcp(client)
        assert found["direct"] > sent / 1500
        headers = (found["direct_bytes"] - sent) / found["direct"]
        # VXLAN's 50, and 52 of IP's and TCP's with a time-stamp; beside few packets without data.
        assert 100 < headers < 104, (headers, found)
