# SPDX-License-Identifier: GPL-2.0-only
"""For pf_mm: processes that own a socket, and do to it what they are told.

Whose socket it is decides how far its buffer may grow. So each is made by a child of its
own nice level, and nobody else has it open.
"""

import ctypes
import hashlib
import json
import os
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from inside.net import SO_MEMINFO, datagram
from inside.suite import metric, set_knob, sockets, stops, wait_for

MM = ("pf_mm",)
DEFAULT = 500 << 10  # default_size
FULL = 3000  # datagrams: more than any of these buffers holds
AWAY = 20  # s: in which what is not used has come back
PAYLOAD = 200
SO_BUF_LOCK = 72  # as if by SO_SNDBUF (1) or SO_RCVBUF (2), but the size stays
STOPS = stops("pf_mm")


def limit(nice: int, default: int = DEFAULT) -> int:
    """The paper's SBmax."""
    return default * (20 - nice) // 20


class Told:
    """A process that does what it is told, each by a method _do_...(), and ends with its parent."""

    def __init__(self, nice: int, timeout: float) -> None:
        self._own, its = socket.socketpair()
        self._own.settimeout(timeout)
        parent = os.getpid()
        self.pid = os.fork()
        if not self.pid:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
            try:
                if os.getppid() == parent:
                    self._own.close()
                    os.nice(nice)
                    self._begin(its)
                    self._obey(its)
            finally:
                os._exit(0)
        its.close()
        self.alive = True

    # In the child.

    def _begin(self, control: socket.socket) -> None:
        """What it does first; what it sends is the first answer."""
        raise NotImplementedError

    def _obey(self, control: socket.socket) -> None:
        while request := control.recv(4096):
            name, *arguments = json.loads(request)
            control.send(json.dumps(getattr(self, f"_do_{name}")(*arguments)).encode())

    # In the parent.

    def _answer(self) -> Any:
        answer = self._own.recv(1 << 16)
        assert answer, "the child died"
        return json.loads(answer)

    def ask(self, *request: object) -> Any:
        self._own.send(json.dumps(request).encode())
        return self._answer()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.alive = False

    def end(self) -> None:
        if self.alive:
            self.kill()
        self._own.close()


