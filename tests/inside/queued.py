# SPDX-License-Identifier: GPL-2.0-only
"""A program at a queue of netfilter (NFQUEUE), which lets all packets go on."""

import socket
import struct

NETLINK_NETFILTER = 12
QUEUE = 3 << 8  # the subsystem of nfnetlink
PACKET, VERDICT, CONFIG = QUEUE, QUEUE | 1, QUEUE | 2
CFG_CMD, CFG_PARAMS = 1, 2
PACKET_HDR, VERDICT_HDR = 1, 2
BIND, COPY_META, ACCEPT = 1, 1, 1


class Queue:
    """Bound to a queue of the current namespace."""

    def __init__(self, number: int = 0) -> None:
        self._number = number
        self._sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
        self._sock.bind((0, 0))
        self._ask(CONFIG, CFG_CMD, struct.pack("!BBH", BIND, 0, 0))
        self._ask(CONFIG, CFG_PARAMS, struct.pack("!IB", 0, COPY_META))

    def _send(self, kind: int, attribute: int, data: bytes, flags: int) -> None:
        text = struct.pack("!BBH", socket.AF_UNSPEC, 0, self._number)
        text += struct.pack("HH", 4 + len(data), attribute) + data + bytes(-len(data) % 4)
        self._sock.send(struct.pack("IHHII", 16 + len(text), kind, 1 | flags, 0, 0) + text)

    def _ask(self, kind: int, attribute: int, data: bytes) -> None:
        self._send(kind, attribute, data, 4)  # to be acknowledged
        error = struct.unpack_from("i", self._sock.recv(65536), 16)[0]
        assert not error, error

    def accept(self) -> int:
        """All that waits goes on, in this very call; how many packets that was."""
        numbers = []
        try:
            while True:
                numbers += _packets(self._sock.recv(65536, socket.MSG_DONTWAIT))
        except BlockingIOError:
            pass
        for number in numbers:
            self._send(VERDICT, VERDICT_HDR, struct.pack("!II", ACCEPT, number), 0)
        return len(numbers)

    def close(self) -> None:
        self._sock.close()


def _packets(data: bytes) -> list[int]:
    """The numbers of the packets that messages tell of."""
    found = []
    while data:
        length, kind = struct.unpack_from("IH", data)
        assert kind == PACKET
        at = 20  # behind both headers
        while at < length:
            size, attribute = struct.unpack_from("HH", data, at)
            if attribute == PACKET_HDR:
                found.append(struct.unpack_from("!I", data, at + 4)[0])
            at += size + -size % 4
        data = data[length + -length % 4 :]
    return found
