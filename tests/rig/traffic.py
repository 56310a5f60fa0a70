# SPDX-License-Identifier: GPL-2.0-only
"""Senders of datagrams on the other side of the link, and receivers in the guest.

There are two tools with the same face: ``LIGHT``, the rig's own programs, which reach the
limits of the receive path, and ``IPERF3``, which is what users run. A receiver
is started and awaited until it is bound; ``finish`` ends it and returns what it
saw. ``send`` returns when all has been sent; its rates and seconds are those of the
sender's clock. TCP streams are in streams.py.

A sender is this host, in a time that may be slower than its own, or a namespace of the
guest.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from rig.guest import Guest, Process
from rig.link import GUEST4, GUEST_MAC, INSIDE, INSIDE_DEVICE
from rig.programs import programs

SENDER_CORE = 1
FIRST = -20  # nice level


class Flow(NamedTuple):
    """Datagrams to a port; on for so many seconds and then off for so many, if it is ever off."""

    port: int
    pps: float
    on: float = 0.0
    off: float = 0.0

    def dilated(self, by: float) -> str:
        """As udp_send has it."""
        rests = f":{self.on * by}:{self.off * by}" if self.off else ""
        return f"{self.port}:{self.pps / by}{rests}"


@dataclass(frozen=True)
class Sent:
    """What the senders did: datagrams by port, for how long, and when they began on the
    sender's clock, which is the receivers' where it is in the guest."""

    packets: dict[int, int]
    seconds: float
    warnings: list[str] = field(default_factory=list)
    start_ns: int | None = None


class Sample(NamedTuple):
    """A moment of a receiver: datagrams so far, the sequence number after the last of them, and
    the socket's drops so far."""

    ns: int
    received: int
    next_seq: int
    drops: int


@dataclass(frozen=True)
class Received:
    """What one receiver got.

    ``samples`` are (nanoseconds, datagrams so far), on a clock that starts
    anywhere; ``first_ns`` is the arrival of the first datagram on that clock.
    ``socket_drops`` is the socket's own count, ``rcvbuf`` the largest size that its
    buffer had, in bytes as the kernel counts; None where they cannot be known. Of a
    stream that is cut into nothing, bytes stand for datagrams. ``seen`` are the samples with
    all that udp_recv tells.
    """

    packets: int
    socket_drops: int | None
    first_ns: int
    samples: list[tuple[int, int]]
    rcvbuf: int | None = None
    seen: list[Sample] = field(default_factory=list)

    def by(self, when_ns: float) -> float:
        """Datagrams received by a moment, interpolated between samples."""
        last = (self.first_ns, 0)
        for sample in self.samples:
            if sample[0] <= last[0]:
                continue
            if sample[0] >= when_ns:
                part = max(0.0, (when_ns - last[0]) / (sample[0] - last[0]))
                return last[1] + (sample[1] - last[1]) * part
            last = sample
        return float(last[1])


class Output(NamedTuple):
    out: str
    err: str


class Running(Protocol):
    def wait(self, timeout: float) -> Output: ...

    def stop(self) -> None: ...


class Sender(Protocol):
    """Where senders run.

    What they are told in seconds is to be multiplied by the dilation. Where they take their
    time from what they load, datagrams are best handed to a device and neighbour.
    """

    @property
    def dilation(self) -> float: ...

    @property
    def device(self) -> str | None: ...

    def start(self, command: list[str]) -> Running: ...


class HostRunning:
    def __init__(self, command: list[str]) -> None:
        pipe = subprocess.PIPE
        self._command = command
        self._process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)

    def wait(self, timeout: float) -> Output:
        out, err = self._process.communicate(timeout=timeout)
        if self._process.returncode:
            raise RuntimeError(f"{' '.join(self._command)}: {err or out}")
        return Output(out, err)

    def stop(self) -> None:
        self._process.terminate()


@dataclass(frozen=True)
class Host:
    """This host."""

    dilation: float = 1
    device: str | None = None

    def start(self, command: list[str]) -> Running:
        return HostRunning(on_sender_core(command))


