# SPDX-License-Identifier: GPL-2.0-only
"""The floor is each socket's, but one user's sockets keep no more than a few floors together."""

import mmap
import os
import select
import socket
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack

from inside import inside, mark
from inside.computing import spin
from inside.net import SO_RCVBUFFORCE, Peer, udp
from inside.scheduling import attending, running
from inside.suite import setting, sockets, wait_for

pytestmark = mark.oldest

USER, OTHERS = 1000, (1001, 1002, 1003)  # two users meet in one counter once in 256 times
CROWD, PPS, FLOOR = 100, 20, 10  # PPS is what each socket is sent
SECONDS = 20
ROOM = 1 << 20  # for all that: a socket that is full loses packets for its own sake


def made_by(user: int, address: str, number: int) -> list[socket.socket]:
    """Sockets are the user's who makes them, whoever receives."""
    os.seteuid(user)
    try:
        made = [udp(address) for _ in range(number)]
    finally:
        os.seteuid(0)
    for sock in made:
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, ROOM)
    return made


def works_on_each(socks: list[socket.socket]) -> None:
    os.nice(10)
    poll = select.epoll()
    by_number = {sock.fileno(): sock for sock in socks}
    for number in by_number:
        poll.register(number, select.EPOLLIN)
    while True:
        for number, _ in poll.poll():
            by_number[number].recv(2000)
            spin(0.001)


def works(sock: socket.socket) -> None:
    """More than there is time for, so that it always needs what the others take."""
    while True:
        sock.recv(2000)
        spin(0.003)


def sends(
    peer: Peer, socks: list[socket.socket], pps: int, sent: mmap.mmap | None = None
) -> Callable[[], None]:
    """So many a second to each, from nobody who is kept from it; it tells how many."""
    out, to = peer.udp(), [sock.getsockname() for sock in socks]

    def send() -> None:
        os.nice(-20)
        due, rounds = time.monotonic(), 0
        while True:
            for address in to:
                out.sendto(b"x" * 200, address)
            rounds += 1
            if sent:
                struct.pack_into("Q", sent, 0, rounds)
            due += 1 / pps
            time.sleep(max(0.0, due - time.monotonic()))

    return send


class Kept:
    """What sockets keep, each, packets/s, from now on."""

    def __init__(self, socks: list[socket.socket], sent: mmap.mmap) -> None:
        self._ports = {f":{sock.getsockname()[1]}" for sock in socks}
        self._sent = sent
        self._before, self._began = self._count(), time.monotonic()

    def _count(self) -> dict[str, tuple[int, int]]:
        """Of each port: what it was sent, and what it lost for the sake of others."""
        (sent,) = struct.unpack_from("Q", self._sent)
        rows = {row["local"][row["local"].rindex(":") :]: row for row in sockets()}
        return {
            port: (sent, int(rows[port]["early_harm"]) + int(rows[port]["early_overload"]))
            for port in self._ports
        }

    def each(self) -> list[float]:
        now, took = self._count(), time.monotonic() - self._began
        return [
            (now[port][0] - sent - (now[port][1] - lost)) / took
            for port, (sent, lost) in self._before.items()
        ]


@inside(timeout=150)
def test_many_sockets_of_a_user_keep_a_few_floors_together() -> None:
    """Beside a more important receiver that they harm. Equals of other users keep theirs."""
    peer, sent = Peer(), mmap.mmap(-1, 8)
    high = udp(peer.ours4)
    crowd = made_by(USER, peer.ours4, CROWD)
    others = [sock for user in OTHERS for sock in made_by(user, peer.ours4, 1)]
    with setting("filter/floor", str(FLOOR), "100"), ExitStack() as stack:

        def run(*actions: Callable[[], None]) -> None:
            for action in actions:
                stack.enter_context(running(action))

        run(lambda: works_on_each(crowd), lambda: works_on_each(others))
        run(sends(peer, [*crowd, *others], PPS, sent))
        # Until a receive call was seen, a socket is taken to be of who made it.
        wait_for(lambda: [row["rank"] for row in sockets()].count("10") == CROWD + len(others), 60)
        stack.enter_context(attending())
        run(lambda: works(high), sends(peer, [high] * 20, 25))
        time.sleep(2)
        seconds = []
        for _ in range(SECONDS):
            many, few = Kept(crowd, sent), Kept(others, sent)
            time.sleep(1)
            seconds.append((round(sum(many.each())), round(sorted(few.each())[1])))
    # With a floor for each it would be no less than CROWD * FLOOR. By then the cut is full.
    kept, other = min(seconds)
    assert kept < CROWD * FLOOR / 2, seconds
    assert other > FLOOR / 2.5, seconds
