# SPDX-License-Identifier: GPL-2.0-only
"""The /proc contract: knobs, permissions, the switch, and what is shown."""

import os
import re
import resource
import stat
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from inside import growing, inside, mark
from inside.cgroups import cgroup, enter
from inside.computing import hog
from inside.grammar import BAD_NUMBER, never_taken
from inside.net import Worker, pressure, udp
from inside.receiver import receiving
from inside.scheduling import attending, autogroup, calm, flood, knobs, running
from inside.suite import (
    ROOT,
    entry,
    error_of,
    metric,
    set_knob,
    sockets,
    takes_only,
    unexplained,
    wait_for,
    write,
)

pytestmark = mark.ends

KNOBS = {
    "enable": ("0", "1"),
    "max_sockets": ("64", "4194304", "131072"),
    "batch_us": ("0", "1000", "250"),
    "rank_depth": ("0", "8", "2"),
    "filter/mode": ("observe", "enforce"),
    "filter/shed": ("full", "rank"),
    "filter/floor": ("0", "1000000", "100"),
    "filter/floor_share": ("100", "0"),
    "filter/exempt": (
        "none",
        "1",
        "65535",
        "1-65535",
        "53,100-110,from:53,from:1000-2000",
        "68,546,from:53,from:123",
    ),
}

BAD_FOR = {
    "enable": [*BAD_NUMBER, "2", "on", "yes"],
    "max_sockets": [*BAD_NUMBER, "0", "63", "4194305", "4294967360"],
    "batch_us": [*BAD_NUMBER, "1001", "4294967296"],
    "rank_depth": [*BAD_NUMBER, "9", "4294967296"],
    "filter/mode": ["0", "1", "Enforce", "enforce observe", "enforced", "enforc", "observe\n\n"],
    "filter/shed": ["0", "Full", "none", "rank full", "ful"],
    "filter/floor": [*BAD_NUMBER, "1000001", "4294967296"],
    "filter/floor_share": [*BAD_NUMBER, "101", "4294967296"],
    "filter/exempt": [
        *("0", "65536", "1-", "-1", "2-1", "1-2-3", "1,,2", ",1", "1,", "1;2", "1 ,2", "1, 2"),
        *("from:", "from:0", "from:from:1", "to:1", "1-65536", "none,1", "1,none", "1\n,2", "None"),
        *("1," * 600 + "1", "1\0"),
    ],
}


@mark.parametrize("knob", list(KNOBS))
@inside()
def test_a_knob_takes_what_it_should_and_nothing_else(knob: str) -> None:
    good = KNOBS[knob]
    takes_only(ROOT / knob, good, [*BAD_FOR[knob], *never_taken(good[0])])


@inside()
def test_a_value_comes_in_one_write() -> None:
    """What follows in the same file is not taken for another value."""
    path = ROOT / "filter/floor"
    before = path.read_text()
    file = os.open(path, os.O_WRONLY)
    assert os.writev(file, [b"16", b"11\n"]) == 2
    assert path.read_text() == "16\n"
    assert error_of(partial(os.write, file, b"17")) == "Invalid argument"
    os.lseek(file, 0, os.SEEK_SET)
    assert os.write(file, before.encode()) == len(before)
    assert path.read_text() == before
    os.close(file)


@inside()
def test_what_is_read_of_the_longest_list_can_be_written() -> None:
    path = ROOT / "filter/exempt"
    before = path.read_text()
    longest = "1000," + ",".join(str(port) for port in range(10001, 10338, 2)) + ",60000"
    assert len(longest) == 1024
    write(path, longest)
    write(path, path.read_text())
    assert path.read_text() == longest + "\n"
    assert error_of(partial(write, path, "0" + longest)) == "Invalid argument"
    write(path, before)


