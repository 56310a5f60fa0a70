# SPDX-License-Identifier: GPL-2.0-only
"""One measured run: receivers in the guest, flows to them, and where each packet went.

A run warms up for WARM_UP seconds and is then measured for a period in the
middle of the sending, so that neither an empty buffer at the start nor a full
one that is drained at the end flatters an arm. Rates are of that period; the
accounts are of the whole run, to the last packet:

    sent = received + socket drops + early drops + receive-time drops + unaccounted

Receive-time drops are those in front of the protocol stack: the link's queue
(where a virtio ring loses its packets), the device and the backlog. Nobody can
tell whose packets these were, so per receiver they are what is left over.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from experiments import buffers, counters
from experiments.ages import age_ms
from experiments.arms import Arm
from experiments.buffers import Buffers
from experiments.competitors import Competitors
from rig.guest import Guest
from rig.traffic import Flow, Received, Sent, Tool, sender

WARM_UP = 0.5
TAIL = 0.1  # sent after the measured period
GUEST_DROPS = "/sys/class/net/eth0/statistics/rx_dropped"


@dataclass(frozen=True)
class Load:
    """Receivers (one port and flow each, in order of priority) and what they get."""

    ports: Sequence[int]
    nices: Sequence[int]
    pps: float
    size: int = 256
    work: int = 0  # busy loops a packet
    rcvbuf: int = 0
    competitors: int = 0  # tasks that only compute
    poisson: bool = False  # arrivals, in place of constant gaps
    watched: bool = False  # the buffers, and what is given back of them
    on: float = 0.0  # seconds for which the flows are sent,
    off: float = 0.0  # and then are not; 0: they always are
    steady: int = 0  # so many, from the first, always are
    sample_ms: int = 0  # between the receivers' samples; 0: as they are wont

    def flows(self) -> list[Flow]:
        """One to each receiver."""
        return [
            Flow(port, self.pps) if i < self.steady else Flow(port, self.pps, self.on, self.off)
            for i, port in enumerate(self.ports)
        ]


@dataclass(frozen=True)
class Account:
    """Where one receiver's packets went in one run."""

    sent: int
    received: int
    received_pps: float
    socket_drops: int | None  # None where only all receivers' sum is known
    early: dict[str, int]  # by reason

    @property
    def early_drops(self) -> int:
        return sum(self.early.values())

    @property
    def missing(self) -> int:
        """Lost where no counter knows whose packet it was."""
        return self.sent - self.received - (self.socket_drops or 0) - self.early_drops


@dataclass(frozen=True)
class Closing:
    """The account of all receivers' datagrams together."""

    seconds: float  # of sending
    sent: int
    received: int
    socket_drops: int
    early_drops: int
    receive_drops: int  # by the counters in front of the stack

    @property
    def unaccounted(self) -> int:
        lost = self.socket_drops + self.early_drops + self.receive_drops
        return self.sent - self.received - lost


@dataclass(frozen=True)
class Run:
    """One arm, once."""

    accounts: list[Account]
    closing: Closing
    idle: float  # share of the guest's CPUs
    competitors: float  # the same: what all of them got together
    decided: dict[str, float]  # early drops by reason, in the suite's own count
    warnings: list[str]
    buffers: Buffers | None = None  # where they were watched
    sent: Sent | None = None
    received: Sequence[Received] = field(default_factory=list)
    ages_ms: list[float | None] | None = None  # where they can be told


def measure(guest: Guest, arm: Arm, load: Load, tool: Tool, seconds: float) -> Run:
    """Run the load once in an arm; the guest is left as it was."""
    with arm(guest, load.ports):
        receivers = [
            tool.receiver(guest, port, nice, load.work, load.rcvbuf, load.sample_ms)
            for port, nice in zip(load.ports, load.nices, strict=True)
        ]
        arm.started(guest, [receiver.process.pid for receiver in receivers])
        competitors = Competitors(guest, load.competitors)
        watch = buffers.Watch(guest, load.ports) if load.watched else None
        before, cpu, spent = lost(guest), cpu_time(guest), competitors.spent()
        lasts = WARM_UP + seconds + TAIL
        sent = tool.send(load.flows(), load.size, lasts, sender(guest), load.poisson)
        idle = counters.idle_share(cpu, cpu_time(guest))
        share = counters.share(spent, competitors.spent())
        competitors.end()
        queued = watch.end() if watch else (0, 0)
        await_quiet(guest, load.ports)
        early = arm.early(guest, load.ports)
        after, decided = lost(guest), arm.decided(guest)
        granted = buffers.given_back(guest, arm) if watch else None
        received = [receiver.finish() for receiver in receivers]
    accounts = account(
        [sent.packets[port] for port in load.ports],
        received,
        rates(received, seconds),
        [early[port] for port in load.ports],
        arm.counted_by_socket,
    )
    return Run(
        accounts,
        closing(sent.seconds, accounts, before, after, decided if arm.counted_by_socket else {}),
        idle,
        share,
        decided,
        sent.warnings,
        buffers.found(received, queued, granted) if granted else None,
        sent,
        received,
        ages_of(received, sent, load, seconds) if guest.wired else None,
    )


