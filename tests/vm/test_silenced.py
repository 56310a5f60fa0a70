# SPDX-License-Identifier: GPL-2.0-only
"""Kprobes or ftrace switched off by the administrator: it is noticed, told of and undone."""

import errno
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inside import Skip, inside, mark
from inside.growing import granted
from inside.net import drain, drops, pressure, udp
from inside.suite import (
    ALL,
    ROOT,
    dropped,
    entry,
    insmod,
    metric,
    rmmod,
    set_knob,
    stripped,
    unexplained,
    wait_for,
)

SWITCHES = {
    "kprobes": Path("/sys/kernel/debug/kprobes/enabled"),
    "ftrace": Path("/proc/sys/kernel/ftrace_enabled"),
}


@contextmanager
def switched_off(what: str) -> Iterator[None]:
    try:
        SWITCHES[what].write_text("0")
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        raise Skip("this kernel does not let ftrace be switched off") from None
    try:
        yield
    finally:
        SWITCHES[what].write_text("1")


def stands_by() -> bool:
    return "suite: stands by" in (ROOT / "status").read_text()


def runs() -> bool:
    return "suite: running" in (ROOT / "status").read_text()


def silent() -> float:
    return metric("packetflow_probes_silent")[""]


def fill(sock: socket.socket, packets: int) -> None:
    with udp() as sender:
        for _ in range(packets):
            sender.sendto(b"x" * 200, sock.getsockname())


@mark.parametrize("what", list(SWITCHES))
@inside(modules=ALL)
def test_all_is_undone_while_no_probe_is_called(what: str) -> None:
    grown = udp()
    size = grown.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    fill(grown, 1000)
    assert granted() > 0
    assert runs() and not silent()
    with pressure() as full:
        by_us = dropped()["socket_full"]
        with switched_off(what):
            wait_for(stands_by)
            assert silent() == 1
            assert not unexplained((ROOT / "status").read_text())
            assert grown.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == size
            lost = drops(full.sock)
            for _ in range(100):
                full.again()
            assert drops(full.sock) == lost + 100  # as on a stock kernel
        wait_for(runs)
        assert not silent()
        assert entry(grown)
        full.raise_()
        assert dropped()["socket_full"] > by_us
    drain(grown)
    fill(grown, 1000)
    assert granted() > 0
    grown.close()


@inside(modules=ALL)
def test_who_is_loaded_or_switched_on_meanwhile_waits() -> None:
    for module in ALL:
        stripped(module)
    with switched_off("kprobes"):
        wait_for(stands_by)
        rmmod("pf_mm")
        insmod("pf_mm")
        set_knob("enable", 0)
        assert "suite: switched off" in (ROOT / "status").read_text()
        assert not silent()
        set_knob("enable", 1)
        assert stands_by()
        for module in (*ALL, "pf_common"):
            rmmod(module)
        for module in ("pf_common", *ALL):
            insmod(module)
        assert stands_by()
    wait_for(runs)
    sock = udp()
    fill(sock, 1000)
    assert granted() > 0


@inside()
def test_probes_of_others_make_no_difference() -> None:
    """They are put at the same functions, and taken away again."""
    events = Path("/sys/kernel/tracing/kprobe_events")
    switch = Path("/sys/kernel/tracing/events/kprobes/others/enable")
    for _ in range(10):
        events.write_text("p:others inet_bind\n")
        switch.write_text("1")
        udp().close()
        switch.write_text("0")
        events.write_text("")
        assert runs() and not silent()
    subprocess.run(["sleep", "3"], check=True)
    assert runs() and not silent()
