# SPDX-License-Identifier: GPL-2.0-only
"""Others that look at packets beside the filter, while the CPU is under pressure.

What is received is what a stock kernel hands on, packet for packet: so the same is done with the
suite switched off and on.
"""

import ctypes
import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from inside import Skip, inside, mark
from inside.net import Namespace, Peer, datagram, drain, drops, nft, nft_counters, pressure, udp
from inside.passing import LARGE, PORT, N, bystander, exchange
from inside.queued import Queue
from inside.suite import (
    begin,
    dropped,
    early,
    passed,
    pressed,
    set_knob,
    settle,
    wait_for,
)

pytestmark = mark.ends

ROOM = 10_000  # bytes of a receiver's buffer; some of the packets do not fit
ROUNDS = 5
AT_ONCE = 30
TAKEN = 4  # packets a round
SO_ATTACH_FILTER = 26
LONGER = 13  # s

Again = Callable[[], object]  # keeps the CPU under pressure


def needs(*modules: str) -> None:
    if subprocess.run(["modprobe", "-a", *modules], check=False).returncode:
        raise Skip("this kernel lacks what the test is about")


def on_stock_and_ours(play: Callable[[Again], list[bytes]]) -> list[bytes]:
    """What is received by both. Packets are counted from when it is ours."""
    set_knob("enable", 0)
    with Namespace():
        stock = play(lambda: None)
    set_knob("enable", 1)
    with Namespace(), pressure() as full:
        begin()
        ours = play(full.again)
    assert ours == stock
    return ours


def rounds(receiver: socket.socket, send: Callable[[bytes], object], again: Again) -> list[bytes]:
    """Sent to a receiver that takes a few of what comes at once; what it received."""
    got = []
    settle()
    for number in range(ROUNDS * AT_ONCE):
        again()
        send(datagram(number, 400))
        if number % AT_ONCE == AT_ONCE - 1:
            got += [receiver.recv(2000) for _ in range(TAKEN)]
    return got + drain(receiver)


def queue_at(hook: str, priority: str) -> Queue:
    """Packets to the receiver come to a program there."""
    queue = Queue()
    nft(
        f"table ip queued {{ chain {hook} {{ type filter hook {hook} priority {priority};"
        f" udp dport {PORT} queue num 0; }}; }}"
    )
    return queue


@inside(timeout=90)
def test_what_waits_for_user_space_waits_as_long_as_it_takes() -> None:
    """A program may take long for its verdict; every ten seconds it is looked who receives what."""
    needs("nfnetlink_queue", "nft_queue")
    peer = Peer()
    receiver, sender = udp(peer.ours4, PORT, ROOM), peer.udp()
    queue = queue_at("input", "filter")
    with pressure() as full:
        begin()
        full.again()
    sender.sendto(datagram(1, 400), (peer.ours4, PORT))
    time.sleep(LONGER)
    assert queue.accept() == 1
    assert drain(receiver) == [datagram(1, 400)]


@mark.parametrize("priority", ["mangle", "filter"])
@inside()
def test_a_queue_of_user_space(priority: str) -> None:
    """Ahead of the filter's hook packets come to it from the program; behind, from the hook."""
    needs("nfnetlink_queue", "nft_queue")

    def play(again: Again) -> list[bytes]:
        peer = Peer()
        receiver, sender = udp(peer.ours4, PORT, ROOM), peer.udp()
        queue = queue_at("prerouting", priority)
        queued = 0

        def send(data: bytes) -> None:
            nonlocal queued
            sender.sendto(data, (peer.ours4, PORT))
            queued += queue.accept()

        got = rounds(receiver, send, again)
        all_of_them = ROUNDS * AT_ONCE
        by_us = early(receiver)
        assert len(got) + drops(receiver) == all_of_them > len(got)
        assert queued + by_us == all_of_them
        counts.append((by_us, passed().get("not_plain", 0)))
        for thing in (receiver, sender, queue):
            thing.close()
        return got

    counts: list[tuple[int, int]] = []
    on_stock_and_ours(play)
    by_us, not_plain = counts[-1]
    if priority == "mangle":
        assert by_us == 0
        assert not_plain >= ROUNDS * AT_ONCE
    else:
        assert by_us > 0
        assert not_plain == 0


