# SPDX-License-Identifier: GPL-2.0-only
"""What the modules tell of themselves in /proc/packetflow."""

import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from inside import BUILD, TESTS

ROOT = Path("/proc/packetflow")
ALL = ("pf_filter", "pf_sched", "pf_mm")  # that serve sockets; pf_flow serves flows
DROPS = ("overload", "harm", "socket_full")
MANUAL = TESTS.parent / "docs" / "reading.md"

_SAMPLE = re.compile(r"^(\w+)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)


def wait_for(condition: Callable[[], object], timeout: float = 15.0) -> None:
    """Wait until the condition holds; it is an error if it never does."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not come"
        time.sleep(0.02)


def metric(name: str) -> dict[str, float]:
    """The samples of a metric by the value of their last label."""
    found = {}
    for sample, labels, value in _SAMPLE.findall((ROOT / "metrics").read_text()):
        if sample == name:
            found[labels.rsplit('="', 1)[-1].rstrip('"')] = float(value)
    return found


def metrics_parse() -> None:
    """Each line is one, and the last says so."""
    *lines, end = (ROOT / "metrics").read_text().splitlines()
    assert end == "# EOF"
    for line in lines:
        if not line.startswith("# "):
            float(line.rpartition(" ")[2])


def _counters() -> dict[str, dict[str, int]]:
    return {
        kind: {k: int(v) for k, v in metric(f"packetflow_filter_{kind}_total").items()}
        for kind in ("dropped", "observed", "passed")
    }


def looked_at() -> int:
    """Packets that came by a hook of pf_filter's."""
    return sum(count for kind in _counters().values() for count in kind.values())


_before: dict[str, dict[str, int]] = {}


def begin() -> None:
    """Let the packet counters below count from now."""
    _before.clear()
    if ROOT.exists():
        _before.update(_counters())


def _since(kind: str) -> dict[str, int]:
    before = _before.get(kind, {})
    return {k: v - before.get(k, 0) for k, v in _counters()[kind].items()}


def dropped() -> dict[str, int]:
    """Packets dropped early, by reason."""
    return _since("dropped")


def observed() -> dict[str, int]:
    """Packets that would have been dropped."""
    return _since("observed")


def passed() -> dict[str, int]:
    """Packets looked at and let through, by reason."""
    return _since("passed")


def settle() -> None:
    """Have all open sockets looked at."""
    if ROOT.exists():
        open(ROOT / "sockets").close()


def sockets() -> list[dict[str, str]]:
    """The shared table, after a scan of all open files."""
    head, *lines = (ROOT / "sockets").read_text().splitlines()
    return [dict(zip(head.split(), line.split(), strict=True)) for line in lines]


def entries(sock: socket.socket) -> list[dict[str, str]]:
    """The lines of the table for a socket's port in the current namespace."""
    kind = "tcp" if sock.type == socket.SOCK_STREAM else "udp"
    family = "6" if sock.family == socket.AF_INET6 else ""
    port = f":{sock.getsockname()[1]}"
    netns = str(os.stat("/proc/thread-self/ns/net").st_ino)
    return [
        row
        for row in sockets()
        if row["proto"] == kind + family and row["local"].endswith(port) and row["netns"] == netns
    ]


def entry(sock: socket.socket) -> dict[str, str]:
    (row,) = entries(sock)
    return row


def early(sock: socket.socket) -> int:
    """Packets dropped early for the sockets on that port."""
    columns = ("early_overload", "early_harm", "early_full")
    return sum(int(row[column]) for row in entries(sock) for column in columns)


def pressed(cpu: int) -> bool:
    return metric("packetflow_cpu_pressed")[str(cpu)] == 1


def hooked() -> bool:
    """Packets pass pf_filter's hook, if it is loaded."""
    return metric("packetflow_filter_hooked") != {"": 0.0}


def judging(cpu: int) -> bool:
    """Under pressure, and not resting from it."""
    return pressed(cpu) and metric("packetflow_cpu_resting")[str(cpu)] == 0 and hooked()


def as_nobody(name: str) -> str:
    """What a user without any privileges reads in a file of the suite."""
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    command += ["cat", str(ROOT / name)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def explained() -> list[str]:
    """What a line of status is made of, by the manual, as patterns."""
    rows = MANUAL.read_text().partition("\n## status\n")[2].partition("\n## ")[0]
    found = []
    for cell in re.findall(r"^\| (`.*?`) \|", rows, re.MULTILINE):
        for text in re.findall("`([^`]+)`", cell):
            pattern = re.sub(r"\b[A-Z]\b", r"-?\\d+", re.escape(text))
            pattern = re.sub(r"[A-Z]{2,}", ".+", pattern)
            found.append(pattern.replace(re.escape("..."), ".*"))
    return found


def unexplained(status: str) -> list[str]:
    """Lines of a status that are not made of what the manual explains."""
    line = re.compile(f"(?:(?:{'|'.join(explained())}) ?)*")
    words = (" ".join(text.split()) for text in status.splitlines())
    return [text for text in words if not line.fullmatch(text)]


def set_knob(name: str, value: object) -> None:
    (ROOT / name).write_text(str(value))


def stripped(module: str) -> Path:
    """A module of the project, small; read over the share and parsed once."""
    made = Path(f"/tmp/{module}.ko")
    if not made.exists():
        directory = "common" if module == "pf_common" else module
        built = Path(os.environ[BUILD]) / directory / made.name
        subprocess.run(["strip", "-d", "-o", made, built], check=True)
    return made


def insmod(module: str, **parameters: object) -> None:
    """Load a module of the project, in the midst of a test."""
    given = [f"{name}={value}" for name, value in parameters.items()]
    subprocess.run(["insmod", stripped(module), *given], check=True)


def rmmod(module: str) -> None:
    subprocess.run(["rmmod", module], check=True)


def is_real_time() -> bool:
    """Is this kernel made with PREEMPT_RT? Then pf_flow drops nothing early."""
    return "PREEMPT_RT" in os.uname().version


def is_debug() -> bool:
    """Does this kernel look for mistakes, at a tenth of the speed?"""
    return os.uname().release.endswith(("-debug", "-kcsan"))


@contextmanager
def setting(knob: str, value: str, back: str) -> Iterator[None]:
    """A knob of the suite for a while."""
    set_knob(knob, value)
    try:
        yield
    finally:
        set_knob(knob, back)


@contextmanager
def unloaded(module: str) -> Iterator[None]:
    rmmod(module)
    try:
        yield
    finally:
        insmod(module)


def stops(module: str) -> dict[str, Callable[[], AbstractContextManager[None]]]:
    """The ways in which all that a module does to others ends for a while."""
    mode = f"{module.removeprefix('pf_')}/mode"
    return {
        "enable": partial(setting, "enable", "0", "1"),
        "observe": partial(setting, mode, "observe", "enforce"),
        "rmmod": partial(unloaded, module),
    }


def takes_only(path: Path, good: Sequence[str], bad: Sequence[str]) -> None:
    """A knob's file: it takes these, the last of them the default, and no others."""
    default = path.read_text()
    assert default == good[-1] + "\n"
    for value in good:
        for text in (value, value + "\n"):
            write(path, text)
            assert path.read_text() == value + "\n"
    for text in bad:
        assert error_of(partial(write, path, text)) == "Invalid argument", repr(text)
        assert path.read_text() == default, repr(text)


def write(path: Path, text: str) -> None:
    """All of it in one system call; OSError tells why not."""
    file = os.open(path, os.O_WRONLY)
    try:
        data = text.encode()
        assert os.write(file, data) == len(data)
    finally:
        os.close(file)


def error_of(action: Callable[[], object]) -> str:
    try:
        action()
    except OSError as error:
        return os.strerror(error.errno or 0)
    return ""
