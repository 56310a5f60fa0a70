# SPDX-License-Identifier: GPL-2.0-only
"""Receivers that starve, in processes of their own, and do what a test tells them."""

import functools
import os
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from inside.computing import hog, spin
from inside.net import port_of, udp
from inside.scheduling import BUFFER, State, end, set_slack, start, state
from inside.suite import sockets


class Receiver:
    """A process of which one thread receives, a packet every few milliseconds.

    It does what it is told in between: the methods, which return at once.
    """

    def __init__(
        self,
        prepare: Callable[[], object] = lambda: None,
        *,
        in_thread: bool = False,
        session: bool = True,
        work: float = 0.001,
        pause: float = 0.004,
    ) -> None:
        self._prepare, self._work, self._pause = prepare, work, pause
        self._own, self._its = socket.socketpair()
        self.pid = start(self._main_of_threads if in_thread else self._main, session)
        self._its.close()
        self._own.settimeout(50)
        self.tid, self.port = struct.unpack("2I", self._own.recv(8))
        self.before = state(self.tid)

    def _main(self) -> None:
        self._own.close()
        self._prepare()
        self._serve()

    def _main_of_threads(self) -> None:
        self._own.close()
        self._prepare()
        threading.Thread(target=lambda: time.sleep(600)).start()
        threading.Thread(target=self._serve).start()
        while True:
            signal.pause()

    def _serve(self) -> None:
        self._sock = udp(rcvbuf=BUFFER)
        self._others: list[socket.socket] = []
        # What is executed must not close it, or that would be why the boost ends.
        self._sock.set_inheritable(True)
        self._its.send(struct.pack("2I", threading.get_native_id(), port_of(self._sock)))
        while True:
            sockets = [s for s in (self._its, self._sock, *self._others) if s.fileno() >= 0]
            ready, _, _ = select.select(sockets, [], [])
            if self._its in ready:
                command = self._its.recv(100).decode()
                if command == "leave":
                    return
                self._its.send(struct.pack("I", getattr(self, f"_do_{command}")()))
                continue
            for sock in ready:
                sock.recv(2000)
                spin(self._work)
                time.sleep(self._pause)

    # What it does when told; each returns a number.

    def _do_close(self) -> int:
        self._sock.close()
        return 0

    def _do_open(self) -> int:
        self._others.append(udp(rcvbuf=BUFFER))
        return port_of(self._others[-1])

    def _do_drain(self) -> int:
        with suppress(BlockingIOError):
            while True:
                self._sock.recv(2000, socket.MSG_DONTWAIT)
        return 0

    def _do_fork(self) -> int:
        child = os.fork()
        if not child:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
            signal.sigwait({signal.SIGUSR1})
            set_slack(0)
            time.sleep(600)
        return child

    def _do_hand_over(self) -> int:
        """A child receives on the socket from now on."""
        child = os.fork()
        if not child:
            while True:
                self._sock.recv(2000)
                spin(self._work)
                time.sleep(self._pause)
        self._sock.close()
        return child

    def _do_clone(self) -> int:
        thread = threading.Thread(target=lambda: time.sleep(600))
        thread.start()
        assert thread.native_id is not None
        return thread.native_id

    def _do_storm(self) -> int:
        """Children that have children at once; how many of either were raised for good."""
        wrong = 0
        for _ in range(5):
            children = []
            for _ in range(8):
                child = os.fork()
                if not child:
                    grandchild = os.fork()
                    time.sleep(0.2)
                    own = state(threading.get_native_id())
                    bad = int(own[:-1] != self.before_storm[:-1])
                    if grandchild:
                        bad += os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1])
                    os._exit(bad)
                children.append(child)
            for child in children:
                wrong += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return wrong

    @property
    def before_storm(self) -> State:
        return self._before_storm

    def _do_note(self) -> int:
        """Remember how it is scheduled; told before it is boosted."""
        self._before_storm = state(threading.get_native_id())
        return 0

    def _tell(self, command: str) -> int:
        self._own.send(command.encode())
        return int(struct.unpack("I", self._own.recv(4))[0])

    def close(self) -> None:
        self._tell("close")

    def open(self) -> int:
        """It receives on one more socket; its port."""
        return self._tell("open")

    def drain(self) -> None:
        self._tell("drain")

    def note(self) -> None:
        self._tell("note")

    def storm(self) -> int:
        return self._tell("storm")

    def fork(self) -> int:
        """Its child; at SIGUSR1 that takes the timer slack it was born with."""
        return self._tell("fork")

    def hand_over(self) -> int:
        return self._tell("hand_over")

    def clone(self) -> int:
        return self._tell("clone")

    def execute(self) -> None:
        """Become another program with the same socket, which nobody reads any more."""
        self._own.send(b"execute")

    def _do_execute(self) -> int:
        os.execvp("sleep", ["sleep", "600"])

    def _do_hog(self) -> int:
        hog()
        return 0

    def hog(self) -> None:
        """Compute from now on; it does nothing else any more."""
        self._own.send(b"hog")

    def leave(self) -> None:
        """End the thread that receives."""
        self._own.send(b"leave")

    # What is to be seen of it.

    def state(self) -> State:
        return state(self.tid)

    def threads(self) -> dict[int, State]:
        return {int(task.name): state(int(task.name)) for task in self._tasks()}

    def _tasks(self) -> list[Path]:
        return list(Path(f"/proc/{self.pid}/task").iterdir())

    def row(self) -> dict[str, str]:
        (row,) = [row for row in sockets() if row["local"].endswith(f":{self.port}")]
        return row

    def elected(self) -> bool:
        return self.row()["pp"] == "1"

    def end(self) -> None:
        end(self.pid)
        self._own.close()


@contextmanager
def receiving(
    prepare: Callable[[], object] = lambda: None,
    *,
    in_thread: bool = False,
    session: bool = True,
    work: float = 0.001,
    pause: float = 0.004,
) -> Iterator[Receiver]:
    made = Receiver(prepare, in_thread=in_thread, session=session, work=work, pause=pause)
    try:
        yield made
    finally:
        made.end()


# One that works all the time: with a boost it takes what it is sent, and beside hogs it does not.
hungry = functools.partial(receiving, work=0.003, pause=0)
