# SPDX-License-Identifier: GPL-2.0-only
"""What comes and goes under traffic."""

import random
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from inside.net import Peer, ip, udp
from inside.repeating import busy

# What a new socket may hold, if it does not say: so little that packets in flight fill it.
BARE = "4096"


def seconds(length: float) -> Iterator[float]:
    end = time.monotonic() + length
    while (now := time.monotonic()) < end:
        yield now


def sockets_come_and_go(ports: Sequence[int], most: float) -> None:
    """One for each port, every other of which may grow; some have the time, which is at most that
    many seconds."""
    made = [udp("127.0.0.1", port, port % 2) for port in ports]
    time.sleep(random.random() * most)
    for sock in made:
        with suppress(BlockingIOError):
            sock.recv(400, socket.MSG_DONTWAIT)
        sock.close()


def devices_come_and_go() -> None:
    """A device with a full socket and one that grows behind it, gone while packets are on it."""
    peer = Peer(random.randint(10, 99))
    sender, full, deep = peer.udp(), udp(peer.ours4, rcvbuf=1), udp(peer.ours4)

    def send() -> None:
        for sock in (full, deep) * 10:
            sender.sendto(b"x" * 300, sock.getsockname())

    with busy(send, send):
        time.sleep(random.random() / 5)
        ip(f"link delete {peer.device}")
    peer.close()
    tap = f"t{peer.device}"
    ip(f"tuntap add {tap} mode tap\nlink set {tap} up\nlink delete {tap}")
    for sock in (sender, full, deep):
        sock.close()
