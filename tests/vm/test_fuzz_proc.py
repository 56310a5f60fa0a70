# SPDX-License-Identifier: GPL-2.0-only
"""Anything written to /proc/packetflow, in any way, and anything read of it.

A write does what inside/grammar.py says, or fails and changes nothing anywhere.
"""

import ctypes
import errno
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from inside import inside, mark
from inside.grammar import KNOBS, LONGEST, Knob, texts
from inside.net import pressure, udp
from inside.suite import ALL, ROOT, metrics_parse, set_knob

MODULES = (*ALL, "pf_flow")
NAMES = list(KNOBS)
MOST = 8192  # bytes of a knob's file
SWITCHED = 0.01  # of what is written to "enable"; each takes long

# The number of bytes that were taken, or an error; and what is to be read afterwards, or None.
Outcome = tuple[int, bytes | None]
Write = Callable[[random.Random, Knob, int, bytes], tuple[Outcome, int]]


def done(write: Callable[[], int]) -> int:
    try:
        return write()
    except OSError as error:
        return -(error.errno or 0)


def outcome(knob: Knob, data: bytes) -> Outcome:
    shown = knob.shown(data)
    return (-errno.EINVAL, None) if shown is None else (len(data), shown)


def write_at(fd: int, data: bytes, offset: int = 0) -> int:
    os.lseek(fd, offset, os.SEEK_SET)
    return done(lambda: os.write(fd, data))


def at_once(_: random.Random, knob: Knob, fd: int, data: bytes) -> tuple[Outcome, int]:
    return outcome(knob, data), write_at(fd, data)


def at_offset(rng: random.Random, _: Knob, fd: int, data: bytes) -> tuple[Outcome, int]:
    offset = rng.choice((1, 2, len(data) or 1, 4095, 1 << 31, 1 << 62))
    return (-errno.EINVAL, None), write_at(fd, data, offset)


def by_pwrite(rng: random.Random, _: Knob, fd: int, data: bytes) -> tuple[Outcome, int]:
    """The kernel has none for such files."""
    return (-errno.ESPIPE, None), done(lambda: os.pwrite(fd, data, rng.choice((0, 1, 4096))))


def behind_what_was_read(rng: random.Random, _: Knob, fd: int, data: bytes) -> tuple[Outcome, int]:
    os.lseek(fd, 0, os.SEEK_SET)
    os.read(fd, rng.choice((1, 2, MOST)))
    return (-errno.EINVAL, None), done(lambda: os.write(fd, data))


def in_pieces(rng: random.Random, knob: Knob, fd: int, data: bytes) -> tuple[Outcome, int]:
    """Each piece is a write; only the first is at the beginning."""
    cut = rng.randint(1, max(len(data) - 1, 1))
    pieces = [piece for piece in (data[:cut], data[cut:]) if piece]
    os.lseek(fd, 0, os.SEEK_SET)
    # Of nothing the knob does not hear.
    expected = outcome(knob, data[:cut]) if pieces else (0, None)
    return expected, done(lambda: os.writev(fd, pieces))


def from_nowhere(rng: random.Random, _: Knob, fd: int, __: bytes) -> tuple[Outcome, int]:
    libc = ctypes.CDLL(None, use_errno=True)
    size = rng.choice((0, 1, 7, LONGEST, LONGEST + 2, 1 << 40))
    os.lseek(fd, 0, os.SEEK_SET)
    wrote = libc.write(fd, ctypes.c_void_p(8), ctypes.c_size_t(size))
    expected = errno.EFAULT if 0 < size <= LONGEST else errno.EINVAL
    return (-expected, None), wrote if wrote >= 0 else -ctypes.get_errno()


# As often as they stand here.
WRITES: list[Write] = [at_once] * 12 + [
    at_offset,
    by_pwrite,
    behind_what_was_read,
    in_pieces,
    in_pieces,
    from_nowhere,
]


@contextmanager
def all_knobs() -> Iterator[dict[str, int]]:
    """All of them open; they get their values back."""
    files = {name: os.open(ROOT / name, os.O_RDWR) for name in NAMES}
    before = {name: os.pread(fd, MOST, 0) for name, fd in files.items()}
    try:
        yield files
    finally:
        for name, fd in files.items():
            assert write_at(fd, before[name]) == len(before[name])
            os.close(fd)


