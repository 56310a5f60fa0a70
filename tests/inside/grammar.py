# SPDX-License-Identifier: GPL-2.0-only
"""What each knob takes, said once more, and texts that are nearly that.

The parsers here are written from docs/knobs.md, not from the modules; a text that the two
judge differently is a defect of one of them.
"""

import re
from collections.abc import Sequence
from random import Random

LONGEST = 1024
SPACE = b" \t\n\v\f\r\xa0"  # as the kernel has it
PORTS = 65536

# What no knob takes, and what no number is.
BAD = ["\n", " ", "\0", "\n\n", "x", "-1", "1.0", "0x1", "+1", "1e3", "\u0661"]
BAD_NUMBER = ["01x", "1 ", " 1", "1\n\n", "1\n1\n", "1\0", "1\0\0", "99999999999", "9" * 30]


def never_taken(good: str) -> list[str]:
    """By no knob that takes this value, names of programs apart."""
    return [*BAD, good + "\n\n", good + "\r\n", good + " ", "1" * 5000]


class Knob:
    """One knob: what a text without its newline means, and texts to try."""

    def parse(self, text: bytes) -> bytes | None:
        """As it is shown, or None where it must be refused."""
        raise NotImplementedError

    def good(self, random: Random) -> bytes:
        """A text that it should take, mostly."""
        raise NotImplementedError

    def shown(self, data: bytes) -> bytes | None:
        """What is read after this was written at once, or None if it must be refused."""
        text = data.removesuffix(b"\n")
        if not data or len(text) > LONGEST or b"\0" in data or b"\n" in text:
            return None
        value = self.parse(text)
        return None if value is None else value + b"\n"


class Number(Knob):
    def __init__(self, least: int, most: int) -> None:
        self._least, self._most = least, most

    def parse(self, text: bytes) -> bytes | None:
        if not re.fullmatch(rb"[0-9]+", text) or not self._least <= int(text) <= self._most:
            return None
        return b"%d" % int(text)

    def good(self, random: Random) -> bytes:
        edges = (self._least, self._most, random.choice((0, 1 << 31, 1 << 32, 1 << 64)))
        value = max(random.choice(edges) + random.randint(-1, 1), 0)
        return b"%d" % random.choice((value, random.randint(self._least, self._most)))


class Choice(Knob):
    def __init__(self, *words: bytes) -> None:
        self._words = words

    def parse(self, text: bytes) -> bytes | None:
        return text if text in self._words else None

    def good(self, random: Random) -> bytes:
        return random.choice(self._words)


class Budget(Number):
    def parse(self, text: bytes) -> bytes | None:
        return text if text == b"auto" else super().parse(text)

    def good(self, random: Random) -> bytes:
        return b"auto" if random.random() < 0.2 else super().good(random)


class Ports(Knob):
    def __init__(self, remote: bool) -> None:
        self._prefixes = (b"", b"from:") if remote else (b"",)

    def parse(self, text: bytes) -> bytes | None:
        found: dict[bytes, set[int]] = {prefix: set() for prefix in self._prefixes}
        for item in text.split(b",") if text != b"none" else ():
            prefix = b"from:" if item.startswith(b"from:") else b""
            ends = re.fullmatch(rb"([0-9]+)(?:-([0-9]+))?", item[len(prefix) :])
            if not ends or prefix not in found:
                return None
            first, last = int(ends[1]), int(ends[2] or ends[1])
            if not 0 < first <= last < PORTS:
                return None
            found[prefix].update(range(first, last + 1))
        return b",".join(run for p in self._prefixes for run in _runs(p, found[p])) or b"none"

    def good(self, random: Random) -> bytes:
        if random.random() < 0.05:
            return b"none"
        items = []
        for _ in range(random.choice((1, 1, 2, 3, 10, 200))):
            first = random.choice((1, 2, 9, 99, PORTS - 2, PORTS - 1, random.randrange(1, PORTS)))
            last = min(first + random.choice((0, 0, 1, 2, 9)), PORTS - 1)
            item = b"%d-%d" % (first, last) if random.random() < 0.5 else b"%d" % first
            items.append(random.choice(self._prefixes) + item)
        return b",".join(items)


