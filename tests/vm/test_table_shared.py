# SPDX-License-Identifier: GPL-2.0-only
"""The table is shared: what one user opens does not keep others' receivers out of it."""

import os
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from inside import Skip, inside, mark
from inside.net import Worker, port_of, pressure, udp
from inside.suite import entry, metric, sockets, wait_for

pytestmark = mark.ends

MOST, MANY = 1024, 2000
SMALL_TABLE: dict[str, object] = {"max_sockets": MOST}
NOBODY = 65534
SO_BUF_LOCK = 72

kept: list[socket.socket] = []


def tracked() -> int:
    return int(metric("packetflow_sockets")[""])


def missed(reason: str) -> int:
    return int(metric("packetflow_sockets_missed_total")[reason])


def become(user: int) -> None:
    """With room for files."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (3 * MANY, 3 * MANY))
    os.setresuid(user, user, user)


def open_unbound() -> None:
    kept.extend(socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(MANY))


def fail_to_bind() -> None:
    open_unbound()
    for sock in kept:
        with suppress(OSError):
            sock.bind(("192.0.2.1", 0))  # nobody's address


def bind(number: int = MANY) -> None:
    kept.extend(udp() for _ in range(number))


def accept() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    for _ in range(MANY):
        kept.append(socket.create_connection(listening.getsockname()))
        kept.append(listening.accept()[0])


def receive() -> None:
    for _ in range(20):
        for sock in kept:
            with suppress(BlockingIOError):
                sock.recv(1, socket.MSG_DONTWAIT)


@contextmanager
def somebody(action: Callable[[], object], user: int = NOBODY) -> Iterator[Worker]:
    """A process of that user that has done so."""

    def act() -> None:
        if os.getuid() != user:
            become(user)
        action()

    worker = Worker(act)
    try:
        worker.act()
        yield worker
    finally:
        worker.end()


@inside()
def test_what_is_not_bound_takes_no_place() -> None:
    before = tracked()
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    stream = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    sockets()
    assert tracked() == before
    for sock, address in ((one, "127.0.0.1"), (stream, "::1")):
        sock.bind((address, 0))
        assert entry(sock)["owner"] == str(os.getpid())
    assert tracked() == before + 2


@inside()
def test_who_cannot_be_bound_does_not_keep_a_place() -> None:
    before = tracked()
    with somebody(fail_to_bind):

        def gone() -> bool:
            sockets()
            return tracked() <= before

        wait_for(gone)


FILLS = {f.__name__: f for f in (open_unbound, fail_to_bind, bind, accept)}


@mark.parametrize("how", list(FILLS))
@inside(common=SMALL_TABLE, timeout=200)
def test_a_later_receiver_is_tracked_whatever_a_user_opens(how: str) -> None:
    with somebody(FILLS[how]):
        sockets()
        assert tracked() <= MOST
        one = udp()
        assert entry(one)["owner"] == str(os.getpid())
        with pressure() as full:
            assert full.early() > 0


@inside(common=SMALL_TABLE, timeout=200)
def test_nor_if_that_user_receives_on_all_of_them() -> None:
    steps = iter((bind, receive, receive))
    with somebody(lambda: next(steps)()) as worker:
        for _ in range(2):
            worker.begin()
            sockets()
            sockets()
            worker.finished()
        learnt = [row["learnt"] for row in sockets()]
        assert learnt.count("receives") > MOST / 2
        one = udp()
        assert entry(one)["owner"] == str(os.getpid())


def bind_and_grow() -> None:
    """As much as pf_mm lets them: a datagram is more than half of what each has of its own."""
    bind()
    for sock in kept:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        sock.setsockopt(socket.SOL_SOCKET, SO_BUF_LOCK, 0)
    for number, sock in enumerate(kept):
        for _ in range(2):  # before 6.18 the second finds that the first has filled it
            sock.sendto(bytes(1500), sock.getsockname())
        if not number % 30:
            time.sleep(0.1)
    time.sleep(2)  # by then each has given back what it does not use, and might have it again


@inside(common=SMALL_TABLE, modules=("pf_mm",), timeout=200)
def test_nor_if_pf_mm_lets_all_of_their_buffers_grow() -> None:
    with somebody(bind_and_grow):
        grow = [row["grows"] for row in sockets()].count("1")
        assert grow > MOST / 2, grow
        one = udp()
        assert entry(one)["owner"] == str(os.getpid())


@inside(common=SMALL_TABLE, timeout=200)
def test_who_receives_is_tracked_though_many_users_hold_all() -> None:
    users, each = 40, MANY // 40

    def bind_as(user: int) -> None:
        become(user)
        bind(each)

    workers = [Worker(partial(bind_as, NOBODY - number)) for number in range(users)]
    for worker in workers:
        worker.act()
    sockets()
    assert tracked() == MOST
    sock, sender = udp(), udp()

    def learnt() -> bool:
        with pressure() as full:
            for _ in range(50):
                full.again()
                sender.sendto(b"x", sock.getsockname())
                sock.recv(1)
        found = [row for row in sockets() if row["local"].endswith(f":{port_of(sock)}")]
        return bool(found) and found[0]["learnt"] == "receives"

    wait_for(learnt, 30)
    for worker in workers:
        worker.end()


@inside(common=SMALL_TABLE, timeout=200)
def test_a_user_may_have_all_of_it_while_nobody_else_wants_it() -> None:
    with somebody(bind):
        sockets()
        assert tracked() == MOST
        assert missed("refused") > 0
        displaced = missed("displaced")
        others = [udp() for _ in range(50)]
        assert missed("displaced") >= displaced + 50
        owners = [int(row["owner"]) for row in sockets()]
        assert owners.count(os.getpid()) == len(others)


@inside()
def test_no_socket_waits_for_a_worker_to_be_tracked() -> None:
    """As fast as they are made, while nobody else has the CPU."""
    if "-rt" in os.uname().release:
        raise Skip("where nothing may be allocated then, they are left to a scan")
    before, starved = tracked(), missed("starved")

    def bind_at_once() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3 * MANY, 3 * MANY))
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
        bind(2 * MANY)
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))

    worker = Worker(bind_at_once)
    worker.act()
    assert tracked() == before + 2 * MANY
    assert missed("starved") == starved
    worker.end()