@inside()
def test_a_flowtable_takes_packets_past_the_hook() -> None:
    """A port of a container that is published, as those of most of them are."""
    needs("nf_flow_table", "nft_flow_offload")
    outside, container = Peer(1), Peer(2)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    nft(
        "table ip fast { flowtable f { hook ingress priority 0; devices = { v1, v2 }; };"
        " counter seen {}; chain raw { type filter hook prerouting priority raw;"
        f" iifname v1 udp dport {PORT} counter name seen; }};"
        " chain forward { type filter hook forward priority filter; ip protocol udp flow add @f; };"
        " chain prerouting { type nat hook prerouting priority dstnat;"
        f" iifname v1 udp dport {PORT} dnat to {container.theirs4}:{PORT + 1}; }}; }}"
    )
    receiver, sender = container.udp(port=PORT + 1, rcvbuf=LARGE), outside.udp()

    def is_offloaded() -> bool:
        sender.sendto(b"ask", (outside.ours4, PORT))
        _, asker = receiver.recvfrom(100)
        receiver.sendto(b"answer", asker)
        assert sender.recv(100) == b"answer"
        listing = ["conntrack", "-L"]
        table = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
        return "[OFFLOAD]" in table

    wait_for(is_offloaded)
    # Some that were not may have been seen, in a sample at peace. What that found of where they
    # end holds for a second, and as long the container leaves them to the host.
    time.sleep(1.2)
    begin()
    before = nft_counters()
    with bystander() as full:
        exchange(full, sender, (outside.ours4, PORT), receiver)
        assert nft_counters() == before
        told = passed()
        # In the container, and there only.
        assert told["judged"] >= N
        assert told["judged_before"] + told["forwarded"] + told["traced"] == 0


@inside()
def test_hooks_of_others_around_ours() -> None:
    """Both drop some packets by what is in them. Each sees what is left, and no packet twice."""

    def play(again: Again) -> list[bytes]:
        peer = Peer()
        receiver, sender = udp(peer.ours4, PORT, ROOM), peer.udp()
        nft(
            "table ip others { counter before {}; counter behind {};"
            " chain one { type filter hook prerouting priority -100;"
            f" udp dport {PORT} counter name before; udp length 108 drop; }};"
            " chain two { type filter hook prerouting priority -98;"
            f" udp dport {PORT} counter name behind; udp length 208 drop; }}; }}"
        )
        sent = ROUNDS * AT_ONCE
        got = rounds(
            receiver,
            lambda data: sender.sendto(data[: 100 * (1 + data[3] % 4)], (peer.ours4, PORT)),
            again,
        )
        before, behind = nft_counters()
        by_us = early(receiver)
        dropped_before = sum(number % 4 == 0 for number in range(sent))
        assert (before, behind) == (sent, sent - dropped_before - by_us)
        counts.append(by_us)
        for thing in (receiver, sender):
            thing.close()
        return got

    counts: list[int] = []
    got = on_stock_and_ours(play)
    assert {len(data) for data in got} == {300, 400}
    assert counts[0] == 0 < counts[1]


def attach(sock: socket.socket, program: Sequence[tuple[int, int, int, int]]) -> None:
    """A classic BPF program that tells how many bytes of a packet are taken; 0 drops it."""
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    told = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code))
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, told)


# Load the last byte of a packet's number, behind the header of UDP; is it odd? All of it, or none.
ODD = ((0x30, 0, 0, 11), (0x45, 0, 1, 1), (0x06, 0, 0, 0xFFFF), (0x06, 0, 0, 0))


@inside()
def test_a_program_at_the_socket_that_drops() -> None:
    """It takes every other packet, of which some find the buffer full."""

    def play(again: Again) -> list[bytes]:
        receiver, sender = udp(rcvbuf=ROOM), udp()
        attach(receiver, ODD)
        to = receiver.getsockname()
        got = rounds(receiver, lambda data: sender.sendto(data, to), again)
        assert len(got) + drops(receiver) == ROUNDS * AT_ONCE
        counts.append(early(receiver))
        for thing in (receiver, sender):
            thing.close()
        return got

    counts: list[int] = []
    got = on_stock_and_ours(play)
    assert len(got) > ROUNDS * TAKEN
    assert all(struct.unpack_from("!I", data)[0] % 2 for data in got)
    assert counts[0] == 0 < counts[1]


@inside()
def test_what_a_program_at_the_socket_drops_is_no_overload() -> None:
    receiver, sender = udp(), udp()
    attach(receiver, ODD[-1:])
    cpu = min(os.sched_getaffinity(0))
    wait_for(lambda: not pressed(cpu))
    for number in range(500):
        sender.sendto(datagram(number, 400), receiver.getsockname())
    assert drops(receiver) == 500
    assert not pressed(cpu)
    assert sum(dropped().values()) == 0
