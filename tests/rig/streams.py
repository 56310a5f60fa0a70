# SPDX-License-Identifier: GPL-2.0-only
"""TCP streams to receivers in the guest, as fast as both ends allow.

A sender is what it is for datagrams, see traffic.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rig.guest import Guest
from rig.link import GUEST4, NETWORK4, SENDER4, TAP
from rig.programs import programs
from rig.traffic import HERE, Received, Sender, await_bound

STREAM_SECONDS = 60.0  # for all of them, in the guest's time
BEYOND_REACH = 20_000  # segments


@contextmanager
def unlimited(sender: Sender = HERE) -> Iterator[None]:
    """TCP streams to the guest start with a congestion window beyond reach."""
    at = sender.device.partition(",")[0] if sender.device else TAP
    route = ["ip", "route", "replace", NETWORK4, "dev", at, "src", SENDER4]
    sender.start([*route, "initcwnd", str(BEYOND_REACH)]).wait(10)
    try:
        yield
    finally:
        sender.start(route).wait(10)


@dataclass(frozen=True)
class StreamReceived:
    """When a receiver had its first message and its last, on the guest's clock."""

    first_ns: int
    end_ns: int


class StreamReceiver:
    """tcp_recv in a session of its own, for one stream of so many messages."""

    def __init__(self, guest: Guest, port: int, nice: int, messages: int, size: int) -> None:
        command = [str(programs() / "tcp_recv"), "-n", str(messages), "-s", str(size), str(port)]
        self.process = guest.spawn(command, nice=nice, new_session=True)
        await_bound(guest, "tcp", port)

    def finish(self) -> StreamReceived:
        return StreamReceived(**json.loads(self.process.wait(20).out))


def send_streams(ports: Sequence[int], messages: int, size: int, sender: Sender = HERE) -> int:
    """One stream of so many messages to each port, together; gives the retransmissions."""
    return Streams(ports, 0, sender, ["-n", str(messages), "-s", str(size)]).end()


class Streams:
    """One TCP stream to each port from now on, for so long, or as much as the options say."""

    def __init__(
        self,
        ports: Sequence[int],
        seconds: float,
        sender: Sender,
        options: Sequence[str] = (),
    ) -> None:
        self._patience = (seconds + STREAM_SECONDS) * sender.dilation
        options = options or ["-t", str(seconds * sender.dilation)]
        command = [str(programs() / "tcp_send"), *options, GUEST4, *map(str, ports)]
        self._program = sender.start(command)

    def end(self) -> int:
        """Wait for the end of all; gives the retransmissions."""
        return int(json.loads(self._program.wait(self._patience).out)["retransmitted"])


class BulkReceiver:
    """tcp_bulk in a session of its own, for one stream that it reads in bursts."""

    def __init__(self, guest: Guest, port: int, nice: int, pause_ms: int) -> None:
        command = [str(programs() / "tcp_bulk"), "-p", str(pause_ms), str(port)]
        self.process = guest.spawn(command, nice=nice, new_session=True)
        await_bound(guest, "tcp", port)

    def finish(self) -> Received:
        seen = json.loads(self.process.wait(20).out)
        samples = [(ns, count) for ns, count in seen["samples"]]
        return Received(samples[-1][1], None, seen["first_ns"], samples, seen["rcvbuf"])


def send_bulk(ports: Sequence[int], seconds: float, sender: Sender = HERE) -> int:
    """One stream to each port for so long, together; gives the retransmissions."""
    return Streams(ports, seconds, sender).end()
