# SPDX-License-Identifier: GPL-2.0-only
"""For pf_mm: TCP connections with small windows, which bursts open."""

import hashlib
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inside.growing import Owner, granted, limit, refused
from inside.net import sysctl
from inside.suite import wait_for

SMALL_WINDOW = 131_072


@contextmanager
def small_windows(most: int = SMALL_WINDOW, scaled_for: int = 4 << 20) -> Iterator[None]:
    """In this namespace, which is the test's own. For rmem_max a connection chooses its scale."""
    setting = Path("/proc/sys/net/ipv4/tcp_rmem")
    before = setting.read_text()
    setting.write_text(f"4096 {SMALL_WINDOW} {most}")
    try:
        with sysctl("net.core.rmem_max", str(scaled_for)):
            yield
    finally:
        setting.write_text(before)


class Stream:
    """Bytes of which no two pieces are alike, on their way to an owner's connection."""

    def __init__(self, to: Owner) -> None:
        self._to = to
        self._chance = random.Random(5)
        self._made = bytearray()
        self.sent = self.received = 0

    def fill(self, most: int = 1 << 30) -> None:
        """Send until nothing more is taken."""
        end, idle = self.sent + most, 0
        while idle < 5 and self.sent < end:
            if len(self._made) == self.sent:
                self._made += self._chance.randbytes(16384)
            try:
                self.sent += self._to.sender.send(self._made[self.sent : end])
                idle = 0
            except BlockingIOError:
                idle += 1
                time.sleep(0.01)

    def take(self, piece: int = 65536) -> int:
        """Have it receive what is there, and see that this is what was sent."""
        count, digest = self._to.ask("bytes", 1 << 30, piece)
        piece_sent = self._made[self.received : self.received + count]
        assert hashlib.sha256(piece_sent).hexdigest() == digest, self.received
        self.received += count
        return int(count)

    def finish(self) -> None:
        def over() -> bool:
            self.take()
            return self.received == self.sent

        wait_for(over)


def open_window(one: Owner, size: int = limit(0)) -> Stream:
    """By bursts, until the buffer has its size."""
    stream = Stream(one)

    def grown() -> bool:
        stream.fill()
        stream.take(8192)
        return one.size() == size

    try:
        wait_for(grown, 20)
    except AssertionError:
        raise AssertionError(one.size(), granted(), refused()) from None
    return stream