@inside()
def test_only_the_administrator_writes() -> None:
    files = [ROOT / knob for knob in KNOBS]

    def in_a_child(action: Callable[[], list[str]]) -> list[str]:
        read, write_end = os.pipe()
        child = os.fork()
        if not child:
            os.write(write_end, "\n".join(action()).encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(write_end)
        return os.read(read, 10_000).decode().split("\n")

    opened = [os.open(file, os.O_WRONLY) for file in files]

    def attempts() -> list[str]:
        here = [error_of(partial(write, file, "1")) for file in files]
        return here + [error_of(partial(os.write, file, b"1")) for file in opened]

    def as_root_of_a_user_namespace() -> list[str]:
        os.unshare(os.CLONE_NEWUSER)
        Path("/proc/self/uid_map").write_text("0 0 1\n")
        assert os.getuid() == 0
        return attempts()

    def as_nobody() -> list[str]:
        os.setresuid(65534, 65534, 65534)
        return attempts()

    before = [file.read_text() for file in files]
    refused = {"Operation not permitted", "Permission denied"}
    assert set(in_a_child(as_root_of_a_user_namespace)) <= refused
    assert set(in_a_child(as_nobody)) <= refused
    for knob in KNOBS:
        command = ["setpriv", "--bounding-set=-net_admin", "sh", "-c", f"echo 1 > {ROOT / knob}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode
        assert "ermi" in done.stderr
    assert [file.read_text() for file in files] == before


@inside()
def test_who_may_read_what() -> None:
    modes = {str(f.relative_to(ROOT)): stat.S_IMODE(f.stat().st_mode) for f in ROOT.rglob("*")}
    assert modes.pop("filter") == 0o555
    assert modes.pop("sockets") == 0o400
    assert modes.pop("status") == modes.pop("metrics") == 0o444
    assert modes == dict.fromkeys(KNOBS, 0o644)
    child = os.fork()
    if not child:
        os.setresuid(65534, 65534, 65534)
        (ROOT / "status").read_text()
        (ROOT / "metrics").read_text()
        (ROOT / "filter/floor").read_text()
        refused = error_of((ROOT / "sockets").read_text) == "Permission denied"
        os._exit(0 if refused else 1)
    assert os.waitpid(child, 0)[1] == 0


@inside()
def test_roots_of_containers_do_not_see_everybodys_sockets() -> None:
    path = ROOT / "sockets"
    assert path.read_text()
    command = ["setpriv", "--bounding-set=-net_admin", "cat", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Operation not permitted" in done.stderr
    child = os.fork()
    if not child:
        os.unshare(os.CLONE_NEWUSER)
        Path("/proc/self/uid_map").write_text("0 0 1\n")
        os._exit(0 if error_of(path.read_text) == "Operation not permitted" else 1)
    assert os.waitpid(child, 0)[1] == 0


def probed() -> list[str]:
    kprobes = Path("/sys/kernel/debug/kprobes/list").read_text()
    names = ("__inet_accept", "inet_bind", "inet6_bind", "inet_release")
    return [name for name in names if f" {name}+" in kprobes]


@inside()
def test_the_switch() -> None:
    assert len(probed()) == 4
    for _ in range(10):
        sock = udp()
        set_knob("enable", 0)
        assert probed() == []
        assert metric("packetflow_sockets") == {"": 0}
        assert "switched off" in (ROOT / "status").read_text()
        assert sockets() == []
        set_knob("enable", 0)
        set_knob("enable", 1)
        set_knob("enable", 1)
        assert len(probed()) == 4
        assert entry(sock)["owner"] == str(os.getpid())
        with pressure() as full:
            assert full.early() > 0


def look(*lines: str, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Wait for a status with lines that begin like these; the manual explains all of it."""

    def told() -> bool:
        meanwhile()
        status = (ROOT / "status").read_text()
        assert unexplained(status) == []
        return all(re.search(f"^{line}", status, re.MULTILINE) for line in lines)

    wait_for(told, 30)


def bounded() -> None:
    """May not be real-time for ever, and so is not made it."""
    resource.setrlimit(resource.RLIMIT_RTTIME, (10_000_000, resource.RLIM_INFINITY))


@inside(timeout=200, modules=("pf_filter", "pf_sched", "pf_mm"))
def test_the_manual_explains_all_that_status_says() -> None:
    """But for a probe that is absent, and what only a real overload has it say."""
    assert unexplained("suite: running\nsuite: walking\n") == ["suite: walking"]
    look("sockets: ", "nice: ", "cpus: none", "probe: inet_bind +armed", "suite: running")
    look("dropped: ", "shedding: nobody", "raised: nobody", "granted: ")
    set_knob("enable", 0)
    look("suite: switched off")
    set_knob("enable", 1)

    with pressure() as full:
        look(r"cpu \d+: under pressure", meanwhile=full.again)
        set_knob("filter/mode", "observe")
        look("observed: ", meanwhile=full.again)
        set_knob("filter/mode", "enforce")

    before = (ROOT / "max_sockets").read_text()
    set_knob("max_sockets", 64)
    many = [udp() for _ in range(100)]
    look("sockets: some are not tracked")
    for sock in many:
        sock.close()
    set_knob("max_sockets", before)

    with growing.owner() as one, growing.knobs(budget=1):
        one.flood(1000)
        look("no budget: ", meanwhile=partial(one.flood, 10))
        set_knob("mm/mode", "observe")
        look("observed: .* buffers")
        set_knob("mm/mode", "enforce")

    with knobs(lever="group"):
        look("lever=group: ")
    for lever, told in {"nice": r"nice, \d+ levels", "rr": "rr"}.items():
        with attending(), knobs(lever=lever), running(hog, 2), receiving() as receiver:
            calm()
            with flood(receiver.port):
                look(f"raised: thread .* by {told}$")


@inside(timeout=100, modules=("pf_filter", "pf_sched"))
def test_the_manual_explains_what_status_says_of_sessions() -> None:
    with (
        autogroup(),
        attending(),
        knobs(lever="rr"),
        running(hog, 2),
        receiving(bounded) as one,
        receiving() as other,
    ):
        calm()
        with flood(one.port, other.port):
            look(r"no lever: \d+ times", r"nice: inert .*\(autogroup\)")


@inside(
    common={"enable": 0, "max_sockets": 100, "batch_us": 30, "rank_depth": 3},
    filter={"mode": "observe", "shed": "full", "floor": 7, "floor_share": 50, "exempt": "9"},
)
def test_knobs_are_module_parameters_too() -> None:
    shown = {knob: (ROOT / knob).read_text().strip() for knob in KNOBS}
    assert shown == {
        "enable": "0",
        "max_sockets": "100",
        "batch_us": "30",
        "rank_depth": "3",
        "filter/mode": "observe",
        "filter/shed": "full",
        "filter/floor": "7",
        "filter/floor_share": "50",
        "filter/exempt": "9",
    }
    for knob, value in shown.items():
        module = "pf_filter" if "/" in knob else "pf_common"
        parameter = Path("/sys/module") / module / "parameters" / Path(knob).name
        assert parameter.read_text().strip() == value
        assert stat.S_IMODE(parameter.stat().st_mode) == 0o444
    assert probed() == []


def receivers(*prepare: Callable[[], object]) -> list[Worker]:
    """For each a process that has prepared itself so and bound a socket; while they are kept."""
    kept = []

    def bind(first: Callable[[], object]) -> None:
        first()
        kept.append(udp())

    workers = [Worker(partial(bind, first)) for first in prepare]
    for worker in workers:
        worker.act()
    return workers


def nice() -> str:
    """What status says of nice levels between receivers."""
    (line,) = [
        line for line in (ROOT / "status").read_text().splitlines() if line.startswith("nice: ")
    ]
    return line


EFFECTIVE = "nice: effective between the receivers seen, "
INERT = "nice: inert for the CPU scheduler between receivers of different "


@mark.parametrize("grouped", [True, False])
@inside()
def test_nice_is_inert_between_sessions(grouped: bool) -> None:
    with autogroup(grouped):
        workers = receivers(int, int)  # which does nothing: they are of one session
        assert nice().startswith(EFFECTIVE)
        workers += receivers(os.setsid, os.setsid)
        assert nice().startswith(INERT + "sessions (autogroup); " if grouped else EFFECTIVE)


@inside()
def test_nice_is_inert_between_cgroups() -> None:
    workers: list[Worker] = []
    with cgroup("one") as one, cgroup("other") as other:
        try:
            workers += receivers(partial(enter, one), partial(enter, one))
            assert nice().startswith(EFFECTIVE)
            workers += receivers(partial(enter, other))
            assert nice().startswith(INERT + "cgroups; ")
        finally:
            for worker in workers:
                worker.end()


@inside()
def test_what_is_read_in_pieces_is_whole() -> None:
    kept = [udp() for _ in range(300)]
    for name in ("status", "metrics", "sockets"):
        whole = (ROOT / name).read_text()
        with open(ROOT / name, "rb", buffering=0) as file:
            pieces = b"".join(iter(partial(file.read, 100), b"")).decode()
        assert len(pieces.splitlines()) == len(whole.splitlines())
    ports = {row["local"] for row in sockets()}
    assert {f"127.0.0.1:{sock.getsockname()[1]}" for sock in kept} <= ports


@inside()
def test_reading_and_writing_at_once() -> None:
    """Readers, the switch, and pressure, all together."""
    children = []

    def keep_doing(action: Callable[[], object]) -> None:
        child = os.fork()
        if not child:
            while True:
                action()
                time.sleep(0.01)
        children.append(child)

    for name in ("status", "metrics", "sockets"):
        keep_doing((ROOT / name).read_text)
    full, sender = udp(rcvbuf=1), udp()
    keep_doing(lambda: sender.sendto(b"x" * 500, full.getsockname()))
    for turn in range(12):
        set_knob("enable", turn % 2)
    for child in children:
        os.kill(child, 9)
        os.waitpid(child, 0)
    wait_for(lambda: entry(full)["owner"])
