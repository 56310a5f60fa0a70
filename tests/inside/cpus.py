# SPDX-License-Identifier: GPL-2.0-only
"""CPUs of the guest: what arrives where, and switching them off and on."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inside.net import Peer, Worker, udp

REMOVABLE = (1, 2, 3)  # the first stays


def own_sysfs() -> None:
    """See the devices of this namespace in /sys."""
    os.unshare(os.CLONE_NEWNS)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "sysfs", "sysfs", "/sys"], check=True)


def steer(peer: Peer, cpu: int) -> None:
    Path(f"/sys/class/net/{peer.device}/queues/rx-0/rps_cpus").write_text(f"{1 << cpu:x}")


def backlog(packets: int) -> None:
    """For every CPU; it is set in the first namespace alone."""
    first = ["nsenter", "--target", "1", "--net"]
    subprocess.run([*first, "sysctl", "-q", f"net.core.netdev_max_backlog={packets}"], check=True)


def receiving_on(address: str, cpu: int, nice: int) -> tuple[socket.socket, Worker]:
    """A socket, and a process on that CPU that receives from it for ever."""
    sock = udp(address)

    def receive() -> None:
        os.sched_setaffinity(0, {cpu})
        while True:
            sock.recv(1000)

    worker = Worker(receive, nice)
    worker.begin()
    return sock, worker


def sending_on(peer: Peer, cpu: int, to: list[tuple[str, int]], pause: float) -> Worker:
    """A process on that CPU that sends a packet to each, and again after a pause."""
    sender = peer.udp()

    def send() -> None:
        os.sched_setaffinity(0, {cpu})
        while True:
            for address in to:
                sender.sendto(b"x" * 100, address)
            if pause:
                time.sleep(pause)

    worker = Worker(send)
    worker.begin()
    return worker


def switch(cpu: int, on: bool) -> None:
    """The kernel may refuse while what is reserved on the others would be too much."""
    Path(f"/sys/devices/system/cpu/cpu{cpu}/online").write_text(str(int(on)))


def all_on() -> None:
    for cpu in REMOVABLE:
        switch(cpu, True)


@contextmanager
def all_back() -> Iterator[None]:
    try:
        yield
    finally:
        all_on()
