# SPDX-License-Identifier: GPL-2.0-only
"""The policy of pf_flow for Python: buckets, lengths, and the choice among flows."""

import ctypes
import functools
from collections.abc import Iterator

from unit.policy import library

RATE_MOST = 10**12
BURST_MOST = 1 << 30
WEIGHT_MOST = 1000
LENGTH_MOST = 1 << 19  # of a super-packet
NEVER = 2**64 - 1
ELIGIBLE, AHEAD, ASLEEP, NOWHERE = range(4)

u32, u64, s64 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64


class _Bucket(ctypes.Structure):
    tokens: int
    depth: int
    _fields_ = (("rate", u64), ("depth", u64), ("most_ns", u64), ("tokens", s64), ("at", u64))


class Entity(ctypes.Structure):
    """A flow, as far as the choice knows it: struct pflow_entity."""

    start: int
    lag: int
    at: int
    weight: int
    length: int
    where: int
    rank: int
    competes: bool
    _fields_ = (
        ("start", u64),
        ("deadline", u64),
        ("lag", s64),
        ("at", u64),
        ("weight", u32),
        ("length", u32),
        ("place", u32),
        ("where", ctypes.c_uint8),
        ("rank", ctypes.c_uint8),
        ("competes", ctypes.c_bool),
    )


class _Heap(ctypes.Structure):
    _fields_ = (("at", ctypes.POINTER(ctypes.POINTER(Entity))), ("number", u32))


class _Choice(ctypes.Structure):
    _fields_ = (
        ("heaps", _Heap * 3),
        ("base", u64),
        ("sum", s64),
        ("weights", u64),
        ("turn", u64),
        ("scheduler", ctypes.c_void_p),
    )


@functools.cache
def _built() -> ctypes.CDLL:
    built = library()
    bucket, choice, entity = (ctypes.POINTER(kind) for kind in (_Bucket, _Choice, Entity))
    signatures: dict[str, tuple[object, ...]] = {
        "bucket_set": (None, bucket, u64, u32, u64),
        "bucket_fill": (None, bucket, u64),
        "bucket_wait": (u64, bucket, u32),
        "bucket_spend": (None, bucket, u32),
        "bucket_holds": (ctypes.c_bool, bucket, u32),
        "bucket_slow": (ctypes.c_bool, bucket, u32),
        "bucket_batch": (u64, bucket, u64, u64),
        "burst_bytes": (u32, u64, u32),
        "peak_bytes": (u32, u64, u32),
        "queue_bytes": (u32, u64),
        "queue_packets": (u32, u32),
        "choice_time": (u64, choice),
        "choice_join": (None, choice, entity, u32),
        "choice_sleep": (None, choice, entity, u32, u64),
        "choice_leave": (None, choice, entity),
        "choice_wake": (None, choice, u64),
        "choice_pick": (entity, choice),
        "choice_served": (None, choice, entity, u32),
        "choice_again": (None, choice, entity, u32),
        "choice_reweigh": (None, choice, entity, u32),
        "choice_next": (u64, choice),
        "choice_switch": (None, choice, ctypes.c_void_p, u64),
    }
    inlined = ("bucket_fill", "bucket_wait", "bucket_spend", "bucket_holds", "bucket_slow")
    for name, (result, *arguments) in signatures.items():
        function = getattr(built, name if name in inlined else f"pflow_{name}")
        function.restype, function.argtypes = result, arguments
    return built


