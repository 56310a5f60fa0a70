# SPDX-License-Identifier: GPL-2.0-only
"""What the kernel's tracepoints tell: where packets are dropped, and how devices are polled."""

import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TRACING = Path("/sys/kernel/tracing")
DROP = TRACING / "events/skb/kfree_skb"
POLL = TRACING / "events/napi/napi_poll"
BUFFER_KB = "1408"  # for each CPU, as a kernel takes by itself when the first event is recorded
STATE = ("tracing_on", "set_event", "buffer_size_kb", "per_cpu/cpu0/stats")  # said if none is seen


def _functions() -> list[tuple[int, str]]:
    """The kernel's and the modules', in the order of their addresses."""
    found = re.findall(r"^(\w+) [tT] (\S+)", Path("/proc/kallsyms").read_text(), re.MULTILINE)
    return sorted((int(address, 16), name) for address, name in found)


def _function_at(place: str, known: list[tuple[int, str]]) -> str:
    """Of a place that the kernel shows as function+offset/size, or as mere address."""
    if "+" in place:
        return place.partition("+")[0]
    return known[bisect(known, (int(place, 16), "")) - 1][1]


def _whole_trace() -> str:
    stats = [file.read_text() for file in TRACING.glob("per_cpu/cpu*/stats")]
    assert stats and all("\noverrun: 0\n" in text for text in stats), "the trace is too small"
    return (TRACING / "trace").read_text()


@contextmanager
def _recording(event: Path) -> Iterator[None]:
    # A kernel that has resized an instance's, as packetflow-group does, may leave this as at boot.
    (TRACING / "buffer_size_kb").write_text(BUFFER_KB)
    (TRACING / "trace").write_text("")
    (event / "enable").write_text("1")
    try:
        yield
    finally:
        (event / "enable").write_text("0")


@contextmanager
def polls(device: str) -> Iterator[list[int]]:
    """How much each poll did meanwhile, filled in at the end; of a device that is polled."""
    found: list[int] = []
    with _recording(POLL):
        yield found
    line = rf"napi_poll: .* for device {device} work (\d+) "
    trace = _whole_trace()
    found += map(int, re.findall(line, trace))
    assert found, (trace[-200:], *((TRACING / name).read_text() for name in STATE))


@contextmanager
def drops_by_function(reason: str = "") -> Iterator[Counter[str]]:
    """How many buffers each function has dropped meanwhile, filled in at the end; of one reason."""
    counts: Counter[str] = Counter()
    # 6.1 does not print reasons, nor resolve places: filter by number, look up by address.
    numbers = re.findall(rf'\{{ (\w+), "{reason}" \}}', (DROP / "format").read_text())
    try:
        (TRACING / "options/hash-ptr").write_text("0")
        (DROP / "filter").write_text(f"reason == {numbers[0]}" if reason else "0")
        with _recording(DROP):
            yield counts
        trace, known = _whole_trace(), _functions()
    finally:
        (DROP / "filter").write_text("0")
        # Where it is off, 6.1 shows names of devices as empty.
        (TRACING / "options/hash-ptr").write_text("1")
    places = re.findall(r"kfree_skb: .* location=(?:0x)?(\S+)", trace)
    counts.update(_function_at(place, known) for place in places)
