# SPDX-License-Identifier: GPL-2.0-only
"""The model of a CPU (cpu.py) with a device's ring before it, which overflows.

Packets wait in the ring until softirqs take them, in the order in which they came, whoever's they
are. Softirqs take up to a part of the time, as their thread shares the rest with receivers. What
finds the ring full is lost before anybody knows whose it is. The controller is told what
pf_filter/queue.c tells it.
"""

import math
import random
from dataclasses import dataclass, field

from unit.cpu import (
    BEARABLE,
    BUFFER,
    DROP,
    IDLE_ENOUGH,
    SECOND,
    STEP_US,
    TICK_US,
    Cpu,
    Rate,
    Receiver,
    Sample,
    steady,
)
from unit.policy import (
    ONE,
    Cut,
    Losses,
    Queue,
    QueueTick,
    cut_most,
    cut_reach,
    queue_lost_step,
    queue_step,
    stood_long,
    stood_step,
)

RING = 1024
STOOD_BEARABLE = ONE // 64
LOST_FOR_US = SECOND // 5
LOOKS_US = SECOND // 10  # the estimator's, at what a device has lost


@dataclass
class Ring:
    """What waits, by receiver; the last is nobody's. What was in this tick."""

    waits: list[float]
    lost: float = 0
    lost_seen: float = 0
    lost_us: float = -math.inf
    losses: Losses = field(default_factory=Losses)
    polled: float = 0
    passed: float = 0  # of the most important receiver's
    stood: float = 0  # of the time

    def tick(self) -> None:
        self.polled = self.passed = self.stood = 0


class RingCpu(Cpu):
    """Sent besides: so many packets/s that are nobody's, and cost what a drop costs."""

    softirqs = 0.8  # of the time, at most

    def __init__(
        self,
        capacity: float,
        receivers: list[Receiver],
        nobodys: Rate | None = None,
        sheds: bool = True,
        noise: int | None = None,
        bursts: float = 0,
    ) -> None:
        super().__init__(capacity, receivers, sheds=sheds)
        self.nobodys, self.bursts = nobodys or steady(0), bursts
        self.random = None if noise is None else random.Random(noise)
        self.ring = Ring([0.0] * (len(receivers) + 1))
        self.known, self.stood_us = Queue(), 0

    def arrive(self, now_us: float) -> list[float]:
        """Into the ring; gives what was sent."""
        ring, seconds = self.ring, STEP_US / SECOND
        rates = [receiver.rate(now_us / SECOND) for receiver in self.receivers]
        sent = [rate * seconds for rate in (*rates, self.nobodys(now_us / SECOND))]
        if self.random:
            sent = [max(self.random.gauss(mean, mean**0.5), 0.0) for mean in sent]
        enters = min(sum(sent), RING - sum(ring.waits))
        if sum(sent):
            for who, count in enumerate(sent):
                ring.waits[who] += count * enters / sum(sent)
        lost = sum(sent) - enters
        # A burst of its own device, that overflows and is of no matter to others.
        if self.bursts and now_us % (self.bursts * SECOND) < STEP_US:
            lost += 24
        ring.lost += lost
        return sent[:-1]

    def step(self, now_us: float, kept: list[float], sample: Sample) -> None:
        ring, whole = self.ring, self.capacity * STEP_US / SECOND
        sent = self.arrive(now_us)
        costs = [DROP + (1 - DROP) * keep for keep in kept] + [DROP]
        needs = sum(wait * cost for wait, cost in zip(ring.waits, costs, strict=True))
        part = min(whole * self.softirqs / needs, 1.0) if needs else 1.0
        ring.stood += (part < 1) * STEP_US / TICK_US
        for who, socket in enumerate(self.sockets):
            came = ring.waits[who] * part
            passed = came * kept[who]
            if came:
                socket.seen_us = now_us
            enters = min(passed, BUFFER - socket.waiting)
            socket.waiting += enters
            socket.arrived += came
            sample.sent[who] += sent[who]
            sample.shed[who] += came - passed
            sample.lost[who] += passed - enters
            ring.passed += passed * (who == len(self.receivers) - 1)
        ring.polled += sum(ring.waits) * part
        ring.waits = [wait * (1 - part) for wait in ring.waits]
        self.idled += self.read(whole - needs * part, sample)

    def harm(self, levels: list[int], now_us: float) -> tuple[int, int, bool]:
        """harm_weigh_queue(): share and level of who is harmed; whether the queue stands."""
        ring = self.ring
        seen = round(ring.stood * ONE)
        lost = int(ring.lost - ring.lost_seen) if now_us % LOOKS_US < TICK_US else 0
        if lost:
            ring.lost_seen, ring.lost_us = ring.lost_seen + lost, now_us
        share = queue_lost_step(ring.losses, lost, round(ring.polled), TICK_US)
        standing = seen
        idles = min(self.idle_now, self.idle) >= IDLE_ENOUGH
        if now_us - ring.lost_us < LOST_FOR_US and not idles:
            standing = max(seen, min(share * STOOD_BEARABLE // BEARABLE, ONE))
        self.stood_us = stood_step(self.stood_us, standing > 0, TICK_US)
        of = levels[-1] if levels else 0
        if len(levels) < 2 or of <= self.cut.level:
            return 0, 0, standing > 0
        tick = QueueTick(
            standing,
            seen,
            round(ring.polled),
            round(ring.passed),
            self.cut != Cut(),
            cut_reach(self.cut, levels),
            cut_most(levels[:-1]),
            TICK_US,
            self.trial.asking_us > 0,
        )
        harm = min(queue_step(self.known, tick) * BEARABLE // STOOD_BEARABLE, ONE)
        if harm <= BEARABLE or (self.cut == Cut() and not stood_long(self.stood_us)):
            return 0, 0, standing > 0
        return harm, of, standing > 0

    def worst(self, levels: list[int], now_us: float) -> tuple[int, int, int]:
        share, of, standing = self.harm(levels, now_us)
        self.ring.tick()
        return share, of, 0 if standing else self.idle


class RingAloneCpu(RingCpu):
    """Receivers run on other CPUs, in what time they need. Softirqs have all of this one's."""

    softirqs = 1.0

    def read(self, left: float, sample: Sample) -> float:
        for who, socket in enumerate(self.sockets):
            sample.read[who] += socket.waiting
            socket.waiting = 0
        return left / (self.capacity * STEP_US / SECOND)