def ages_of(
    received: Sequence[Received], sent: Sent, load: Load, seconds: float
) -> list[float | None] | None:
    """How old each receiver's datagrams are in the measured period, by one clock."""
    if sent.start_ns is None or load.poisson or load.off:
        return None
    start = sent.start_ns
    begin = start + WARM_UP * 1e9
    return [age_ms(one, start, load.pps, begin, begin + seconds * 1e9) for one in received]


def rates(received: Sequence[Received], seconds: float, warm_up: float = WARM_UP) -> list[float]:
    """Packets a second of each receiver in the measured period."""
    starts = [one.first_ns for one in received if one.packets]
    begin = min(starts, default=0) + warm_up * 1e9
    end = begin + seconds * 1e9
    return [(one.by(end) - one.by(begin)) / seconds for one in received]


def account(
    sent: Sequence[int],
    received: Sequence[Received],
    pps: Sequence[float],
    early: Sequence[dict[str, int]],
    counted_by_socket: bool,
) -> list[Account]:
    """Each receiver's account; socket drops proper exclude early ones."""
    accounts = []
    for i, one in enumerate(received):
        drops = one.socket_drops
        if drops is None:  # the socket was gone before its table line could be read
            accounts.append(Account(sent[i], one.packets, pps[i], None, {}))
            continue
        if counted_by_socket:
            drops -= sum(early[i].values())
        accounts.append(Account(sent[i], one.packets, pps[i], drops, early[i]))
    return accounts


@dataclass(frozen=True)
class Lost:
    """Packets lost so far: in front of the guest's protocol stack, and at sockets."""

    in_front: int
    sockets: int


def by_program(guest: Guest) -> int:
    """What XDP programs have dropped in the driver, which counts that as dropped by the device."""
    found = re.findall(r"rx\w*\d\w*xdp_drops: (\d+)", guest.run("ethtool -S eth0").out)
    return sum(map(int, found))


def lost(guest: Guest) -> Lost:
    in_front = (
        guest.link_drops()
        + int(guest.read(GUEST_DROPS))
        - by_program(guest)
        + counters.backlog_drops(guest.read("/proc/net/softnet_stat"))
    )
    udp = counters.snmp(guest.read("/proc/net/snmp"), "Udp")
    return Lost(in_front, udp["InErrors"] + udp["NoPorts"])


def closing(
    seconds: float,
    accounts: Sequence[Account],
    before: Lost,
    after: Lost,
    decided: Mapping[str, float],
) -> Closing:
    """By the receivers' accounts, and by the kernel's counters where a socket's are not known."""
    sent, received = sum(one.sent for one in accounts), sum(one.received for one in accounts)
    found = close(seconds, sent, received, before, after, decided)
    known = [one.socket_drops for one in accounts if one.socket_drops is not None]
    if len(known) < len(accounts):
        return found
    early_drops = sum(one.early_drops for one in accounts)
    return replace(found, socket_drops=sum(known), early_drops=early_drops)


def close(
    seconds: float,
    sent: int,
    received: int,
    before: Lost,
    after: Lost,
    decided: Mapping[str, float],
) -> Closing:
    """By the kernel's counters alone, which take what the modules drop early for the sockets'."""
    early_drops = round(sum(decided.values()))
    at_sockets = after.sockets - before.sockets - early_drops
    in_front = after.in_front - before.in_front
    return Closing(seconds, sent, received, at_sockets, early_drops, in_front)


def cpu_time(guest: Guest) -> counters.CpuTime:
    return counters.cpu_time(guest.read("/proc/stat"), guest.cpus)


def await_quiet(guest: Guest, ports: Sequence[int], timeout: float = 10.0) -> None:
    """Wait until the sockets are empty and every counter of losses stands still.

    The link's queue may be emptied, and overflow, for a while after the last was sent.
    """
    deadline = time.monotonic() + timeout * guest.patience
    before: object = None
    while time.monotonic() < deadline:
        queues = counters.udp_queues(guest.read("/proc/net/udp"), ports)
        now = (queues, lost(guest))
        if now == before and not any(waiting for waiting, _ in queues):
            return
        before = now
        time.sleep(0.3)
    raise TimeoutError(f"no rest {timeout:.0f} s after the sending: {before}")
