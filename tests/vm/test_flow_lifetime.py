# SPDX-License-Identifier: GPL-2.0-only
"""pf_flow under traffic: tables that change, modules, namespaces and devices that go.

Four CPUs, so that what may race does. The kernel's log is the judge, and the count of packets.
"""

import os
import random
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress

from inside import inside, mark
from inside.flows import FLOW, change, flow, flows, until
from inside.net import Namespace, Peer, bond_over, drain, ip, nft, port_of, udp
from inside.repeating import busy
from inside.suite import ROOT, insmod, metric, rmmod, set_knob, setting, wait_for

pytestmark = mark.ends

RCVBUF = 8 << 20


def waiting() -> int:
    return int(metric("packetflow_flow_waiting_packets")[""])


class Numbered:
    """A sender that numbers what it sends, at some hundred packets a second."""

    def __init__(self, peer: Peer, to: socket.socket) -> None:
        self._sock, self._to, self.sent = peer.udp(), to.getsockname(), 0

    def send(self, number: int, size: int = 100, who: int = 0) -> None:
        for _ in range(number):
            self._sock.sendto(struct.pack("!QB", self.sent, who) + b"x" * size, self._to)
            self.sent += 1


def numbers(receiver: socket.socket) -> list[int]:
    return [struct.unpack("!Q", data[:8])[0] for data in drain(receiver)]


@mark.cpus(1, 4)
@inside(modules=FLOW)
def test_order_is_kept_where_packets_begin_and_cease_to_wait() -> None:
    peer = Peer()
    receiver = udp(peer.ours4, rcvbuf=RCVBUF)
    sender, rng, got = Numbered(peer, receiver), random.Random(1), []
    with flows(f"a dport={port_of(receiver)} rate=1m burst=1000 queue=1m"):
        for _ in until(time.monotonic() + 5):
            sender.send(rng.randrange(12))
            time.sleep(rng.random() / 80)
            got += numbers(receiver)
        wait_for(lambda: flow("a")["waiting"] == 0)
        found = flow("a")
        assert found["direct"] > 100 < found["deferred"]
    time.sleep(0.1)
    got += numbers(receiver)
    assert got == list(range(sender.sent))


@mark.cpus(4)
@inside(modules=FLOW)
def test_a_table_that_changes_all_the_time_loses_nothing() -> None:
    peer = Peer()
    receiver = udp(peer.ours4, rcvbuf=RCVBUF)
    sender, rng, got = Numbered(peer, receiver), random.Random(2), []
    port = port_of(receiver)
    tables = [
        (f"add a dport={port} rate=200k burst=500 queue=1m",),
        (f"add b dst={peer.ours4} rate=300k burst=300 queue=1m weight=3", "add c default rate=1m"),
        (f"add a dport={port} rate=2m queue=1m peak=3m",),
        (),
    ]
    for turn in range(120):
        sender.send(rng.randrange(30))
        change("replace", *rng.choice(tables))
        if turn % 3 == 0:
            with suppress(OSError):
                change(f"change a rate={rng.randrange(100, 1000)}k")
        with suppress(OSError):
            change(f"delete {rng.choice('abc')}")
        got += numbers(receiver)
    change("replace")
    got += numbers(receiver)
    assert got == list(range(sender.sent))
    assert waiting() == 0


@mark.cpus(4)
@mark.parametrize("how", ["enable", "rmmod"])
@inside(modules=FLOW)
def test_switching_off_loses_nothing(how: str) -> None:
    peer = Peer()
    receiver = udp(peer.ours4, rcvbuf=RCVBUF)
    sender, got = Numbered(peer, receiver), []
    row = f"add a dport={port_of(receiver)} rate=50k burst=500 queue=1m"
    change(row)
    for _ in range(8):
        sender.send(100)
        assert flow("a")["waiting"] > 50
        if how == "enable":
            with setting("enable", "0", "1"):
                assert waiting_gone()
                got += numbers(receiver)
                assert len(got) == sender.sent
                sender.send(10)
        else:
            rmmod("pf_flow")
            got += numbers(receiver)
            assert len(got) == sender.sent
            sender.send(10)
            insmod("pf_flow")
            change(row)
    change("replace")
    got += numbers(receiver)
    assert got == list(range(sender.sent))


def waiting_gone() -> bool:
    return metric("packetflow_flow_waiting_packets") == {}


def flood(sock: socket.socket, to: tuple[str, int]) -> Callable[[], None]:
    def send() -> None:
        for _ in range(20):
            sock.sendto(b"x" * 300, to)

    return send


@mark.cpus(4)
@mark.timeout(400)
@inside(timeout=200, modules=FLOW, pinned=False)
def test_loading_and_unloading_under_traffic() -> None:
    peer = Peer()
    receiver = udp(peer.ours4)
    port, to = port_of(receiver), receiver.getsockname()[:2]
    with busy(*[flood(peer.udp(), to) for _ in range(3)]):
        for turn in range(15):
            change(
                f"add a dport={port} src=10.1.0.0/16 rate={1 + turn}m queue=200k",
                "add b default rate=1m peak=2m",
            )
            time.sleep(random.random() / 5)
            set_knob("enable", 0)
            set_knob("enable", 1)
            time.sleep(random.random() / 5)
            rmmod("pf_flow")
            insmod("pf_flow")
            assert receiver.recv(400)