class InsideRunning:
    def __init__(self, process: Process) -> None:
        self._process = process

    def wait(self, timeout: float) -> Output:
        done = self._process.wait(timeout)
        if done.rc:
            raise RuntimeError(f"the sender in the guest: {done.err or done.out}")
        return Output(done.out, done.err)

    def stop(self) -> None:
        self._process.signal()


@dataclass(frozen=True)
class Inside:
    """A network namespace of the guest, on a CPU of its own; or, apart from another
    sender that is there and never sleeps, on the one that is always busy."""

    guest: Guest
    apart: bool = False
    dilation: float = 1
    device: str | None = f"{INSIDE_DEVICE},{GUEST_MAC}"
    namespace: str = INSIDE

    def start(self, command: list[str]) -> Running:
        inside = self.guest.in_sender(command, self.apart, self.namespace)
        return InsideRunning(self.guest.spawn(inside, nice=FIRST if self.apart else 0))


HERE = Host()


def sender(guest: Guest, apart: bool = False) -> Sender:
    """The one that lives in the guest's time; apart from another."""
    return Inside(guest, apart) if guest.wired else Host(guest.dilation)


class Receiver(Protocol):
    process: Process

    def finish(self) -> Received: ...


class Tool(Protocol):
    @property
    def name(self) -> str: ...

    def receiver(
        self,
        guest: Guest,
        port: int,
        nice: int = 0,
        work: int = 0,
        rcvbuf: int = 0,
        sample_ms: int = 0,
    ) -> Receiver: ...

    def send(
        self,
        flows: Sequence[Flow],
        size: int,
        seconds: float,
        sender: Sender = HERE,
        poisson: bool = False,
    ) -> Sent: ...


def on_sender_core(command: list[str]) -> list[str]:
    """The command, kept off the core that runs the guest's CPU."""
    if SENDER_CORE in os.sched_getaffinity(0):
        return ["taskset", "-c", str(SENDER_CORE), *command]
    return command


def await_bound(
    guest: Guest, protocol: str, port: int, timeout: float = 20.0, pid: int | str = "self"
) -> None:
    """Wait until a socket of the guest is bound to the port, in the namespace of that process.

    Of TCP it has to listen: connections that are over keep the port for a while.
    """
    timeout *= guest.dilation
    state = "0A" if protocol == "tcp" else "[0-9A-F]{2}"
    local = re.compile(rf":\s+[0-9A-F]+:{port:04X} [0-9A-F]+:[0-9A-F]+ {state} ", re.MULTILINE)
    deadline = time.monotonic() + timeout
    while not any(local.search(guest.read(f"/proc/{pid}/net/{protocol}{v}")) for v in ("", "6")):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no socket of the guest was bound to {protocol} port {port}")
        time.sleep(0.05)


class LightReceiver:
    """udp_recv in a session of its own, as a service would be; in a network namespace."""

    def __init__(
        self,
        guest: Guest,
        port: int,
        nice: int,
        work: int,
        rcvbuf: int,
        sample_ms: int,
        inside: str = "",
    ) -> None:
        command = ["nsenter", f"--net=/run/netns/{inside}"] if inside else []
        command += [str(programs() / "udp_recv")]
        if work:
            command += ["-w", str(work)]
        if rcvbuf:
            command += ["-b", str(rcvbuf)]
        if sample_ms:
            command += ["-S", str(sample_ms)]
        self.process = guest.spawn([*command, str(port)], nice=nice, new_session=True)
        await_bound(guest, "udp", port, pid=self.process.pid)

    def finish(self) -> Received:
        self.process.signal()
        found = json.loads(self.process.wait(20).out)
        seen = [Sample(*sample) for sample in found["samples"]]
        samples = [(one.ns, one.received) for one in seen]
        samples.append((found["end_ns"], found["received"]))
        return Received(
            found["received"], found["drops"], found["first_ns"], samples, found["rcvbuf"], seen
        )


@dataclass(frozen=True)
class Light:
    """Its receivers may be in a network namespace of the guest, at an address of their own."""

    name: str = "light"
    inside: str = ""
    at: str = GUEST4

    def receiver(
        self,
        guest: Guest,
        port: int,
        nice: int = 0,
        work: int = 0,
        rcvbuf: int = 0,
        sample_ms: int = 0,
    ) -> Receiver:
        return LightReceiver(guest, port, nice, work, rcvbuf, sample_ms, self.inside)

    def send(
        self,
        flows: Sequence[Flow],
        size: int,
        seconds: float,
        sender: Sender = HERE,
        poisson: bool = False,
    ) -> Sent:
        return Flood(flows, size, seconds, sender, poisson, self.at).end()


