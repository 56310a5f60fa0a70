# SPDX-License-Identifier: GPL-2.0-only
"""Whom packets do not harm, nobody is shed for.

A receiver may lose, or wait, for many reasons: it sleeps, computes, floods itself, waits for a
disk or a peer. Beside each of them a less important one is sent what it can take. The CPU is
under pressure meanwhile, or nobody would be looked at. Whoever sends is another machine, a
namespace of the same guest.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from inside import Skip, inside, mark
from inside.computing import hog, spin
from inside.net import SMALL, UDP_SEGMENT, Namespace, Peer, drain, drops, nft, udp
from inside.scheduling import attending, running
from inside.suite import entry, is_debug, passed, pressed, wait_for

pytestmark = mark.oldest

SECONDS = 8.0
PPS = 1000  # to who might be shed; far from what a guest can take
PACKET = b"x" * 200
LOW = 10  # the nice level of who might be shed
TOO_SLOW = "a debug kernel has no time to spare that could be given to somebody else"


def shed(sock: socket.socket) -> int:
    """What the receiver on that port lost for the sake of others."""
    row = entry(sock)
    return int(row["early_harm"]) + int(row["early_overload"])


def at(nice: int, action: Callable[[], object]) -> Callable[[], None]:
    """The action, of that nice level."""

    def run() -> None:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        action()

    return run


def every(seconds: float, action: Callable[[], object]) -> None:
    due = time.monotonic()
    while True:
        action()
        due += seconds
        time.sleep(max(0.0, due - time.monotonic()))


def sends(
    peer: Peer,
    to: socket.socket,
    pps: int,
    packet: bytes = PACKET,
    others: Sequence[socket.socket] = (),
) -> Callable[[], None]:
    """So many a second, in bursts; from nobody who is kept from it. Who holds a socket may be taken
    for its receiver, and this one is more important: so it lets go what it does not send by."""
    out = peer.udp()
    out.connect((peer.ours4, to.getsockname()[1]))

    def send() -> None:
        for _ in range(pps // 100):
            out.send(packet)

    def run() -> None:
        for sock in (to, *others):
            sock.close()
        every(0.01, send)

    return at(-20, run)


def takes(sock: socket.socket) -> Callable[[], None]:
    """A receiver that does nothing else."""

    def take() -> None:
        while True:
            sock.recv(65536)

    return take


def works(sock: socket.socket) -> Callable[[], None]:
    """A receiver that takes all that is there, and then works for a while."""

    def work() -> None:
        while True:
            drain(sock)
            spin(0.005)

    return work


def busy(sock: socket.socket) -> list[Callable[[], None]]:
    """Two less important ones that work on each packet."""

    def work_on_each() -> None:
        while True:
            sock.recv(2000)
            spin(0.002)

    return [at(LOW, work_on_each)] * 2


def watch(low: socket.socket, known: float = 1.0, seconds: float = SECONDS) -> tuple[bool, int]:
    """Let it run, undisturbed: is the CPU under pressure at the end, and what was shed meanwhile
    of who is low, since all were known?"""
    time.sleep(known)
    with attending():
        before = shed(low)
        time.sleep(seconds)
        return pressed(0), shed(low) - before


@contextmanager
def all_of(*actions: Callable[[], object]) -> Iterator[None]:
    """Until its receiver is seen receiving, a socket counts as its maker's. That is this process.
    So it is no more important meanwhile than the least of them."""
    os.setpriority(os.PRIO_PROCESS, 0, LOW)
    try:
        with ExitStack() as stack:
            for action in actions:
                stack.enter_context(running(action))
            yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, 0)


@mark.first()
@mark.parametrize("gso", [0, 1400])
@inside(timeout=200)
def test_nobody_is_shed_for_a_slow_reader(gso: int) -> None:
    """It sleeps while its buffer is full; a stream beside it is left alone."""
    peer = Peer(mtu=9000)
    slow, bulk = udp(peer.ours4, rcvbuf=4000), udp(peer.ours4)
    stream = peer.udp()
    stream.connect(bulk.getsockname())
    if gso:
        stream.setsockopt(socket.SOL_UDP, UDP_SEGMENT, gso)

    def read_slowly() -> None:
        while True:
            slow.recv(2000)
            time.sleep(0.025)

    def send() -> None:
        while True:
            stream.send(bytes(gso * 40 or 8000))

    with all_of(
        at(-10, read_slowly),
        at(0, takes(bulk)),
        sends(peer, slow, 100, b"x" * 500),
        at(0, send),
    ):
        under, harmed = watch(bulk, seconds=SECONDS / 2)
        told = under, drops(slow), passed()["judged"], harmed
    assert under and told[1] > 10 * SECONDS and told[2] > 1000, told
    assert harmed == 0, told


@inside(timeout=100)
def test_a_slow_reader_takes_nothing_from_one_that_is_harmed() -> None:
    """Both lose packets, and wait for their turn. But the slow one sleeps most of the time."""
    peer = Peer()
    slow, harmed, low = (
        udp(peer.ours4, rcvbuf=SMALL),
        udp(peer.ours4, rcvbuf=SMALL),
        udp(peer.ours4),
    )

    def read_slowly() -> None:
        # Of this class nobody preempts those that run when he wakes up.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        while True:
            slow.recv(2000)
            time.sleep(0.015)

    with all_of(
        at(0, read_slowly),
        at(5, works(harmed)),
        *busy(low),
        sends(peer, slow, 200),
        sends(peer, harmed, 200),
        sends(peer, low, PPS),
    ):
        under, taken = watch(harmed)
        told = under, drops(slow), drops(harmed), shed(low), taken
    assert under and told[1] > 100 * SECONDS and told[2] > 0, told
    assert told[3] > 0 or is_debug(), told
    assert taken < 2 * SECONDS, told  # of 200 a second


@inside(timeout=100)
def test_nobody_is_shed_for_who_floods_himself() -> None:
    """Over loopback, be it by another of its addresses."""
    peer = Peer()
    own, wide, low = udp("127.0.0.1", rcvbuf=SMALL), udp(peer.ours4, rcvbuf=SMALL), udp(peer.ours4)

    def flood() -> None:
        out = udp("0.0.0.0")
        while True:
            for sock in own, wide:
                for _ in range(30):
                    out.sendto(PACKET, sock.getsockname())
                sock.recv(2000)
            time.sleep(0.002)

    with all_of(at(-5, flood), at(LOW, takes(low)), sends(peer, low, PPS)):
        under, harmed = watch(low)
        told = under, (drops(own), drops(wide)), passed()["judged"], harmed
    assert under and min(told[1]) > 1000 and told[2] > 100, told
    assert harmed == 0, told


@mark.first()
@mark.parametrize("whose", ["user, tracked", "user", "host"])
@inside(timeout=100)
def test_nobody_is_shed_for_who_floods_himself_from_a_namespace_of_his_own(whose: str) -> None:
    """A user's namespace, and a pair of devices to another of his; beside it what others lose."""
    peer = Peer()
    with Namespace(anothers=whose != "host"):
        own_peer = Peer(2, anothers=whose != "host")
        own = udp(own_peer.ours4, rcvbuf=SMALL)
        if "tracked" in whose:
            nft("table ip t { chain in { type filter hook input priority 0; ct state new; }; }")
    low, out = udp(peer.ours4, rcvbuf=SMALL), own_peer.udp()
    out.connect(own.getsockname())

    def burst() -> None:
        for sock in (own, low):
            sock.close()
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        every(0.05, lambda: [out.send(PACKET) for _ in range(100)])

    with all_of(at(0, works(own)), *busy(low), burst, sends(peer, low, PPS, others=[own])):
        under, harmed = watch(low)
        told = under, drops(own), passed()["judged"], harmed
    assert under and told[1] > 1000 and told[2] > 100, told
    if whose == "host":
        assert harmed > 0 or is_debug(), told
    else:
        assert harmed == 0, told


