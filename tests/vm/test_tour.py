# SPDX-License-Identifier: GPL-2.0-only
"""The five minutes of the README: each command is typed in a guest and succeeds."""

import re

from rig.guest import Guest
from rig.kernels import REPO

ENDLESS = ("perf",)  # until somebody ends them


def tour() -> list[str]:
    """The commands, without sudo and comments."""
    text = (REPO / "README.md").read_text()
    section = re.search(r"^## Five minutes.*?(?=^## )", text, re.DOTALL | re.MULTILINE)
    assert section
    lines = re.findall(r"^ {7}(\S.*)$", section[0], re.MULTILINE)
    return [line.partition(" # ")[0].replace("sudo ", "").strip() for line in lines]


def test_what_the_tour_says_can_be_typed(guest: Guest) -> None:
    guest.load("pf_filter", "pf_sched", "pf_mm")
    server = guest.spawn(["bash", "-c", "exec -a nginx sleep 60"])
    guest.run("until pidof nginx; do :; done")
    typed = [command for command in tour() if not command.startswith(ENDLESS)]
    assert len(typed) >= 6
    said = {command: guest.run(command).out for command in typed}
    assert "suite: running" in said["cat /proc/packetflow/status"]
    assert said["column -t /proc/packetflow/sockets"].startswith("proto")
    assert guest.read("/proc/packetflow/enable").strip() == "1"
    assert guest.run(f"ps -o ni= -p {server.pid}").out.strip() == "-5"
    server.signal()
    server.wait()
