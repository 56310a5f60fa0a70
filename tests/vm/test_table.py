# SPDX-License-Identifier: GPL-2.0-only
"""The shared table: every receiving socket, who receives on it, and no more.

Reading `sockets` has all open files looked at first, which alone would find
most owners. Where it matters that a socket was learnt as it was made, the
gauge in `metrics` is asked, which looks at nothing.
"""

import ctypes
import mmap
import os
import resource
import select
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from inside import Skip, inside, mark
from inside.net import Namespace, Peer, Worker, ip, port_of, pressure, udp
from inside.suite import entries, entry, metric, set_knob, settle, sockets, wait_for

pytestmark = mark.ends

HERE = ("127.0.0.1", 0)


def tracked() -> int:
    return int(metric("packetflow_sockets")[""])


def tcp(address: str = "127.0.0.1") -> tuple[socket.socket, socket.socket, socket.socket]:
    """Listening, accepted and connected socket."""
    listening = socket.create_server(
        (address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET
    )
    connected = socket.create_connection(listening.getsockname()[:2])
    accepted, _ = listening.accept()
    return listening, accepted, connected


def own(row: dict[str, str]) -> bool:
    return int(row["owner"]) == os.getpid()


@mark.parametrize("address", ["127.0.0.1", "::1", "0.0.0.0", "::"])
@inside()
def test_a_socket_is_learnt_when_it_is_bound(address: str) -> None:
    before = tracked()
    sock = udp(address)
    assert tracked() == before + 1
    row = entry(sock)
    shown = f"[{address}]" if ":" in address else address
    assert row["local"] == f"{shown}:{port_of(sock)}"
    assert (row["learnt"], row["comm"], row["prio"]) == ("holds", "python3", "120")
    assert own(row)
    sock.close()
    assert tracked() == before


@mark.parametrize("address", ["127.0.0.1", "::1"])
@inside()
def test_a_connection_is_learnt_when_it_is_accepted(address: str) -> None:
    listening = socket.create_server(
        (address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET
    )
    connected = socket.create_connection(listening.getsockname()[:2])
    settle()  # a scan may come at any time, and finds who connects
    before = tracked()
    accepted, _ = listening.accept()
    assert tracked() == before + 1
    rows = entries(accepted)  # and the listening one, on the same port
    assert len(rows) == 2
    assert all(own(row) for row in rows)
    assert {row["remote"].endswith(f":{port_of(connected)}") for row in rows} == {True, False}
    assert own(entry(connected))
    for sock in (accepted, connected, listening):
        sock.close()
    assert tracked() == before - 2


def receive_until(receive: Callable[[], object], condition: Callable[[], object]) -> None:
    """Under pressure, receive again and again: receivers are learnt by samples."""
    with pressure() as full:

        def once() -> object:
            for _ in range(50):
                full.again()
                receive()
            return condition()

        wait_for(once, 30)


@inside()
def test_a_socket_is_learnt_when_it_receives() -> None:
    server = udp()
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.sendto(b"x", server.getsockname())  # binds it, but not by bind()

    def receive() -> None:
        server.sendto(b"x", client.getsockname())
        client.recv(1)

    receive_until(receive, lambda: entry(client)["learnt"] == "receives")
    assert own(entry(client))


@inside()
def test_the_thread_that_receives_is_the_owner() -> None:
    sock, sender = udp(), udp()
    seen: list[int] = []

    def serve() -> None:
        seen.append(threading.get_native_id())
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 7)
        while sock.recv(1) != b"":
            pass

    thread = threading.Thread(target=serve)
    thread.start()
    receive_until(
        lambda: sender.sendto(b"x", sock.getsockname()),
        lambda: entry(sock)["learnt"] == "receives",
    )
    row = entry(sock)
    assert (int(row["owner"]), row["prio"]) == (seen[0], "127")
    sender.sendto(b"", sock.getsockname())
    thread.join()


@inside()
def test_an_epoll_server_is_the_owner() -> None:
    sock, sender = udp(), udp()
    sock.setblocking(False)

    def serve() -> None:
        poll = select.epoll()
        poll.register(sock, select.EPOLLIN)
        assert poll.poll(10)
        sock.recv(1)

    server = Worker(serve, nice=3)

    def receive() -> None:
        sender.sendto(b"x", sock.getsockname())
        server.act()

    receive_until(receive, lambda: entry(sock)["learnt"] == "receives")
    row = entry(sock)
    assert (int(row["owner"]), row["prio"]) == (server.pid, "123")
    server.end()


class Ring:
    """The least of io_uring: one receive at a time."""

    SETUP, ENTER = 425, 426
    RECV = 27
    ASYNC = 1 << 4  # of an entry's flags: by a worker thread
    POLL_FIRST = 1 << 0  # of a receive's: not before there is something

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._parameters = (ctypes.c_uint32 * 30)()
        self._fd = self._libc.syscall(self.SETUP, 4, self._parameters)
        if self._fd < 0:
            raise Skip("this kernel has no io_uring, or it is switched off")
        self._rings = mmap.mmap(self._fd, 4096, offset=0)
        self._entries = mmap.mmap(self._fd, 4096, offset=0x10000000)
        self._buffer = ctypes.create_string_buffer(64)

    def _word(self, index: int) -> ctypes.c_uint32:
        return ctypes.c_uint32.from_buffer(self._rings, self._parameters[index])

    def _enter(self, submit: int, complete: int) -> None:
        done = self._libc.syscall(self.ENTER, self._fd, submit, complete, complete, None, 0)
        assert done == submit, os.strerror(ctypes.get_errno())

    def submit(self, sock: socket.socket, flags: int = 0, operation: int = 0) -> None:
        entry = (ctypes.c_uint8 * 64).from_buffer(self._entries)
        ctypes.memset(entry, 0, 64)
        entry[0], entry[1], entry[2] = self.RECV, flags, operation
        ctypes.c_int32.from_buffer(self._entries, 4).value = sock.fileno()
        ctypes.c_uint64.from_buffer(self._entries, 16).value = ctypes.addressof(self._buffer)
        ctypes.c_uint32.from_buffer(self._entries, 24).value = len(self._buffer)
        tail = self._word(11)  # sq_off.tail
        index = self._parameters[16] + 4 * (tail.value % 4)  # sq_off.array
        ctypes.c_uint32.from_buffer(self._rings, index).value = 0
        tail.value += 1
        self._enter(1, 0)

    def complete(self) -> None:
        """Wait for it, and take the completion, or the next wait would end at once."""
        self._enter(0, 1)
        head, tail = self._word(20), self._word(21)  # of cq_off
        assert tail.value == head.value + 1
        head.value = tail.value


@mark.parametrize("how", ["at once", "when polled", "by a worker"])
@inside()
def test_an_io_uring_server_is_the_owner(how: str) -> None:
    sock, sender = udp(), udp()
    ring = Ring()

    def receive() -> None:
        if how == "when polled":
            ring.submit(sock, operation=Ring.POLL_FIRST)
            sender.sendto(b"x", sock.getsockname())
        else:
            sender.sendto(b"x", sock.getsockname())
            ring.submit(sock, Ring.ASYNC if how == "by a worker" else 0)
        ring.complete()

    receive_until(receive, lambda: entry(sock)["learnt"] == "receives")
    row = entry(sock)
    assert own(row) == (how != "by a worker")
    # A worker is a thread of the process, and as important as who submitted.
    status = Path(f"/proc/{row['owner']}/status").read_text()
    assert f"\nTgid:\t{os.getpid()}\n" in status
    assert row["prio"] == "120"


@mark.cpus(1, 4)
@inside()
def test_of_several_workers_the_most_important_counts() -> None:
    sock, sender = udp(), udp()
    workers = [Worker(lambda: sock.recv(1), nice) for nice in (10, 0, 5)]

    def by(*some: Worker) -> Callable[[], None]:
        def receive() -> None:
            for worker in some:
                sender.sendto(b"x", sock.getsockname())
                worker.act()

        return receive

    def owner() -> tuple[int, str, str]:
        row = entry(sock)
        return int(row["owner"]), row["prio"], row["learnt"]

    receive_until(by(*workers), lambda: owner()[2] == "receives")
    receive_until(by(*workers), lambda: owner() == (workers[1].pid, "120", "receives"))
    by(workers[0])()
    assert owner() == (workers[1].pid, "120", "receives")
    # Its priority does not outlive it for long.
    workers[1].end()
    receive_until(by(workers[2], workers[0]), lambda: owner()[:2] == (workers[2].pid, "125"))
    for worker in (workers[0], workers[2]):
        worker.end()


@mark.cpus(1, 4)
@inside()
def test_a_socket_handed_over_belongs_to_who_receives() -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    sender, handed = udp(), udp()
    to = handed.getsockname()
    kept: list[socket.socket] = []

    def take_and_receive() -> None:
        if not kept:
            fds = socket.recv_fds(there, 1, 1)[1]
            kept.append(socket.socket(fileno=fds[0]))
        kept[0].recv(1)

    worker = Worker(take_and_receive, nice=4)
    socket.send_fds(here, [b"x"], [handed.fileno()])
    handed.close()

    def row() -> dict[str, str]:
        (found,) = [row for row in sockets() if row["local"].endswith(f":{to[1]}")]
        return found

    def receive() -> None:
        sender.sendto(b"x", to)
        worker.act()

    receive_until(receive, lambda: row()["learnt"] == "receives")
    assert (int(row()["owner"]), row()["prio"]) == (worker.pid, "124")
    worker.end()
    assert not [row for row in sockets() if row["local"].endswith(f":{to[1]}")]


@inside()
def test_sockets_that_were_there_before() -> None:
    set_knob("enable", 0)
    first, (listening, accepted, connected) = udp(), tcp()
    assert tracked() == 0
    set_knob("enable", 1)
    wait_for(lambda: tracked() >= 4)  # found without anybody asking for the list
    assert own(entry(first))
    assert own(entry(connected))
    assert len(entries(accepted)) == len(entries(listening)) == 2


@inside()
def test_entries_go_with_their_process() -> None:
    before = tracked()
    made: list[socket.socket] = []
    worker = Worker(lambda: made.extend(udp() for _ in range(50)))
    worker.act()
    assert tracked() == before + 50
    worker.end()
    wait_for(lambda: tracked() == before)


@inside()
def test_entries_go_with_their_namespace() -> None:
    before = tracked()
    other = Namespace()
    with other:
        kept = [udp(), udp("::1")]
        netns = os.stat("/proc/thread-self/ns/net").st_ino
    assert [row["netns"] for row in sockets()].count(str(netns)) == 2
    for sock in kept:
        sock.close()
    other.close()
    wait_for(lambda: tracked() == before)


@inside()
def test_a_change_of_priority_is_seen() -> None:
    sock, sender = udp(), udp()
    os.setpriority(os.PRIO_PROCESS, 0, 11)
    assert entry(sock)["prio"] == "131"

    def receive() -> None:
        sender.sendto(b"x", sock.getsockname())
        sock.recv(1)

    receive_until(receive, lambda: entry(sock)["learnt"] == "receives")
    os.setpriority(os.PRIO_PROCESS, 0, -3)
    assert entry(sock)["prio"] == "117"
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(40))
    assert entry(sock)["prio"] == "59"
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    row = entry(sock)
    assert (row["prio"], row["rank"]) == ("139", "0")