@mark.cpus(4)
@inside(modules=FLOW, pinned=False)
def test_namespaces_that_go_while_packets_wait() -> None:
    def come_and_go() -> None:
        child = os.fork()
        if not child:
            with Namespace():
                change("add a default rate=100k burst=300", "add l dev=lo dst=127.0.0.1 rate=50k")
                own, six = udp(), udp("::1")
                for _ in range(100):
                    own.sendto(b"x" * 200, own.getsockname())
                    six.sendto(b"x" * 200, six.getsockname()[:2])
                time.sleep(random.random() / 10)
            os._exit(0)
        os.waitpid(child, 0)

    with busy(come_and_go, come_and_go):
        time.sleep(8)
    wait_for(lambda: metric("packetflow_flow_flows")[""] == 0, 40)
    assert waiting() == 0


@mark.cpus(4)
@inside(modules=FLOW, pinned=False)
def test_devices_that_go_while_packets_wait() -> None:
    change("add a default rate=100k burst=300 queue=100k")
    for number in range(20, 40):
        peer = Peer(number)
        receiver = udp(peer.ours4)
        sender = peer.udp()
        with busy(flood(sender, receiver.getsockname()[:2])):
            wait_for(waiting)
            time.sleep(random.random() / 20)
            ip(f"link delete {peer.device}")
        assert waiting() == 0
        peer.close()
        for sock in (receiver, sender):
            sock.close()
    assert flow("a")["gone"] > 100
    change("replace")


@mark.cpus(4)
@inside(modules=FLOW, pinned=False)
def test_a_device_that_moves_to_another_namespace() -> None:
    change("add a default rate=100k burst=300 queue=100k")
    other = Namespace()
    for number in range(20, 30):
        peer = Peer(number)
        receiver, sender = udp(peer.ours4), peer.udp()
        with busy(flood(sender, receiver.getsockname()[:2])):
            wait_for(waiting)
            ip(f"link set {peer.device} netns {other.path}")
            assert waiting() == 0
        peer.close()
        for sock in (receiver, sender):
            sock.close()
    change("replace")


@mark.cpus(4)
@inside(modules=FLOW)
def test_a_device_that_is_down_has_nothing_wait() -> None:
    """A bond's members bring packets in its name until they are released, after it has told."""
    peer = Peer()
    receiver, sender = udp(peer.ours4), peer.udp()
    bond_over(peer)
    with flows("a dev=bond7 proto=udp rate=8k burst=200 queue=100k"):
        for _ in range(20):
            sender.sendto(b"x" * 100, receiver.getsockname())
        assert flow("a")["waiting"] > 10
        ip("link set bond7 down")
        assert (waiting(), flow("a")["waiting"]) == (0, 0)
        assert flow("a")["gone"] > 10
        before = flow("a")
        for _ in range(20):
            sender.sendto(b"x" * 100, receiver.getsockname())
        after = flow("a")
        assert after["waiting"] == 0
        assert after["unfit"] + after["direct"] - before["unfit"] - before["direct"] == 20
    ip("link delete bond7")


@mark.cpus(4)
@mark.parametrize("how", ["enable", "delete"])
@inside(modules=FLOW, pinned=False)
def test_nothing_is_overtaken_when_a_flow_goes_under_a_flood(how: str) -> None:
    """What comes meanwhile may be dropped, and is counted then. Each sender stays on its CPU.
    Packets of one that moves are in two CPUs' queues, and so in no order.

    A firewall of a thousand rules makes those that wait slow to leave. So some still wait when no
    more may join them."""
    peer = Peer()
    receiver = udp(peer.ours4, rcvbuf=64 << 20)
    rules = "meta mark 1\n" * 1000
    nft(f"table ip slow {{ chain in {{ type filter hook input priority 0;\n{rules}}}\n}}")
    senders = [Numbered(peer, receiver) for _ in range(3)]
    row = f"add a dport={port_of(receiver)} rate=1m queue=4m"

    def flooding(number: int) -> Callable[[], None]:
        def send() -> None:
            os.sched_setaffinity(0, {number})
            senders[number].send(50, 8, number)

        return send

    change(row)
    with busy(*map(flooding, range(3))):
        for _ in range(2):
            wait_for(lambda: flow("a")["waiting"] > 5000)
            if how == "enable":
                with setting("enable", "0", "1"):
                    time.sleep(0.1)
            else:
                change("delete a")
                time.sleep(0.1)
                change(row)
    change("replace")
    seen = [-1, -1, -1]
    for data in drain(receiver):
        number, who = struct.unpack("!QB", data[:9])
        assert number > seen[who], (who, number, seen)
        seen[who] = number
    assert min(seen) > 1000


@mark.cpus(2)
@inside(modules=FLOW, pinned=False)
def test_who_reads_status_waits_for_nobody_who_writes_a_table() -> None:
    """Nor for a namespace, or a device, that goes meanwhile."""
    many = "\n".join(["check", *(f"add f{n} dport={n + 1}" for n in range(20_000))])

    def write_many() -> None:
        change(many)

    with busy(write_many):
        for _ in until(time.monotonic() + 3):
            assert "flows: 0\n" in (ROOT / "status").read_text()
            assert metric("packetflow_flow_flows")[""] == 0
