# SPDX-License-Identifier: GPL-2.0-only
"""Drops in the driver, by the program of "packetflow xdp attach", in a namespace of a test."""

import os
import re
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from programs import load

from inside import Skip
from inside.net import Peer, Pressure, drops
from inside.suite import wait_for

TOOL = load("packetflow-xdp")
KNOWN = "/run/driver-functions"  # which numbers they have among the kernel's types
PORT = 4000
PACKETS, SIZE, ROOM = 200, 512, 2


def numbers(modules: list[str]) -> list[int]:
    """The tool's look-up takes an emulated CPU seconds. They stay the same until the next
    boot, as no other build of a module is loaded meanwhile, nor another order of modules."""
    known = Path("-".join([KNOWN, *modules]))
    if not known.exists():
        known.write_text(" ".join(map(str, FIND(modules))))
    return [int(word) for word in known.read_text().split()]


FIND, TOOL.numbers = TOOL.numbers, numbers


@contextmanager
def asking(device: str, generic: bool = False) -> Iterator[None]:
    """The program is attached to that device, whatever the tool would say to it."""
    if not TOOL.asked():
        raise Skip("this kernel has no types (BTF)")
    flags = TOOL.GENERIC if generic else TOOL.NATIVE
    request = struct.pack(
        "IIII16x", TOOL.program(), socket.if_nametoindex(device), TOOL.ATTACH_XDP, flags
    )
    link, _ = TOOL.bpf(TOOL.LINK_CREATE, request)
    yield
    os.close(link)


def tags_stay(device: str) -> None:
    """In the frame: the device neither takes them off nor has them put in by another."""
    settings = ["rxvlan", "off", "txvlan", "off", "rx-vlan-stag-hw-parse", "off"]
    settings += ["tx-vlan-stag-hw-insert", "off"]
    subprocess.run(["ethtool", "-K", device, *settings], check=True, capture_output=True)


def met() -> int:
    """Packets that came to IPv4, in this namespace."""
    text = Path("/proc/thread-self/net/snmp").read_text()
    names, values = (line.split() for line in re.findall("^Ip: .*", text, re.MULTILINE))
    return int(values[names.index("InReceives")])


def settled(full: socket.socket, before: int) -> None:
    """All that was sent to a full socket has ended; it may have had a little room."""
    wait_for(lambda: drops(full) - before >= PACKETS - ROOM)


def ended(full: Pressure, send: Callable[[], object]) -> tuple[int, int]:
    """What is sent so often to a full socket: dropped in the driver, and early in all."""
    full.raise_()
    lost, early, before = drops(full.sock), full.early(), met()
    for _ in range(PACKETS):
        send()
    settled(full.sock, lost)
    return PACKETS - (met() - before), full.early() - early


def sender(peer: Peer, device: str, to: str) -> Callable[[], object]:
    """From the other machine, by that device of its own."""
    sock = peer.udp("0.0.0.0")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
    return lambda: sock.sendto(bytes(SIZE), (to, PORT))
