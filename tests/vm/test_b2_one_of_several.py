# SPDX-License-Identifier: GPL-2.0-only
"""B2: of several sockets on a port only the full one loses packets."""

import ctypes
import os
import resource
import socket
import struct
import time

from inside import inside, mark
from inside.net import SMALL, SO_RCVBUFFORCE, Peer, datagram, drain, drops, port_of, pressure, udp
from inside.paths import DEVICE
from inside.suite import dropped, early

pytestmark = mark.ends

SO_ATTACH_REUSEPORT_CBPF, SO_ATTACH_REUSEPORT_EBPF = 51, 52
BPF, BPF_PROG_LOAD, BPF_PROG_TYPE_SOCKET_FILTER = 321, 5, 1  # the call on x86-64


@inside()
def test_only_the_full_one_of_two_on_a_port() -> None:
    """A connected and an unconnected socket share a port; so do two devices' sockets."""
    peer, other = Peer(1), Peer(2)
    friend, stranger = peer.udp(), peer.udp()
    kept = udp("0.0.0.0", 0, 1 << 20)
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port = port_of(kept)
    full = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    full.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    full.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    full.bind(("0.0.0.0", port))
    full.connect((peer.theirs4, port_of(friend)))
    for number in range(200):
        friend.sendto(datagram(number, 50), (peer.ours4, port))
        stranger.sendto(datagram(number, 50), (peer.ours4, port))
    assert drain(kept) == [datagram(number, 50) for number in range(200)]
    assert drops(kept) == 0
    assert len(drain(full)) + drops(full) == 200
    assert dropped()["socket_full"] == early(full) > 100

    before = dropped()["socket_full"]
    one, two = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    for sock, device in ((one, peer.device), (two, other.device)):
        sock.setsockopt(socket.SOL_SOCKET, DEVICE, device.encode())
        sock.bind(("0.0.0.0", 7777))
    second = other.udp()
    for number in range(200):
        friend.sendto(datagram(number, 50), (peer.ours4, 7777))
        second.sendto(datagram(number, 50), (other.ours4, 7777))
    assert drain(two) == [datagram(number, 50) for number in range(200)]
    assert len(drain(one)) + drops(one) == 200
    assert dropped()["socket_full"] - before > 100


def attach_classic(sock: socket.socket) -> None:
    # Load the first byte; return it.
    code = ctypes.create_string_buffer(struct.pack("HBBIHBBI", 0x30, 0, 0, 0, 0x16, 0, 0, 0))
    given = struct.pack("HP", 2, ctypes.addressof(code))
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, given)


def attach_extended(sock: socket.socket) -> None:
    # r6 = r1, the packet; load the first byte; exit.
    steps = ((0xBF, 0x16), (0x30, 0), (0x95, 0))
    code = ctypes.create_string_buffer(b"".join(struct.pack("BBhi", *s, 0, 0) for s in steps))
    licence = ctypes.create_string_buffer(b"GPL")
    kind = BPF_PROG_TYPE_SOCKET_FILTER, len(steps)
    given = struct.pack("IIQQ", *kind, ctypes.addressof(code), ctypes.addressof(licence))
    libc = ctypes.CDLL(None, use_errno=True)
    program = libc.syscall(BPF, BPF_PROG_LOAD, given, len(given))
    assert program >= 0, os.strerror(ctypes.get_errno())
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, program)


PROGRAMS = {"classic": attach_classic, "extended": attach_extended}


def group(program: str = "", size: int = 4) -> list[socket.socket]:
    """Sockets on one port; the program, if any, goes by the first byte of the payload."""
    members: list[socket.socket] = []
    for number in range(size):
        member = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        member.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        member.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, SMALL if number == 0 else 1 << 20)
        member.bind(("0.0.0.0", port_of(members[0]) if members else 0))
        members.append(member)
    if program:
        PROGRAMS[program](members[0])
    return members


@inside()
def test_a_group_loses_only_where_it_is_full() -> None:
    peer = Peer()
    members = group()
    to = (peer.ours4, port_of(members[0]))
    senders = [peer.udp() for _ in range(40)]
    for number in range(20):
        for sender in senders:
            sender.sendto(datagram(number, 50), to)
    lost = [drops(member) for member in members]
    got = [len(drain(member)) for member in members]
    assert lost[1:] == [0, 0, 0]
    assert sum(got) + lost[0] == 800
    assert 50 < early(members[0]) == dropped()["socket_full"] <= lost[0]
    assert all(got)


@mark.parametrize("program", list(PROGRAMS))
@inside()
def test_a_group_with_a_program_is_dropped_for_only_if_all_are_full(program: str) -> None:
    peer = Peer()
    members = group(program)
    to = (peer.ours4, port_of(members[0]))
    senders = [peer.udp() for _ in range(8)]  # the program does not ask who sent it
    for number in range(200):
        senders[number // 2 % 8].sendto(bytes([number % 2]) + datagram(number, 50), to)
    # The first member is full, but which one a packet is for is not known early.
    assert drops(members[0]) > 50
    assert sum(dropped().values()) == 0
    assert len(drain(members[1])) == 100
    time.sleep(1.2)  # all that looking was in vain, so the CPU may rest from it
    for member in members[1:]:
        member.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    before = sum(drops(member) for member in members)
    for number in range(400):
        senders[0].sendto(bytes([number % 4]) + datagram(number, 50), to)
    got = sum(len(drain(member)) for member in members[1:])
    lost = sum(drops(member) for member in members) - before
    assert got + lost == 400
    assert dropped()["socket_full"] > 100


@inside()
def test_a_large_group_with_a_program_is_never_known_to_be_full() -> None:
    """Only a few of its members are looked at for a packet, so it is left to stock."""
    peer = Peer()
    members = group("classic", 40)
    for member in members[:20]:
        member.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    to = (peer.ours4, port_of(members[0]))
    sender = peer.udp()
    with pressure():
        for number in range(400):
            sender.sendto(bytes([number % 40]) + datagram(number, 50), to)
        assert early(members[0]) == 0
    assert [len(drain(member)) for member in members[20:]] == [10] * 20


MEMBERS, PACKETS = 2048, 200


@inside(timeout=300)
def test_a_packet_costs_as_much_however_large_its_group_is() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * MEMBERS, 2 * MEMBERS))
    peer = Peer()
    sender = peer.udp()
    single = udp("0.0.0.0", 0, 1 << 20)
    members = group("classic", MEMBERS)
    with pressure() as pressing:

        def cost(sock: socket.socket) -> int:
            """Of so many packets, sending included; in nanoseconds, which are instructions."""
            to, found = (peer.ours4, port_of(sock)), []
            for _ in range(4):
                pressing.raise_()
                began = time.perf_counter_ns()
                for number in range(PACKETS):
                    sender.sendto(bytes([number]) + datagram(number, 50), to)
                found.append(time.perf_counter_ns() - began)
            return min(found)

        alone, among = cost(single), cost(members[0])
        assert among < 1.2 * alone, (among / PACKETS, alone / PACKETS)