@inside(timeout=100)
def test_nobody_is_shed_for_who_computes() -> None:
    """To speak of: what shedding does not help is undone."""
    peer = Peer()
    high, low = udp(peer.ours4, rcvbuf=SMALL), udp(peer.ours4)

    def compute() -> None:
        while True:
            high.recv(2000)
            spin(0.018)
            time.sleep(0.002)

    with all_of(at(0, compute), at(LOW, takes(low)), sends(peer, high, 500), sends(peer, low, PPS)):
        # It is tried once more after 2 s, and 4, and so on.
        under, harmed = watch(low, known=5.0)
        told = under, drops(high), passed()["judged"], harmed
    assert under and told[1] > 100 * SECONDS and told[2] > 100, told
    assert harmed < PPS * SECONDS / 2, told


@inside(timeout=100)
def test_a_few_lost_packets_a_second_count_where_few_come() -> None:
    """One of four, four times a second, of a receiver that has to share the CPU with floods."""
    peer = Peer()
    high, low = udp(peer.ours4, rcvbuf=SMALL), udp(peer.ours4)
    out = peer.udp()
    while not drops(high):
        out.sendto(PACKET, high.getsockname())
    fit = len(drain(high))

    def burst() -> None:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        every(0.25, lambda: [out.sendto(PACKET, high.getsockname()) for _ in range(fit + 1)])

    with all_of(at(0, works(high)), *busy(low), burst, sends(peer, low, PPS)):
        under, harmed = watch(low)
        told = under, fit, drops(high), harmed
    assert under and told[2] <= 6 * SECONDS, told
    assert harmed > 0 or is_debug(), told


