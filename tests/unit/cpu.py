# SPDX-License-Identifier: GPL-2.0-only
"""A model of one CPU, and of the controller that looks at it.

The CPU: softirqs come first; each packet costs them a unit where it enters a buffer, and a
part of that where it is dropped, for whatever reason. What is left is shared among receivers
that have packets to read, by their weights, as the scheduler does. A buffer holds so many
packets; what finds it full is lost.

The controller: what harm.c, control.c and measure.c of pf_filter do around the policy, in Python,
for one receiver a level. Queues that stand are ring.py's; receivers that wait, of TCP, are left
out.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from unit.policy import (
    NICE,
    ONE,
    Cut,
    Losses,
    Tick,
    Trial,
    cut_at,
    cut_most,
    cut_reach,
    cut_share,
    keep,
    kept_from_running,
    level,
    losses_step,
    rank,
    rate_update,
    slept,
    trial_step,
)

SECOND = 1_000_000
TICK_US = 12_000
STEP_US = 2_000
DROP = 0.57  # of what a packet costs a softirq that is delivered
READ = 1.0  # what its reader costs, in the same
BUFFER = 256
WEIGHTS = {0: 1024, 5: 335, 10: 110}
FLOOR = 100

BEARABLE = ONE // 200
IDLE_ENOUGH = ONE // 8
MEMORY_US = 50_000
HOLD_US = 5 * SECOND
IN_USE_US = SECOND // 2

Rate = Callable[[float], float]


def steady(rate: float) -> Rate:
    return lambda now: rate


@dataclass
class Receiver:
    """Sent so many packets/s by time; reads no more than pace, asleep in between."""

    nice: int
    rate: Rate
    pace: float = math.inf
    level: int = field(init=False)

    def __post_init__(self) -> None:
        self.level = level(rank(NICE, self.nice))


@dataclass
class Socket:
    """What the modules know of a receiver."""

    waiting: float = 0
    arrived: float = 0
    lost: float = 0
    passed: float = 0
    seen_us: float = -math.inf
    rate: int = 0
    top_rate: int = 0
    run: float = 0
    wait: float = 0
    ran: float = 0  # of the tick, in time
    waited: float = 0


@dataclass
class Victim:
    """struct victim, and what is done with it in a tick; how long it is awake is left out."""

    arrived_seen: int
    lost_seen: int
    lost_us: float
    losses: Losses = field(default_factory=Losses)

    def loss(self, socket: Socket, now_us: float) -> int:
        arrived = int(socket.arrived) - self.arrived_seen
        lost = int(socket.lost) - self.lost_seen
        self.arrived_seen += arrived
        self.lost_seen += lost
        if lost:
            self.lost_us = now_us
        return losses_step(self.losses, arrived, lost, socket.rate, TICK_US)

    def must_be_shed_for(self, socket: Socket) -> bool:
        wait, run = round(socket.wait * ONE), round(socket.run * ONE)
        return kept_from_running(min(wait + run, ONE), wait)


@dataclass
class Sample:
    """One tick: how far the cut reached, and by receiver what was sent, shed, lost, read."""

    reach: int
    harm: int
    sent: list[float]
    shed: list[float]
    lost: list[float]
    read: list[float]


@dataclass
class Run:
    ticks: list[Sample] = field(default_factory=list)

    def part(self, begin: float, end: float = math.inf) -> list[Sample]:
        last = min(end * SECOND / TICK_US, len(self.ticks))
        return self.ticks[round(begin * SECOND / TICK_US) : round(last)]

    def loses(self, who: int, begin: float, end: float = math.inf) -> float:
        """Share of what a receiver is sent that it does not get."""
        part = self.part(begin, end)
        sent = sum(tick.sent[who] for tick in part)
        return sum(tick.shed[who] + tick.lost[who] for tick in part) / sent if sent else 0.0

    def reads(self, who: int, begin: float = 0, end: float = math.inf) -> float:
        return sum(tick.read[who] for tick in self.part(begin, end))

    def cut(self, begin: float, end: float = math.inf) -> float:
        """Share of time for which anybody was shed."""
        part = self.part(begin, end)
        return sum(tick.reach > 0 for tick in part) / len(part)


class Cpu:
    """Receivers are listed lowest first."""

    def __init__(
        self,
        capacity: float,
        receivers: list[Receiver],
        other: Rate | None = None,
        sheds: bool = True,
    ) -> None:
        self.capacity = capacity  # units/s
        self.receivers = receivers
        self.other = other or steady(0)  # what softirqs do besides, units/s
        self.sheds = sheds
        self.sockets = [Socket() for _ in receivers]
        self.victims: dict[int, Victim] = {}
        self.trial = Trial()
        self.cut = Cut()
        self.idle = self.idle_now = ONE
        self.idled = 0.0

    def keeps(self, who: int) -> float:
        socket, of = self.sockets[who], self.receivers[who].level
        share = cut_share(self.cut, of)
        return keep(share, socket.rate, socket.top_rate, FLOOR) / ONE

    def step(self, now_us: float, kept: list[float], sample: Sample) -> None:
        """Packets of one step: dropped, lost, or put in a buffer; then they are read."""
        seconds = STEP_US / SECOND
        left = (self.capacity - self.other(now_us / SECOND)) * seconds
        for who, receiver in enumerate(self.receivers):
            socket = self.sockets[who]
            sent = receiver.rate(now_us / SECOND) * seconds
            passed = sent * kept[who]
            enters = min(passed, BUFFER - socket.waiting)
            if sent:
                socket.seen_us = now_us
            socket.waiting += enters
            socket.arrived += sent
            socket.lost += passed - enters
            left -= enters + DROP * (sent - enters)
            if passed > enters:
                before = Victim(int(socket.arrived - sent), int(socket.lost), now_us)
                self.victims.setdefault(who, before)
            sample.sent[who] += sent
            sample.shed[who] += sent - passed
            sample.lost[who] += passed - enters
        self.idled += self.read(max(left, 0.0), sample)

    def read(self, left: float, sample: Sample) -> float:
        """Share what is left among those who have packets; returns the time that is idle."""
        whole = self.capacity * STEP_US / SECOND
        may = []
        for receiver, socket in zip(self.receivers, self.sockets, strict=True):
            may.append(min(socket.waiting, receiver.pace * STEP_US / SECOND) * READ)
        got = [0.0] * len(may)
        wants = [who for who, want in enumerate(may) if want > 0]
        while wants and left > 1e-9:
            weight = sum(WEIGHTS[self.receivers[who].nice] for who in wants)
            parts = {who: left * WEIGHTS[self.receivers[who].nice] / weight for who in wants}
            for who in wants:
                take = min(parts[who], may[who] - got[who])
                got[who] += take
                left -= take
            wants = [who for who in wants if may[who] - got[who] > 1e-9]
        for who, socket in enumerate(self.sockets):
            socket.waiting -= got[who] / READ
            sample.read[who] += got[who] / READ
            socket.ran += got[who] / whole
            if may[who] - got[who] > 1e-9:
                socket.waited += 1 - got[who] / whole
        return max(left, 0.0) / whole

    def worst(self, levels: list[int], now_us: float) -> tuple[int, int, int]:
        """harm_weigh_losses(): share and level of the most important harmed; time to spare."""
        share, of, spare = 0, 0, ONE
        lasting = False
        for who, victim in list(self.victims.items()):
            mine, socket = self.receivers[who].level, self.sockets[who]
            loss = victim.loss(socket, now_us)
            kept = victim.must_be_shed_for(socket)
            if now_us - victim.lost_us > HOLD_US:
                del self.victims[who]
            if mine <= self.cut.level or not levels or levels[0] >= mine & ~1:
                continue
            lasting = True
            spare = min(spare, slept(round(socket.wait * ONE), round(socket.run * ONE)))
            if loss > BEARABLE and mine > of and kept:
                share, of = loss, mine
        # One tick without idle time is enough at an onset.
        if min(self.idle_now, self.idle) >= IDLE_ENOUGH:
            share = 0
        return share, of, spare if lasting else self.idle

    def sample(self, sample: Sample, now_us: float) -> list[int]:
        """What the modules measure in a tick; returns the levels in use."""
        steps = TICK_US // STEP_US
        self.idle_now = int(self.idled / steps * ONE)
        self.idle = self.idle - self.idle // 4 + self.idle_now // 4
        self.idled = 0.0
        levels = []
        for who, socket in enumerate(self.sockets):
            socket.run += (socket.ran / steps - socket.run) * TICK_US / (TICK_US + MEMORY_US)
            socket.wait += (socket.waited / steps - socket.wait) * TICK_US / (TICK_US + MEMORY_US)
            socket.ran = socket.waited = 0.0
            socket.rate = rate_update(socket.rate, round(sample.sent[who]), TICK_US)
            socket.top_rate = max(socket.rate, socket.top_rate - -(-socket.top_rate // 64))
            if now_us - socket.seen_us < IN_USE_US:
                levels.append(self.receivers[who].level)
        return levels

    def control(self, sample: Sample, now_us: float) -> None:
        """control_step_measures() and measure_step()."""
        levels = self.sample(sample, now_us)
        share, of, spare = self.worst(levels, now_us)
        most = cut_most(levels)
        if share > BEARABLE:
            most = cut_most([other for other in levels if other < of & ~1])
            sample.harm = share
        self.trial.reach = cut_reach(self.cut, levels)
        trial_step(self.trial, Tick(sample.harm, BEARABLE, spare, most, TICK_US, of))
        sample.reach = self.trial.reach
        if self.sheds:
            self.cut = cut_at(self.trial.reach, levels)

    def run(self, seconds: float) -> Run:
        run = Run()
        count = len(self.receivers)
        for tick in range(round(seconds * SECOND / TICK_US)):
            zeros = [[0.0] * count for _ in range(4)]
            sample = Sample(0, 0, *zeros)
            kept = [self.keeps(who) for who in range(count)]
            for step in range(TICK_US // STEP_US):
                self.step(tick * TICK_US + step * STEP_US, kept, sample)
            self.control(sample, (tick + 1) * TICK_US)
            run.ticks.append(sample)
        return run
