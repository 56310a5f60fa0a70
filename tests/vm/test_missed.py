# SPDX-License-Identifier: GPL-2.0-only
"""Hits that the probes miss: what they would have told is found out all the same."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

from inside import ON_HOST, inside
from inside.growing import given_back, granted
from inside.net import udp
from inside.suite import ALL, ROOT, entry, metric, rmmod, wait_for

if ON_HOST:
    import pytest
    from rig.guest import Guest
    from rig.kernels import REPO

    @pytest.fixture
    def missing(guest: Guest) -> str:
        """The module that does what kprobes miss, built for the guest's kernel."""
        if guest.kernel.debug:
            pytest.skip("it sees to it that nothing that might sleep is called by a handler")
        target = guest.kernel.build / "missing"
        shutil.copytree(REPO / "tests" / "rig" / "missing", target, dirs_exist_ok=True)
        command = ["make", "-s", "-C", str(guest.kernel.headers), f"M={target}", "modules"]
        subprocess.run(command, check=True)
        return str(target / "missing.ko")


def missed(symbol: str) -> int:
    return int(metric("packetflow_probe_missed_total")[symbol])


def unseen(what: str, sock: socket.socket) -> None:
    Path("/sys/module/missing/parameters", what).write_text(str(sock.fileno()))


@inside(modules=ALL)
def test_what_probes_miss_is_found_out_all_the_same(missing: str) -> None:
    subprocess.run(["insmod", missing], check=True)
    sock, sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), udp()
    bound, released, closed = missed("inet_bind"), missed("inet_release"), given_back()["closed"]

    unseen("bind", sock)
    to = sock.getsockname()
    assert to[1]
    assert missed("inet_bind") == bound + 1
    assert f"inet_bind         armed  missed {bound + 1}\n" in (ROOT / "status").read_text()
    found = entry(sock)  # by a scan
    assert (found["learnt"], found["owner"]) == ("holds", str(os.getpid()))

    for _ in range(1000):
        sender.sendto(b"x" * 200, to)
    assert granted() > 0
    unseen("release", sock)
    assert missed("inet_release") == released + 1
    wait_for(lambda: granted() == 0, 2)
    assert given_back()["closed"] == closed + 1
    for _ in range(100):
        sender.sendto(b"x" * 200, to)
    sock.close()
    rmmod("missing")
