# SPDX-License-Identifier: GPL-2.0-only
"""The modules' policy, compiled unchanged into a shared library for Python."""

import ctypes
import functools
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

# Elsewhere when it is to be seen that these tests can fail: see tests/mutate.
REPO = Path(os.environ.get("PACKETFLOW_POLICY", Path(__file__).resolve().parents[2]))
SOURCES = (
    "common/policy/places.c",
    "common/policy/policy.c",
    "common/policy/trial.c",
    "pf_filter/policy.c",
    "pf_sched/policy.c",
    "pf_mm/policy.c",
    "pf_flow/policy.c",
    "pf_flow/choice.c",
    "pf_flow/eevdf.c",
    "pf_flow/byrank.c",
)

ONE = 65536
IDLE, NICE, RT, DEADLINE = range(4)
RANKS = 141
LEVELS = 2 * RANKS
ELECT_MOST = 16
BUDGET_US = 100_000
# What becomes of a packet that is looked at: enum filter_outcome.
OUTCOMES = ["overload", "harm", "full", "judged", "exempt", "other_protocol", "not_host"]
OUTCOMES += ["forwarded", "not_plain", "no_receiver", "kernel_socket", "untracked", "traced"]
OUTCOMES += ["before"]
SIZE_MOST = 1 << 28


class Cut(NamedTuple):
    level: int = 0
    share: int = 0


class _Cut(ctypes.Structure):
    _fields_ = (("level", ctypes.c_uint16), ("share", ctypes.c_uint16))


class Losses(ctypes.Structure):
    """What a receiver was sent and lost lately: struct pflow_losses."""

    arrived: int
    lost: int
    _fields_ = tuple((name, ctypes.c_uint32) for name in ("arrived", "lost"))


class Unshed(ctypes.Structure):
    """What those who are shed are sent, and what they cost: struct pflow_unshed."""

    sent: int
    passed: int
    cost_us: int
    elapsed_us: int
    _fields_ = tuple(
        (name, ctypes.c_uint32) for name in ("sent", "passed", "cost_us", "elapsed_us")
    )


class _UnshedTick(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32) for name in ("sent", "passed", "share", "elapsed_us"))


class Queue(ctypes.Structure):
    """What shedding has made of a receive queue that stands: struct pflow_queue."""

    packet_ns: int
    unshed_ns: int
    most_ns: int
    less_ns: int
    less_us: int
    doubted: bool
    served: int
    served_most: int
    _fields_ = (
        ("packet_ns", ctypes.c_uint32),
        ("unshed_ns", ctypes.c_uint32),
        ("most_ns", ctypes.c_uint32),
        ("less_ns", ctypes.c_uint32),
        ("less_us", ctypes.c_uint32),
        ("doubted", ctypes.c_bool),
        ("served", ctypes.c_uint32),
        ("served_most", ctypes.c_uint32),
    )


class QueueTick(ctypes.Structure):
    """What one interval saw of it: struct pflow_queue_tick."""

    standing: int
    seen: int
    polled: int
    passed: int
    shedding: bool
    reach: int
    most: int
    elapsed_us: int
    asking: bool
    _fields_ = (
        ("standing", ctypes.c_uint32),
        ("seen", ctypes.c_uint32),
        ("polled", ctypes.c_uint32),
        ("passed", ctypes.c_uint32),
        ("shedding", ctypes.c_bool),
        ("reach", ctypes.c_uint32),
        ("most", ctypes.c_uint32),
        ("elapsed_us", ctypes.c_uint32),
        ("asking", ctypes.c_bool),
    )


class Service(ctypes.Structure):
    """What a receiver gets: struct pflow_service."""

    lost: int
    share: int
    _fields_ = tuple((name, ctypes.c_uint32) for name in ("lost", "share"))