@mark.timeout(600)
@inside(timeout=200)
def test_nobody_is_shed_for_who_waits_for_others() -> None:
    """A TCP server that sleeps, reads a disk, and asks a peer."""
    peer = Peer()
    low, unread = udp(peer.ours4), udp(peer.ours4, rcvbuf=SMALL)
    with peer:
        behind = socket.create_server((peer.theirs4, 0))
    server = socket.create_server((peer.ours4, 0))
    answered = os.memfd_create("answered")

    def answer_slowly() -> None:
        asked, _ = behind.accept()
        while asked.recv(100):
            time.sleep(0.005)
            asked.send(b"x" * 100)

    def serve() -> None:
        helper = socket.create_connection(behind.getsockname())
        client, _ = server.accept()
        while client.recv(100):
            helper.send(b"x")
            helper.recv(100)
            time.sleep(0.003)
            with open(__file__, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                file.read()
            client.send(b"x" * 100)
            os.write(answered, b"x")

    def ask() -> None:
        with peer:
            client = socket.create_connection(server.getsockname())
        while client.send(b"x"):
            client.recv(100)

    with all_of(
        at(0, serve),
        at(LOW, takes(low)),
        at(0, answer_slowly),
        at(0, ask),
        sends(peer, low, PPS),
        sends(peer, unread, 100),
    ):
        under, harmed = watch(low, seconds=SECONDS / 2)
        told = under, os.stat(answered).st_size, passed()["judged"], harmed
    assert under and told[1] > 10 * SECONDS and told[2] > 100, told
    assert harmed == 0, told


@inside(timeout=100)
def test_who_was_never_seen_receiving_is_harmed_for_a_moment() -> None:
    """It may be kept from it by packets. If it then still reads nothing, it does not want to."""
    peer = Peer()
    high, low, other = udp(peer.ours4, rcvbuf=SMALL), udp(peer.ours4), udp(peer.ours4)
    with all_of(
        at(LOW, takes(low)),
        at(LOW, hog),
        at(0, takes(other)),
        sends(peer, other, 10),
        sends(peer, low, PPS),
    ):
        time.sleep(1.0)
        before = shed(low)
        with running(sends(peer, high, 1000)):
            wait_for(lambda: shed(low) > before, 1)
            time.sleep(2.0)
            under, harmed = watch(low)
            told = under, drops(high), harmed
    assert under and told[1] > 500 * SECONDS, told
    assert harmed == 0, told


@mark.timeout(600)
@inside(timeout=200)
def test_nobody_is_shed_for_who_has_become_less_important() -> None:
    """Nor for who held a socket and was taken for its receiver, until that one was seen. The CPU
    stays busy, and somebody who is more important than who is shed receives there all the time."""
    if is_debug():
        raise Skip(TOO_SLOW)
    peer = Peer()
    high, low, other = udp(peer.ours4, rcvbuf=SMALL), udp(peer.ours4), udp(peer.ours4)
    with all_of(
        at(5, takes(low)),
        at(LOW, hog),
        at(0, takes(other)),
        sends(peer, other, 100, others=[high, low]),
        sends(peer, low, PPS, others=[high, other]),
    ):
        time.sleep(1.0)
        before = shed(low)
        with running(at(0, works(high))) as pids, running(sends(peer, high, 4 * PPS, others=[low])):
            with attending():
                wait_for(lambda: shed(low) > before)
            os.setpriority(os.PRIO_PROCESS, pids[0], 15)
            under, harmed = watch(low, known=6.0, seconds=SECONDS / 2)
            told = under, drops(high), passed()["judged"], harmed
    assert under and told[1] > 100 and told[2] > 100, told
    assert harmed == 0, told


@mark.parametrize(
    "who", ["answers", "answers IPv6", "only takes", "answers itself", "answers its own namespace"]
)
@inside(timeout=100)
def test_waiting_is_harm_for_who_answers_datagrams_of_others(who: str) -> None:
    """It loses none and reads each soon. But it is asked again only when it has answered."""
    peer = asker = Peer()
    home: AbstractContextManager[object] = nullcontext()
    if "namespace" in who:
        home = Namespace(anothers=True)
        with home:
            asker = Peer(2, anothers=True)
    with home:
        server = udp(asker.ours6 if "6" in who else asker.ours4)
    client = asker.udp(asker.theirs6 if "6" in who else "")
    if "itself" in who:
        client = udp("0.0.0.0")
    client.connect(server.getsockname())
    low, answered = udp(peer.ours4), os.memfd_create("answered")

    def serve() -> None:
        while True:
            asked, by = server.recvfrom(100)
            spin(0.001)
            os.write(answered, b"x")
            if who != "only takes":
                server.sendto(asked, by)

    def ask() -> None:
        server.close()
        low.close()
        while client.send(b"x"):
            if who == "only takes":
                time.sleep(0.008)
            else:
                client.recv(100)

    with all_of(at(0, serve), *busy(low), at(0, ask), sends(peer, low, PPS, others=[server])):
        under, harmed = watch(low, known=2.0)
        told = under, os.stat(answered).st_size, drops(server), passed()["judged"], harmed
    assert under and told[1] > 10 * SECONDS and told[2] == 0 and told[3] > 100, told
    if who in ("answers", "answers IPv6"):
        assert harmed > 100 * SECONDS or is_debug(), told
    else:
        assert harmed == 0, told
