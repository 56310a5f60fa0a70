# SPDX-License-Identifier: GPL-2.0-only
"""A receiver's place in the order follows what the administrator has set."""

import os
import socket
import time
from contextlib import ExitStack
from pathlib import Path

from inside import inside, mark
from inside.cgroups import cgroup, enter, nested
from inside.net import Worker, pressure, udp
from inside.suite import entry, set_knob, setting, wait_for

NICE_0 = 120


@inside()
def test_weights_of_control_groups_count_as_nice_levels() -> None:
    """From the thread's own to the root, and from a second after they are changed."""
    with ExitStack() as stack:
        pod, web = stack.enter_context(nested("pod.slice", "web.service"))
        sock, sender = stack.enter_context(udp()), stack.enter_context(udp())
        pressing = stack.enter_context(pressure())

        def receive() -> None:
            enter(web)
            sock.recv(1)

        def prio() -> int:
            pressing.raise_()  # then every receive call is looked at
            sender.sendto(b"x", sock.getsockname())
            worker.act()
            return int(entry(sock)["prio"])

        worker = Worker(receive, nice=3)
        stack.callback(worker.end)
        wait_for(lambda: prio() == NICE_0 + 3)
        assert entry(sock)["unit"] == "web.service"
        (pod / "cpu.weight.nice").write_text("5")
        wait_for(lambda: prio() == NICE_0 + 5 + 3)
        (web / "cpu.weight.nice").write_text("-4")
        wait_for(lambda: prio() == NICE_0 + 5 - 4 + 3)
        (web / "cpu.weight.nice").write_text("19")
        wait_for(lambda: prio() == NICE_0 + 19)
        (web / "cpu.weight").write_text("100")
        (pod / "cpu.weight").write_text("100")
        wait_for(lambda: prio() == NICE_0 + 3)


@mark.uncounted  # who receives is learnt for a moment of each second, and counted time keeps step
@inside()
def test_each_group_has_its_own_weight() -> None:
    """Asked for by turns, several times a second."""
    levels = {"low.service": 12, "high.service": -7}
    with ExitStack() as stack:
        rows = {}
        for name, level in levels.items():
            made = stack.enter_context(cgroup(name))
            (made / "cpu.weight.nice").write_text(str(level))
            sock, sender = stack.enter_context(udp()), stack.enter_context(udp())

            def receive(made: Path = made, sock: socket.socket = sock) -> None:
                enter(made)
                sock.recv(1)

            worker = Worker(receive)
            stack.callback(worker.end)
            rows[name] = (sock, sender, worker)

        def prios() -> dict[str, int]:
            for sock, sender, worker in rows.values():
                sender.sendto(b"x", sock.getsockname())
                worker.act()
            return {name: int(entry(sock)["prio"]) for name, (sock, _, _) in rows.items()}

        with pressure() as pressing:

            def told() -> dict[str, int]:
                pressing.raise_()  # then every receive call is looked at
                return prios()

            wait_for(lambda: told() == {name: NICE_0 + level for name, level in levels.items()})


NOBODY = 65534


class Member:
    """A child in a control group that receives whenever it is asked for its rank."""

    def __init__(self, stack: ExitStack, group: Path, user: int = 0) -> None:
        self._sock, self._sender = stack.enter_context(udp()), stack.enter_context(udp())
        self._joined = False
        self._group, self._user = group, user
        self._pressing = stack.enter_context(pressure())
        self._worker = Worker(self._receive)
        stack.callback(self._worker.end)

    def _receive(self) -> None:
        if not self._joined:
            enter(self._group)
            os.setresuid(self._user, self._user, self._user)
            self._joined = True
        if self._user:
            (self._group / "cpu.weight.nice").write_text("-20")
        self._sock.recv(1)

    def prio(self) -> int:
        self._pressing.raise_()  # then every receive call is looked at
        self._sender.sendto(b"x", self._sock.getsockname())
        self._worker.act()
        return int(entry(self._sock)["prio"])


@inside()
def test_a_user_buys_no_rank_in_what_is_delegated_to_it() -> None:
    """It owns the group, and sets its weight with each packet."""
    with ExitStack() as stack:
        *_, app = stack.enter_context(nested("user.slice", "user-65534.slice", "app.slice"))
        for path in (app, *app.iterdir()):
            os.chown(path, NOBODY, NOBODY)
        member = Member(stack, app, NOBODY)
        begin = time.monotonic()
        while time.monotonic() < begin + 2.5:
            assert member.prio() == NICE_0
            time.sleep(0.1)
        assert (app / "cpu.weight.nice").read_text() == "-20\n"
        with setting("rank_depth", "3", "2"):
            wait_for(lambda: member.prio() == NICE_0 - 20)
        wait_for(lambda: member.prio() == NICE_0)


@inside()
def test_deeper_groups_lower_down_to_the_eighth() -> None:
    with ExitStack() as stack:
        made = stack.enter_context(nested(*(f"level{number}" for number in range(1, 10))))
        member = Member(stack, made[-1])
        wait_for(lambda: member.prio() == NICE_0)
        (made[2] / "cpu.weight.nice").write_text("-7")
        (made[7] / "cpu.weight.nice").write_text("4")
        wait_for(lambda: member.prio() == NICE_0 + 4)
        (made[8] / "cpu.weight.nice").write_text("10")
        (made[1] / "cpu.weight.nice").write_text("-2")
        wait_for(lambda: member.prio() == NICE_0 + 4 - 2)
        set_knob("rank_depth", 0)
        try:
            wait_for(lambda: member.prio() == NICE_0 + 4)
        finally:
            set_knob("rank_depth", 2)
