# SPDX-License-Identifier: GPL-2.0-only
"""What `ip` would ask the kernel for, in much less time."""

import os
import socket
import struct
from collections.abc import Iterable

RTM_NEWROUTE, RTM_NEWNEIGH, RTM_NEWRULE = 24, 28, 32
NLM_F_REQUEST, NLM_F_ACK, NLM_F_REPLACE, NLM_F_CREATE = 1, 4, 0x100, 0x400
PERMANENT = 0x80


def message(kind: int, head: bytes, flags: int, **attributes: bytes) -> bytes:
    """One request; attributes as a<number>."""
    body = head
    for name, value in attributes.items():
        one = struct.pack("HH", 4 + len(value), int(name[1:])) + value
        body += one.ljust((len(one) + 3) & ~3, b"\0")
    flags |= NLM_F_REQUEST | NLM_F_REPLACE | NLM_F_CREATE
    if kind == RTM_NEWRULE:
        flags &= ~NLM_F_REPLACE
    return struct.pack("IHHII", 16 + len(body), kind, flags, 1, 0) + body


def netlink(kind: int, head: bytes, **attributes: bytes) -> None:
    """Ask for it, and wait for the answer."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(message(kind, head, NLM_F_ACK, **attributes))
        (error,) = struct.unpack_from("i", kernel.recv(8192), 16)
    if error:
        raise OSError(-error, os.strerror(-error))


def _neighbour(address: str, mac: str, device: str) -> tuple[bytes, dict[str, bytes]]:
    index = socket.if_nametoindex(device)
    head = struct.pack("BxHiHBB", socket.AF_INET, 0, index, PERMANENT, 0, 0)
    hardware = bytes.fromhex(mac.replace(":", ""))
    return head, {"a1": socket.inet_aton(address), "a2": hardware}


def neighbour(address: str, mac: str, device: str) -> None:
    """Have the address at that hardware address, for good."""
    head, attributes = _neighbour(address, mac, device)
    netlink(RTM_NEWNEIGH, head, **attributes)


def moves(address: str, macs: Iterable[str], device: str) -> bytes:
    """One request to have it there and there in turn, without any answer."""
    found = (_neighbour(address, mac, device) for mac in macs)
    return b"".join(message(RTM_NEWNEIGH, head, 0, **attributes) for head, attributes in found)