def read_all(files: dict[str, int]) -> dict[str, bytes]:
    return {name: os.pread(fd, MOST, 0) for name, fd in files.items()}


@mark.timeout(3600)
@inside(timeout=3000, modules=MODULES)
def test_what_is_written_is_taken_whole_or_not_at_all(inputs: int, seed: int) -> None:
    rng = random.Random(seed)
    taken = 0
    with all_knobs() as files:
        state = read_all(files)
        for _ in range(inputs):
            name = rng.choice(NAMES)
            knob, fd = KNOBS[name], files[name]
            data = texts(rng, knob, list(KNOBS.values()))
            if name == "enable" and knob.shown(data) and rng.random() > SWITCHED:
                data += b"x"
            (expected, shown), got = rng.choice(WRITES)(rng, knob, fd, data)
            state |= {name: shown} if shown else {}
            now = read_all(files)
            assert (got, now) == (expected, state), (name, data)
            if shown:
                taken += 1
                # What is read can be written, and is the same then.
                assert write_at(fd, shown) == len(shown), (name, data)
                assert os.pread(fd, MOST, 0) == shown, (name, data)
    assert taken > inputs // 10
    metrics_parse()


@mark.cpus(1, 4)
@mark.timeout(3600)
@inside(timeout=3000, modules=MODULES, pinned=False)
def test_writers_at_once(inputs: int, seed: int) -> None:
    """Whatever is read meanwhile somebody wrote, whole."""
    names = [name for name in NAMES if name != "enable"]

    def write(rng: random.Random, files: dict[str, int]) -> None:
        while True:
            name = rng.choice(names)
            write_at(files[name], texts(rng, KNOBS[name], [KNOBS[name]]))

    with all_knobs() as files:
        children = []
        for number in range(4):
            child = os.fork()
            if not child:
                write(random.Random(seed + number), files)
            children.append(child)
        try:
            for _ in range(inputs // len(names)):
                for name in names:
                    shown = os.pread(files[name], MOST, 0)
                    assert KNOBS[name].shown(shown) == shown, (name, shown)
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
    metrics_parse()


@mark.timeout(3600)
@inside(timeout=3000, modules=MODULES)
def test_what_is_read_anywhere_is_a_part_of_the_whole(inputs: int, seed: int) -> None:
    rng = random.Random(seed)
    kept = [udp() for _ in range(100)]
    names = [*NAMES, "status", "metrics", "sockets"]
    files = {name: os.open(ROOT / name, os.O_RDONLY) for name in names}

    def anywhere(end: int) -> tuple[int, int]:
        offset = rng.choice((0, 1, rng.randint(0, end), end, end + 1, 4096, 1 << 40))
        return rng.choice((1, 2, 7, 100, 4095, 4097, 1 << 20)), offset

    def read(name: str, whole: bytes, still: bool) -> None:
        size, offset = anywhere(len(whole))
        fd = files[name]
        got = os.pread(fd, size, offset)
        if rng.random() < 0.5:
            assert os.lseek(fd, offset, os.SEEK_SET) == offset
            again = os.read(fd, size)
            assert not still or again == got
        # As many as there are, or fewer: a file of several records may stop at any of them.
        assert not still or (whole[offset:].startswith(got) and bool(got) == (offset < len(whole)))

    # Full of sockets and under pressure there is something to read, and it changes all the time.
    with pressure() as full:
        wholes = {name: (ROOT / name).read_bytes() for name in names}
        assert wholes["sockets"].count(b"\n") > len(kept)
        for number in range(inputs // 2):
            if number % 100 == 0:
                full.again()
            name = rng.choice(names)
            read(name, wholes[name], name in KNOBS)
    set_knob("enable", 0)
    try:
        wholes = {name: (ROOT / name).read_bytes() for name in names}
        for fd in files.values():
            os.pread(fd, 1, 0)  # one that goes on where it stopped has the rest of what it read
        for _ in range(inputs // 2):
            name = rng.choice(names)
            read(name, wholes[name], True)
    finally:
        set_knob("enable", 1)
    for name, fd in files.items():
        assert done(partial(os.lseek, fd, -1, os.SEEK_SET)) == -errno.EINVAL, name
        assert done(partial(os.write, fd, b"1")) == -errno.EBADF, name
        os.close(fd)
    metrics_parse()