class Flood:
    """Datagrams that are sent from now on."""

    def __init__(
        self,
        flows: Sequence[Flow],
        size: int,
        seconds: float,
        sender: Sender,
        poisson: bool = False,
        at: str = GUEST4,
    ) -> None:
        self._flows, self._dilation = flows, sender.dilation
        self._seconds = seconds * sender.dilation
        command = [str(programs() / "udp_send"), *(["-P"] if poisson else [])]
        command += ["-d", sender.device] if sender.device else []
        command += ["-s", str(size), "-t", str(self._seconds), at]
        command += [flow.dilated(self._dilation) for flow in flows]
        self._program = sender.start(command)

    def stop(self) -> Sent:
        """End it before its time."""
        self._program.stop()
        return self.end()

    def end(self) -> Sent:
        """Wait for its end."""
        done = self._program.wait(self._seconds + 30)
        out = json.loads(done.out)
        packets = {flow["port"]: flow["sent"] for flow in out["flows"]}
        seconds = out["seconds"] / self._dilation
        return Sent(packets, seconds, done.err.splitlines(), out["start_ns"])


class Iperf3Receiver:
    """A one-off iperf3 server; busy work is not in its power."""

    def __init__(self, guest: Guest, port: int, nice: int) -> None:
        command = ["iperf3", "-s", "-1", "-J", "-i", "0.1", "-p", str(port)]
        self.process = guest.spawn(command, nice=nice, new_session=True)
        await_bound(guest, "tcp", port)

    def finish(self) -> Received:
        out = json.loads(self.process.wait(30).out)
        return parse_iperf3_server(out)


def parse_iperf3_server(out: dict) -> Received:
    """A server's report; its clock starts with its first interval."""
    if "error" in out:
        raise RuntimeError(f"iperf3 server: {out['error']}")
    got, samples = 0, []
    for interval in out["intervals"]:
        part = interval["sum"]
        got += part["packets"] - part["lost_packets"]
        samples.append((round(part["end"] * 1e9), got))
    return Received(got, None, 0, samples)


class Iperf3:
    name = "iperf3"

    def receiver(
        self,
        guest: Guest,
        port: int,
        nice: int = 0,
        work: int = 0,
        rcvbuf: int = 0,
        sample_ms: int = 0,
    ) -> Receiver:
        if work or rcvbuf or sample_ms:
            raise ValueError("iperf3 receivers take no work, no buffer size and no sample's length")
        return Iperf3Receiver(guest, port, nice)

    def send(
        self,
        flows: Sequence[Flow],
        size: int,
        seconds: float,
        sender: Sender = HERE,
        poisson: bool = False,
    ) -> Sent:
        dilation = sender.dilation
        if poisson or any(flow.off for flow in flows):
            raise ValueError("iperf3 sends at constant rates only")
        clients = []
        for flow in flows:
            command = ["iperf3", "-c", GUEST4, "-p", str(flow.port), "-u", "-J"]
            command += ["-b", f"{flow.pps / dilation * size * 8:.0f}", "-l", str(size)]
            command += ["-t", f"{seconds * dilation:.0f}", "--pacing-timer", "200"]
            clients.append(sender.start(command))
        packets, used = {}, 0.0
        for flow, client in zip(flows, clients, strict=True):
            out = json.loads(client.wait(seconds * dilation + 60).out)
            if "error" in out:
                raise RuntimeError(f"iperf3 client: {out['error']}")
            total = out["end"]["sum_sent"] if "sum_sent" in out["end"] else out["end"]["sum"]
            packets[flow.port] = total["packets"]
            used = max(used, total["seconds"])
        return Sent(packets, used / dilation)


LIGHT = Light()
IPERF3: Tool = Iperf3()
TOOLS: dict[str, Tool] = {tool.name: tool for tool in (LIGHT, IPERF3)}