class Owner(Told):
    """One with a UDP socket, or with a TCP connection from its parent."""

    def __init__(self, nice: int = 0, address: str = "127.0.0.1", *, tcp: bool = False) -> None:
        self._address, self._tcp = address, tcp
        super().__init__(nice, 30)
        port = int(self._answer())
        self.to = (address, port)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        kind = socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM
        self.sender = socket.socket(family, kind)
        self.sender.connect(self.to)
        if tcp:
            self._answer()
        self.sender.setblocking(False)

    # In the child.

    def _begin(self, control: socket.socket) -> None:
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_STREAM if self._tcp else socket.SOCK_DGRAM)
        self.sock.bind((self._address, 0))
        if self._tcp:
            self.sock.listen(1)
        control.send(json.dumps(self.sock.getsockname()[1]).encode())
        if self._tcp:
            listening = self.sock
            self.sock = listening.accept()[0]
            listening.close()
            control.send(b"0")
        self.sock.setblocking(False)

    def _do_size(self) -> int:
        return self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)

    def _do_set(self, size: int) -> int:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        return self._do_size()

    def _do_lock(self, locks: int) -> int:
        self.sock.setsockopt(socket.SOL_SOCKET, SO_BUF_LOCK, locks)
        return self._do_size()

    def _do_memory(self) -> list[int]:
        return list(struct.unpack("9I", self.sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 36)))

    def _do_renice(self, nice: int) -> int:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        return nice

    def _do_numbers(self) -> list[int]:
        """Those of the datagrams that wait; it is an error if one is not whole."""
        found = []
        try:
            while True:
                data = self.sock.recv(65536)
                (number,) = struct.unpack("!I", data[:4])
                assert data == datagram(number, PAYLOAD)
                found.append(number)
        except BlockingIOError:
            # First, last and how many; and whether they are in order, without a gap.
            whole = found == list(range(found[0], found[0] + len(found))) if found else True
            return [len(found), int(whole)]

    def _do_bytes(self, most: int, piece: int) -> list[Any]:
        """Receive up to so many, by pieces; how many they were, and their digest."""
        digest, count = hashlib.sha256(), 0
        try:
            while count < most and (data := self.sock.recv(min(piece, most - count))):
                digest.update(data)
                count += len(data)
        except BlockingIOError:
            pass
        return [count, digest.hexdigest()]

    def _do_clamp(self, window: int) -> int:
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, window)
        return window

    def _do_close(self) -> int:
        self.sock.close()
        return 0

    # In the parent.

    def size(self) -> int:
        """sk_rcvbuf, as SO_RCVBUF shows it."""
        return int(self.ask("size"))

    def drops(self) -> int:
        return int(self.ask("memory")[8])

    def queued(self) -> int:
        return int(self.ask("memory")[0])

    def numbers(self) -> tuple[int, bool]:
        count, whole = self.ask("numbers")
        return count, bool(whole)

    def truesize(self) -> int:
        """Of a datagram as flood() sends them; the socket has to be empty."""
        self.flood(1)
        taken = self.queued()
        self.numbers()
        assert taken
        return taken

    def flood(self, datagrams: int) -> None:
        for number in range(datagrams):
            self.sender.send(datagram(number, PAYLOAD))

    def fill(self, size: int) -> int:
        """With as many datagrams as nearly fill a buffer of that size; how many."""
        number = size * 9 // 10 // self.truesize()
        self.flood(number)
        return number

    def row(self) -> dict[str, str]:
        (row,) = [row for row in sockets() if row["local"].endswith(f":{self.to[1]}")]
        return row

    def close(self) -> None:
        """The socket, not the process."""
        self.ask("close")

    def end(self) -> None:
        super().end()
        self.sender.close()


@contextmanager
def knobs(**values: object) -> Iterator[None]:
    """Settings of pf_mm for a while."""
    with ExitStack() as stack:
        for name, value in values.items():
            before = Path(f"/proc/packetflow/mm/{name}").read_text().strip()
            stack.callback(set_knob, f"mm/{name}", before)
            set_knob(f"mm/{name}", value)
        yield


@contextmanager
def owners(
    *nices: int, address: str = "127.0.0.1", tcp: bool = False, burst: int = 0
) -> Iterator[list[Owner]]:
    """They read only when told to, so what is given to them is not taken back for it."""
    with ExitStack() as stack:
        if Path("/proc/packetflow/mm").exists():
            stack.enter_context(knobs(burst=burst))
        made = []
        for nice in nices:
            made.append(Owner(nice, address, tcp=tcp))
            stack.callback(made[-1].end)
        yield made


@contextmanager
def owner(
    nice: int = 0, address: str = "127.0.0.1", tcp: bool = False, burst: int = 0
) -> Iterator[Owner]:
    with owners(nice, address=address, tcp=tcp, burst=burst) as (made,):
        yield made


def granted() -> int:
    return int(metric("packetflow_mm_granted_bytes")[""])


def given_back() -> dict[str, int]:
    return {k: int(v) for k, v in metric("packetflow_mm_given_back_total").items()}


def refused() -> dict[str, int]:
    return {k: int(v) for k, v in metric("packetflow_mm_refused_total").items()}


def own_size() -> int:
    """That of a new UDP socket."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def await_size(of: Owner, size: int, timeout: float = 15.0) -> None:
    seen = []

    def reached() -> bool:
        seen.append(of.size())
        return seen[-1] == size

    try:
        wait_for(reached, timeout)
    except AssertionError:
        raise AssertionError(seen[-1], size, granted(), given_back(), refused()) from None