class Trial(ctypes.Structure):
    """A measure on trial: struct pflow_trial."""

    reach: int
    enough: int
    limit: int
    limit_us: int
    backoff_us: int
    hold_us: int
    calm_us: int
    futile_us: int
    ask_us: int
    asking_us: int
    unseen: int
    worst: int
    asked_anew: bool
    _fields_ = (
        *(
            (name, ctypes.c_uint32)
            for name in (
                "reach",
                "enough",
                "limit",
                "limit_us",
                "backoff_us",
                "hold_us",
                "calm_us",
                "futile_us",
                "ask_us",
                "asking_us",
                "with",
                "level",
                "unseen",
                "worst",
            )
        ),
        ("asked_anew", ctypes.c_bool),
    )

    def copy(self) -> "Trial":
        return Trial.from_buffer_copy(self)


class Tick(ctypes.Structure):
    """What one interval saw: struct pflow_trial_tick."""

    harm: int
    bearable: int
    spare: int
    most: int
    elapsed_us: int
    level: int
    unbounded: bool
    _fields_ = (
        ("harm", ctypes.c_uint32),
        ("bearable", ctypes.c_uint32),
        ("spare", ctypes.c_uint32),
        ("most", ctypes.c_uint32),
        ("elapsed_us", ctypes.c_uint32),
        ("level", ctypes.c_uint32),
        ("unbounded", ctypes.c_bool),
    )


