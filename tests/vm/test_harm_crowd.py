# SPDX-License-Identifier: GPL-2.0-only
"""A crowd of one user hides nobody else's need.

The suite follows 128 threads that receive. A user may have many more. An equal of another user is
followed all the same.
"""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from inside import inside, mark
from inside.computing import spin
from inside.net import drain, pressure, udp
from inside.scheduling import attending, running
from inside.suite import entry, wait_for

pytestmark = mark.oldest

USER = 1000  # anybody but root
CROWD = 192  # threads; half as many again as are followed
OTHERS = 6


def becomes(user: int) -> None:
    os.setresuid(user, user, user)


def crowd() -> None:
    """Each of its threads is seen receiving whenever that is looked at."""
    becomes(USER)
    threading.stack_size(1 << 16)
    socks = [udp() for _ in range(CROWD)]
    ports = [sock.getsockname() for sock in socks]

    def take(sock: socket.socket) -> None:
        while True:
            sock.recv(2000)

    for sock in socks:
        threading.Thread(target=take, args=(sock,), daemon=True).start()
    out = udp()
    while True:
        for port in ports:
            out.sendto(b"x", port)
        time.sleep(0.1)


def works(sock: socket.socket, user: int) -> None:
    """Takes what is there, and works."""
    becomes(user)
    while True:
        drain(sock)
        spin(0.002)
        time.sleep(0.002)


@contextmanager
def kept_under_pressure() -> Iterator[None]:
    with pressure() as made:

        def press() -> None:
            while True:
                made.again()
                time.sleep(0.1)

        with running(press):
            yield


def runs(sock: socket.socket, user: int = 0) -> int:
    """How much of the time a thread runs that works, in thousandths; 0 if it is not followed, be
    it at times."""
    with running(lambda: works(sock, user)):
        wait_for(lambda: entry(sock)["learnt"] == "receives")
        # Receive calls are looked at once a second, and a slot is kept for half of one.
        time.sleep(2.0)
        looks = []
        for _ in range(5):
            time.sleep(0.1)
            looks.append(int(entry(sock)["run"]))
        return min(looks)


@inside(timeout=100)
def test_many_threads_of_one_user_hide_nobody_elses_need() -> None:
    """Of each thread that is followed, `sockets` says how much it runs. One more of that user is
    not."""
    own, *socks = [udp() for _ in range(1 + OTHERS)]
    with kept_under_pressure(), attending(), running(crowd):
        time.sleep(5.0)
        assert runs(own, USER) == 0
        followed = [runs(sock) for sock in socks]
        assert runs(own, USER) == 0
    assert min(followed) > 0, followed
