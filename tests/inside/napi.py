# SPDX-License-Identifier: GPL-2.0-only
"""How a device's interrupts are put off.

Until 6.12 that is the device's, and in /sys; later each NAPI instance has values of its own,
which netlink tells, and those in /sys are what an administrator sets for all of them.
"""

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

NETLINK_GENERIC, CONTROLLER = 16, 0x10
REQUEST, DUMP = 0x1, 0x300
FAILED, DONE = 2, 3  # types of messages
GET_FAMILY, FAMILY_ID, FAMILY_NAME = 3, 1, 2
NAPI_GET, IFINDEX, COUNT, TIMEOUT = 11, 1, 5, 6

Values = tuple[int, int]  # nanoseconds, and how many looks in vain


def _ask(family: int, command: int, attribute: int, value: bytes) -> Iterator[dict[int, bytes]]:
    """The attributes of each message of the answer."""
    padded = value + bytes(-len(value) % 4)
    body = struct.pack("=BBHHH", command, 1, 0, 4 + len(value), attribute) + padded
    flags = REQUEST if family == CONTROLLER else REQUEST | DUMP
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC) as sock:
        sock.send(struct.pack("=IHHII", 16 + len(body), family, flags, 1, 0) + body)
        while True:
            data = sock.recv(65536)
            while data:
                length, kind = struct.unpack_from("=IH", data)
                if kind in (FAILED, DONE):
                    return
                yield dict(_attributes(data[20:length]))
                data = data[(length + 3) & ~3 :]
            if family == CONTROLLER:
                return


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while data:
        length, kind = struct.unpack_from("=HH", data)
        yield kind, data[4:length]
        data = data[(length + 3) & ~3 :]


def _number(data: bytes) -> int:
    return int.from_bytes(data, sys.byteorder)


def values(device: str) -> set[Values]:
    """Those of a device in the current namespace; none of one that is down and has none."""
    found = set()
    for family in _ask(CONTROLLER, GET_FAMILY, FAMILY_NAME, b"netdev\0"):
        index = struct.pack("=I", socket.if_nametoindex(device))
        for one in _ask(_number(family[FAMILY_ID]), NAPI_GET, IFINDEX, index):
            if TIMEOUT not in one:
                return {told(device)}
            found.add((_number(one[TIMEOUT]), _number(one[COUNT])))
        return found
    return {told(device)}


def _files(device: str) -> tuple[Path, Path]:
    directory = Path("/sys/class/net") / device
    return directory / "gro_flush_timeout", directory / "napi_defer_hard_irqs"


def told(device: str) -> Values:
    """What /sys tells."""
    timeout, count = (int(file.read_text()) for file in _files(device))
    return timeout, count


def put_off(device: str, timeout: int, count: int) -> None:
    """As an administrator does it."""
    for file, value in zip(_files(device), (timeout, count), strict=True):
        file.write_text(str(value))


def own_sysfs() -> None:
    """Let /sys be that of the current network namespace, for this process."""
    os.unshare(os.CLONE_NEWNS)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "sysfs", "none", "/sys"], check=True)


def main(device: str, timeout: str, count: str, seconds: str) -> None:
    """Wait until the values are these."""
    deadline = time.monotonic() + float(seconds)
    while (found := values(device)) != {(int(timeout), int(count))}:
        if time.monotonic() > deadline:
            sys.exit(f"{device} has {found}")
        time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