@functools.cache
def library() -> ctypes.CDLL:
    """Built with the undefined behaviour sanitizer, which ends the tests if it finds any."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "policy.so"
        command = ["gcc", "-O1", "-g", "-Wall", "-Wextra", "-shared", "-fPIC"]
        # A test must notice a mutant, not the compiler that something in it is unused.
        command += [] if "PACKETFLOW_POLICY" in os.environ else ["-Werror"]
        command += ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
        command += ["-I", str(Path(__file__).parent / "include"), "-o", str(out)]
        command += ["-I", str(REPO), str(Path(__file__).parent / "inlined.c")]
        subprocess.run([*command, *(str(REPO / source) for source in SOURCES)], check=True)
        built = ctypes.CDLL(str(out))
    built.pflow_rank.restype = ctypes.c_uint8
    built.slot_hash.restype = ctypes.c_uint64
    built.level.restype = ctypes.c_uint16
    for name in ("pflow_rate_update", "cut_share", "pflow_keep", "pflow_floor", "pflow_cut_reach"):
        getattr(built, name).restype = ctypes.c_uint32
    for name in ("cut_most", "stood_step", "queue_step", "queue_lost_step", "losses_step", "slept"):
        getattr(built, f"pflow_{name}").restype = ctypes.c_uint32
    built.pflow_unshed_step.restype = ctypes.c_uint32
    built.pflow_crowd_note.restype = ctypes.c_uint32
    built.within.restype = built.ahead.restype = ctypes.c_bool
    for name in ("stood_long", "worth", "fills", "kept_from_running", "looked_in_vain"):
        getattr(built, f"pflow_{name}").restype = ctypes.c_bool
    built.pflow_cut_at.restype = _Cut
    for name in ("pflow_trial_step", "pflow_trial_pause", "pflow_service_step"):
        getattr(built, name).restype = None
    for name in ("pflow_elect_most", "pflow_boost_levels", "pflow_place"):
        getattr(built, name).restype = ctypes.c_uint
    built.pflow_service_harm.restype = ctypes.c_uint32
    built.pflow_budget_step.restype = ctypes.c_int32
    for name in ("most", "in_time", "threshold", "grown", "shrunk", "unused"):
        getattr(built, f"pflow_size_{name}").restype = ctypes.c_uint32
    for name in ("pflow_mean_fast", "pflow_mean_slow"):
        getattr(built, name).restype = ctypes.c_uint32
    return built


def rank(kind: int, nice: int = 0, rt_priority: int = 0) -> int:
    return int(library().pflow_rank(kind, nice, rt_priority))


def group_counts(nice: int, trusted: bool) -> int:
    return int(library().pflow_group_counts(nice, ctypes.c_bool(trusted)))


def rank_prio(of: int) -> int:
    return int(library().pflow_rank_prio(ctypes.c_uint8(of)))


def level(of: int, elected: bool = False) -> int:
    return int(library().level(ctypes.c_uint8(of), ctypes.c_bool(elected)))


def within(now: int, at: int, how_long: int) -> bool:
    return bool(library().within(*_words(now, at, how_long)))


def ahead(now: int, until: int, most: int) -> bool:
    return bool(library().ahead(*_words(now, until, most)))


def rate_update(rate: int, packets: int, elapsed_us: int) -> int:
    words = (ctypes.c_uint32(word) for word in (rate, packets, elapsed_us))
    return int(library().pflow_rate_update(*words))


def trial_step(trial: Trial, tick: Tick) -> None:
    """Move the trial itself."""
    library().pflow_trial_step(ctypes.byref(trial), ctypes.byref(tick))


def trial_pause(trial: Trial, pause_us: int) -> None:
    """Move the trial itself."""
    library().pflow_trial_pause(ctypes.byref(trial), *_words(pause_us))


def _levels(levels: Sequence[int]) -> tuple[ctypes.Array[ctypes.c_uint16], ctypes.c_uint]:
    return (ctypes.c_uint16 * max(len(levels), 1))(*levels), ctypes.c_uint(len(levels))


def cut_reach(cut: Cut, levels: Sequence[int]) -> int:
    return int(library().pflow_cut_reach(_Cut(*cut), *_levels(levels)))


def cut_at(reach: int, levels: Sequence[int]) -> Cut:
    cut = library().pflow_cut_at(ctypes.c_uint32(reach), *_levels(levels))
    return Cut(cut.level, cut.share)


def cut_most(levels: Sequence[int]) -> int:
    return int(library().pflow_cut_most(*_levels(levels)))


def most_of(ranks: int) -> int:
    """How far a cut may reach over so many ranks."""
    return cut_most([2 * rank for rank in range(ranks)])


def slot_hash(key: Sequence[int], words: Sequence[int]) -> int:
    count = len(words)
    numbers = ctypes.c_uint64 * count
    return int(library().slot_hash(numbers(*key[:count]), numbers(*words), count))


def cut_share(cut: Cut, of: int) -> int:
    return int(library().cut_share(_Cut(*cut), ctypes.c_uint16(of)))


def stood_step(stood_us: int, stands: bool, elapsed_us: int) -> int:
    words = ctypes.c_bool(stands), ctypes.c_uint32(elapsed_us)
    return int(library().pflow_stood_step(ctypes.c_uint32(stood_us), *words))


def stood_long(stood_us: int) -> bool:
    return bool(library().pflow_stood_long(ctypes.c_uint32(stood_us)))


def looked_in_vain(outcome: str) -> bool:
    return bool(library().pflow_looked_in_vain(ctypes.c_int(OUTCOMES.index(outcome))))


def worth(dropped: int, passed: int) -> bool:
    return bool(library().pflow_worth(ctypes.c_uint64(dropped), ctypes.c_uint64(passed)))


def keep(share: int, rate: int, top_rate: int, floor: int, sockets: int = 1) -> int:
    words = (ctypes.c_uint32(word) for word in (share, rate, top_rate, floor, sockets))
    return int(library().pflow_keep(*words))


class Crowd(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint32) for name in ("window", "now_ms", "before_ms", "sockets")
    )

    def note(self, now_ms: int, lasted_ms: int) -> int:
        words = _words(now_ms, lasted_ms)
        return int(library().pflow_crowd_note(ctypes.byref(self), *words))


def floor_of(floor: int, percent: int, weight: int, weights: int, packet_ns: int) -> int:
    words = (ctypes.c_uint32(word) for word in (floor, percent, weight, weights, packet_ns))
    return int(library().pflow_floor(*words))


def queue_step(queue: Queue, tick: QueueTick) -> int:
    """Move what is known of it itself; the harm."""
    return int(library().pflow_queue_step(ctypes.byref(queue), ctypes.byref(tick)))


def losses_step(losses: Losses, arrived: int, lost: int, rate: int, elapsed_us: int) -> int:
    """Move what is counted itself; the share that is lost."""
    words = _words(arrived, lost, rate, elapsed_us)
    return int(library().pflow_losses_step(ctypes.byref(losses), *words))


def queue_lost_step(losses: Losses, lost: int, polled: int, elapsed_us: int) -> int:
    """Move what is counted itself; the share that was lost lately."""
    words = _words(lost, polled, elapsed_us)
    return int(library().pflow_queue_lost_step(ctypes.byref(losses), *words))


def unshed_step(unshed: Unshed, sent: int, passed: int, share: int, elapsed_us: int) -> int:
    """Move what is known of it itself; the share of time that all of their packets would take."""
    tick = _UnshedTick(sent, passed, share, elapsed_us)
    return int(library().pflow_unshed_step(ctypes.byref(unshed), ctypes.byref(tick)))


def kept_from_running(awake: int, wait: int) -> bool:
    return bool(library().pflow_kept_from_running(*_words(awake, wait)))


def slept(wait: int, run: int) -> int:
    return int(library().pflow_slept(*_words(wait, run)))


def fills(waiting: int, size: int, threshold: int) -> bool:
    words = (ctypes.c_uint32(word) for word in (waiting, size))
    return bool(library().pflow_fills(*words, ctypes.c_uint(threshold)))


def elect_most(most: int, refused: bool, exhausted: bool, cpus: int) -> int:
    flags = ctypes.c_bool(refused), ctypes.c_bool(exhausted)
    return int(library().pflow_elect_most(ctypes.c_uint(most), *flags, ctypes.c_uint(cpus)))


def boost_levels(levels: int, place: int, elected: int) -> int:
    return int(library().pflow_boost_levels(*map(ctypes.c_uint, (levels, place, elected))))


def gives_way(ranks: Sequence[int], users: Sequence[int], rank: int, user: int) -> int:
    arrays = (
        (ctypes.c_uint16 * max(len(ranks), 1))(*ranks),
        (ctypes.c_uint32 * max(len(users), 1))(*users),
    )
    words = ctypes.c_uint(len(ranks)), ctypes.c_uint16(rank), ctypes.c_uint32(user)
    return int(library().pflow_gives_way(*arrays, *words))


def place(ranks: Sequence[int], rank: int) -> int:
    array = (ctypes.c_uint16 * max(len(ranks), 1))(*ranks)
    words = ctypes.c_uint(len(ranks)), ctypes.c_uint8(rank)
    return int(library().pflow_place(array, *words))


def budget_step(budget_us: int, used_us: int, elapsed_us: int, cap: int) -> int:
    words = ctypes.c_uint32(used_us), ctypes.c_uint32(elapsed_us), ctypes.c_uint(cap)
    return int(library().pflow_budget_step(ctypes.c_int32(budget_us), *words))


def service_step(service: Service, lost: int, took_us: int, elapsed_us: int) -> None:
    """Move what is known of it itself."""
    words = ctypes.c_uint32(lost), ctypes.c_uint64(took_us), ctypes.c_uint32(elapsed_us)
    library().pflow_service_step(ctypes.byref(service), *words)


def service_harm(service: Service, stream: bool, wait: int) -> int:
    words = ctypes.c_bool(stream), ctypes.c_uint32(wait)
    return int(library().pflow_service_harm(ctypes.byref(service), *words))


def _words(*values: int) -> tuple[ctypes.c_uint32, ...]:
    return tuple(ctypes.c_uint32(value) for value in values)


def size_most(default_size: int, scale: int, rank: int) -> int:
    return int(library().pflow_size_most(*_words(default_size, scale), ctypes.c_uint8(rank)))


def size_in_time(most: int, drain: int, max_delay: int) -> int:
    return int(library().pflow_size_in_time(*_words(most, drain, max_delay)))


def size_threshold(size: int, rate: int, relief_us: int) -> int:
    return int(library().pflow_size_threshold(*_words(size, rate, relief_us)))


def size_grown(size: int, most: int, rate: int, relief_us: int) -> int:
    return int(library().pflow_size_grown(*_words(size, most, rate, relief_us)))


def size_shrunk(size: int, own: int, used: int) -> int:
    return int(library().pflow_size_shrunk(*_words(size, own, used)))


def size_unused(size: int, own: int, used: int) -> int:
    return int(library().pflow_size_unused(*_words(size, own, used)))


def mean_fast(mean: int, sample: int) -> int:
    return int(library().pflow_mean_fast(*_words(mean, sample)))


def mean_slow(mean: int, sample: int) -> int:
    return int(library().pflow_mean_slow(*_words(mean, sample)))