@inside(common={"max_sockets": 64})
def test_the_table_is_bounded() -> None:
    before = metric("packetflow_sockets_missed_total")["refused"]
    many = [udp() for _ in range(200)]
    assert tracked() == 64
    assert metric("packetflow_sockets_missed_total")["refused"] >= before + 136
    assert "raise max_sockets" in Path("/proc/packetflow/status").read_text()
    for sock in many:
        sock.close()
    assert tracked() < 64
    one = udp()
    assert own(entry(one))


@mark.full
@inside(timeout=900)
def test_a_hundred_thousand_sockets() -> None:
    count = 100_000
    resource.setrlimit(resource.RLIMIT_NOFILE, (count + 1000, count + 1000))
    before = tracked()
    fds = []
    for number in range(count):
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind((f"127.0.{number // 20_000}.1", 10_000 + number % 20_000))
        fds.append(sock.detach())
    # Those made faster than entries are, were left to the next scan.
    set_of = {row["local"] for row in sockets() if int(row["owner"]) == os.getpid()}
    assert len(set_of) == count
    assert tracked() >= before + count
    # What checks memory puts something of its own beside each piece of it.
    if not Path("/sys/kernel/debug/kmemleak").exists():
        slab = Path("/sys/kernel/slab/pflow_sock")
        bytes_each = int((slab / "slab_size").read_text()) + 8 * 32_768 / count
        assert bytes_each <= 256
    os.closerange(fds[0], fds[-1] + 1)
    assert tracked() <= before + 1


@inside()
def test_kernel_sockets_are_nobodys() -> None:
    peer = Peer()
    ip(f"link add vx type vxlan id 7 dstport 4789 local {peer.ours4}\nlink set vx up")
    ip("link add wg0 type wireguard")
    subprocess.run(["wg", "set", "wg0", "listen-port", "5555"], check=True)
    ip("link set wg0 up")
    with open("/proc/thread-self/net/udp") as file:
        bound = {int(line.split()[1].split(":")[1], 16) for line in file.readlines()[1:]}
    assert bound >= {4789, 5555}
    ports = {int(row["local"].rsplit(":", 1)[1]) for row in sockets()}
    assert not ports & {4789, 5555}


@inside()
def test_only_udp_and_tcp_are_tracked() -> None:
    before = tracked()
    kept = [
        *socket.socketpair(),
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0),
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
    ]
    kept[-1].bind(HERE)
    sockets()
    assert tracked() == before
    one = udp()
    assert tracked() == before + 1
    one.close()