class Bucket:
    """Tokens of one rate; full at first."""

    def __init__(self, rate: int, burst: int, now: int = 0) -> None:
        self._raw = _Bucket()
        self.set(rate, burst, now)

    def set(self, rate: int, burst: int, now: int) -> None:
        _built().pflow_bucket_set(self._raw, rate, burst, now)

    def wait(self, size: int, now: int) -> int:
        _built().bucket_fill(self._raw, now)
        return int(_built().bucket_wait(self._raw, size))

    def batch(self, wait: int, waited: int) -> int:
        return int(_built().pflow_bucket_batch(self._raw, wait, waited))

    def spend(self, size: int) -> None:
        _built().bucket_spend(self._raw, size)

    def holds(self, size: int) -> bool:
        return bool(_built().bucket_holds(self._raw, size))

    def slow(self, size: int) -> bool:
        return bool(_built().bucket_slow(self._raw, size))

    def take(self, size: int, now: int) -> bool:
        """Let a packet go if it may."""
        if self.wait(size, now):
            return False
        self.spend(size)
        return True

    @property
    def tokens(self) -> int:
        return self._raw.tokens


def burst_bytes(rate: int, longest: int = 0) -> int:
    return int(_built().pflow_burst_bytes(rate, longest))


def peak_bytes(rate: int, longest: int = 0) -> int:
    return int(_built().pflow_peak_bytes(rate, longest))


def queue_bytes(rate: int) -> int:
    return int(_built().pflow_queue_bytes(rate))


def queue_packets(size: int) -> int:
    return int(_built().pflow_queue_packets(size))


def _scheduler(name: str) -> int:
    return ctypes.addressof(ctypes.c_char.in_dll(_built(), f"pflow_{name}"))


class Choice:
    """Some flows, and who of them is next."""

    def __init__(self, weights: list[int], base: int = 0, scheduler: str = "eevdf") -> None:
        self.entities = [Entity(weight=weight, where=NOWHERE) for weight in weights]
        room = ctypes.POINTER(Entity) * max(len(weights), 1)
        self._rooms = [room() for _ in range(3)]
        self._raw = _Choice(base=base, scheduler=_scheduler(scheduler))
        for heap, places in zip(self._raw.heaps, self._rooms, strict=True):
            heap.at = places
        self._numbers = {ctypes.addressof(one): n for n, one in enumerate(self.entities)}

    def time(self) -> int:
        return int(_built().pflow_choice_time(self._raw))

    def join(self, who: int, length: int) -> None:
        _built().pflow_choice_join(self._raw, self.entities[who], length)

    def sleep(self, who: int, length: int, at: int) -> None:
        _built().pflow_choice_sleep(self._raw, self.entities[who], length, at)

    def leave(self, who: int) -> None:
        _built().pflow_choice_leave(self._raw, self.entities[who])

    def wake(self, now: int) -> None:
        _built().pflow_choice_wake(self._raw, now)

    def pick(self) -> int | None:
        found = _built().pflow_choice_pick(self._raw)
        return self._numbers[ctypes.addressof(found.contents)] if found else None

    def served(self, who: int, length: int) -> None:
        _built().pflow_choice_served(self._raw, self.entities[who], length)

    def again(self, who: int, length: int) -> None:
        _built().pflow_choice_again(self._raw, self.entities[who], length)

    def reweigh(self, who: int, weight: int) -> None:
        _built().pflow_choice_reweigh(self._raw, self.entities[who], weight)

    def switch(self, scheduler: str, now: int) -> None:
        _built().pflow_choice_switch(self._raw, _scheduler(scheduler), now)

    def next(self) -> int:
        return int(_built().pflow_choice_next(self._raw))

    def where(self, kind: int) -> Iterator[int]:
        return (n for n, one in enumerate(self.entities) if one.where == kind)

    def sound(self) -> None:
        """What must hold between two calls: the sums, and who is where."""
        competing = [one for one in self.entities if one.competes]
        raw = self._raw
        assert raw.weights == sum(one.weight for one in competing)
        assert raw.sum == sum(_signed(one.start - raw.base) * one.weight for one in competing)
        for kind, heap in enumerate(raw.heaps):
            held = {
                self._numbers[ctypes.addressof(heap.at[i].contents)] for i in range(heap.number)
            }
            assert held == set(self.where(kind))
            assert all(self.entities[n].competes == (kind != ASLEEP) for n in held)


def _signed(word: int) -> int:
    word %= 2**64
    return word - 2**64 if word >= 2**63 else word
