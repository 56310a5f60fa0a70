# SPDX-License-Identifier: GPL-2.0-only
"""Datagrams that must pass, beside a full socket whose port is theirs.

A lookup by port alone would find that socket, and drop them.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from inside.net import Pressure, datagram, drain, pressure
from inside.suite import dropped, wait_for

PORT = 4000
N = 200
LARGE = 4 << 20


@contextmanager
def bystander(port: int = PORT, address: str = "0.0.0.0") -> Iterator[Pressure]:
    """A full socket of this host on the port; checks that it alone lost packets."""
    with pressure(address, port) as made:
        yield made
        told = dropped()
        assert told["socket_full"] == made.early() > 0
        assert told["overload"] == told["harm"] == 0


def exchange(
    full: Pressure,
    sender: socket.socket,
    to: tuple[str, int],
    receiver: socket.socket,
    size: int = 100,
) -> None:
    """N datagrams, all of which arrive as they were sent."""
    got: list[bytes] = []
    wanted = [datagram(number, size) for number in range(N)]
    for data in wanted:
        full.again()
        sender.sendto(data, to)
        got += drain(receiver)
    # Tunnels that encrypt deliver a little later.

    def all_there() -> bool:
        got.extend(drain(receiver))
        return len(got) == N

    wait_for(all_there)
    assert sorted(got) == wanted
