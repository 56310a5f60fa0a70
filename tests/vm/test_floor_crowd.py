# SPDX-License-Identifier: GPL-2.0-only
"""The floor is each socket's, but one user's sockets keep no more than a few floors together."""

import os
import select
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack

from inside import inside, mark
from inside.net import SMALL, Peer, drain, udp
from inside.scheduling import attending, running, spin
from inside.suite import begin, dropped, entry, passed, setting

pytestmark = mark.oldest

USER, OTHERS = 1000, (1001, 1002, 1003)  # two users meet in one counter once in 256 times
CROWD, PPS, FLOOR = 100, 40, 10  # PPS is what each socket is sent
SECONDS = 30


def made_by(user: int, address: str, number: int) -> list[socket.socket]:
    """Sockets are the user's who makes them, whoever receives."""
    os.seteuid(user)
    try:
        return [udp(address) for _ in range(number)]
    finally:
        os.seteuid(0)


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
    """Takes all that is there, and then works for a while."""
    while True:
        drain(sock)
        spin(0.005)


def sends(peer: Peer, socks: list[socket.socket], pps: int) -> Callable[[], None]:
    """So many a second to each, from nobody who is kept from it."""
    out, to = peer.udp(), [sock.getsockname() for sock in socks]

    def send() -> None:
        os.nice(-20)
        due = time.monotonic()
        while True:
            for address in to:
                out.sendto(b"x" * 200, address)
            due += 1 / pps
            time.sleep(max(0.0, due - time.monotonic()))

    return send


def shed(sock: socket.socket) -> int:
    row = entry(sock)
    return int(row["early_harm"]) + int(row["early_overload"])


def one_second(others: list[socket.socket]) -> tuple[float, float]:
    """Which part of all packets is shed, and what one of those others keeps, packets/s."""
    lost, began = [shed(sock) for sock in others], time.monotonic()
    begin()
    time.sleep(1)
    told, took = dropped(), time.monotonic() - began
    kept = sorted(PPS - (shed(sock) - was) / took for sock, was in zip(others, lost, strict=True))
    gone = told["harm"] + told["overload"]
    return gone / max(gone + told["socket_full"] + passed()["judged"], 1), kept[1]


@inside(timeout=150)
def test_many_sockets_of_a_user_keep_a_few_floors_together() -> None:
    """Beside a more important receiver that they harm. Equals of other users keep theirs."""
    peer = Peer()
    high = udp(peer.ours4, rcvbuf=SMALL)
    crowd = made_by(USER, peer.ours4, CROWD)
    others = [sock for user in OTHERS for sock in made_by(user, peer.ours4, 1)]
    with setting("filter/floor", str(FLOOR), "100"), attending(), ExitStack() as stack:
        for action in (
            lambda: works(high),
            lambda: works_on_each(crowd),
            lambda: works_on_each(others),
            sends(peer, [high] * 20, 25),
            sends(peer, [*crowd, *others], PPS),
        ):
            stack.enter_context(running(action))
        time.sleep(2)
        seconds = [one_second(others) for _ in range(SECONDS)]
    share, kept = max(seconds)
    # With a floor for each of them it would be no more, however little the harmed one is sent.
    assert share > 1 - FLOOR / PPS / 2, seconds
    assert kept > FLOOR / 2.5, seconds