def _runs(prefix: bytes, ports: set[int]) -> list[bytes]:
    found, ordered = [], sorted(ports)
    starts = [p for p in ordered if p - 1 not in ports]
    ends = [p for p in ordered if p + 1 not in ports]
    for first, last in zip(starts, ends, strict=True):
        found.append(prefix + (b"%d" % first if first == last else b"%d-%d" % (first, last)))
    return found


class Names(Knob):
    MOST, LENGTH = 32, 15

    def parse(self, text: bytes) -> bytes | None:
        if text == b"none":
            return text
        names = [name.strip(SPACE) for name in text.split(b",")]
        if len(names) > self.MOST or b"none" in names:
            return None
        return b",".join(names) if all(0 < len(n) <= self.LENGTH for n in names) else None

    def good(self, random: Random) -> bytes:
        sizes = (1, 4, self.LENGTH, self.LENGTH + 1)
        names = [
            bytes(random.choice(b"abc/:- \xc3\xa4\xff") for _ in range(random.choice(sizes)))
            for _ in range(random.choice((1, 2, 3, self.MOST, self.MOST + 1)))
        ]
        return b"none" if random.random() < 0.05 else b",".join(names)


MODE = Choice(b"enforce", b"observe")
KNOBS: dict[str, Knob] = {
    "enable": Number(0, 1),
    "max_sockets": Number(64, 4194304),
    "batch_us": Number(0, 1000),
    "rank_depth": Number(0, 8),
    "filter/mode": MODE,
    "filter/shed": Choice(b"rank", b"full"),
    "filter/floor": Number(0, 1000000),
    "filter/floor_share": Number(0, 100),
    "filter/exempt": Ports(remote=True),
    "sched/mode": MODE,
    "sched/lever": Choice(b"auto", b"nice", b"group", b"deadline", b"rr"),
    "sched/elect": Number(0, 16),
    "sched/threshold": Number(1, 100),
    "sched/levels": Number(1, 39),
    "sched/hold": Number(10, 10000),
    "sched/apart": Number(0, 10000),
    "sched/cap": Number(1, 95),
    "sched/escape": Number(0, 1),
    "sched/exempt": Names(),
    "mm/mode": MODE,
    "mm/default_size": Number(4, 262144),
    "mm/scale": Number(10, 10000),
    "mm/budget": Budget(0, 1073741824),
    "mm/burst": Number(0, 60000),
    "mm/max_delay": Number(0, 60000),
    "mm/override_locked": Number(0, 1),
    "mm/exempt": Ports(remote=False),
    "flow/memory": Number(1, 1024),
    "flow/exempt": Ports(remote=False),
    "flow/scheduler": Choice(b"eevdf", b"rank"),
    "flow/server": Choice(b"softirq", b"thread"),
}

INTERESTING = (
    *(b"\0", b"\n", b"\n\n", b"\r\n", b" ", b"\t", b"\v", b"\xa0", b",", b"-", b"+", b"0", b"0x"),
    *(b"from:", b"none", b"auto", b"\xff", b"\xd9\xa1", b"%s%n", b"4294967296", b"1e3", b"\x1b["),
)


def _changed(random: Random, text: bytes) -> bytes:
    """A text with one thing done to it."""
    at = random.randint(0, len(text))
    end = random.randint(at, min(len(text), at + 8))
    what = random.randrange(7)
    if what == 0:
        return text[:at] + random.choice(INTERESTING) + text[at:]
    if what == 1:
        return text[:at] + text[end:]
    if what == 2:
        return text[:at] + bytes([random.randrange(256)]) + text[at + 1 :]
    if what == 3:
        return text[:end] + text[at:]
    if what == 4:
        return text.upper() if random.random() < 0.5 else b"00" + text
    if what == 5:
        return random.choice(INTERESTING) + text
    # Of about the greatest length, or far beyond it.
    size = random.choice((LONGEST - 1, LONGEST, LONGEST + 1, LONGEST + 2, 5000))
    return (text + random.choice((b"", b",", b" ")) * size)[:size].rjust(size, b"0")


def texts(random: Random, knob: Knob, others: Sequence[Knob]) -> bytes:
    """What to write: of its own grammar or of another's, as it is or changed."""
    of = knob if random.random() < 0.9 else random.choice(others)
    text = of.good(random)
    for _ in range(random.choice((0, 0, 0, 1, 1, 2, 3))):
        text = _changed(random, text)
    return text + random.choice((b"", b"\n"))
