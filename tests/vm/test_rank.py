# SPDX-License-Identifier: GPL-2.0-only
"""A receiver's place in the order follows what the administrator has set."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from inside import inside
from inside.net import Worker, pressure, udp
from inside.suite import entry, wait_for

TOP = Path("/sys/fs/cgroup")
NICE_0 = 120


def empty(cgroup: Path) -> bool:
    return not (cgroup / "cgroup.procs").read_text()


@contextmanager
def cgroups(*names: str) -> Iterator[list[Path]]:
    """These, with the cpu controller, each in the one before."""
    above = [TOP]
    try:
        for name in names:
            (above[-1] / "cgroup.subtree_control").write_text("+cpu")
            above.append(above[-1] / name)
            above[-1].mkdir()
        yield above[1:]
    finally:
        for made in reversed(above[1:]):
            wait_for(partial(empty, made))
            made.rmdir()
        (TOP / "cgroup.subtree_control").write_text("-cpu")


@inside()
def test_weights_of_control_groups_count_as_nice_levels() -> None:
    """From the thread's own to the root, and from a second after they are changed."""
    with ExitStack() as stack:
        pod, web = stack.enter_context(cgroups("pod.slice", "web.service"))
        sock, sender = stack.enter_context(udp()), stack.enter_context(udp())
        pressing = stack.enter_context(pressure())

        def receive() -> None:
            (web / "cgroup.procs").write_text("0")
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


@inside()
def test_each_group_has_its_own_weight() -> None:
    """Asked for by turns, several times a second."""
    levels = {"low.service": 12, "high.service": -7}
    with ExitStack() as stack:
        rows = {}
        for name, level in levels.items():
            (made,) = stack.enter_context(cgroups(name))
            (made / "cpu.weight.nice").write_text(str(level))
            sock, sender = stack.enter_context(udp()), stack.enter_context(udp())

            def receive(made: Path = made, sock: socket.socket = sock) -> None:
                (made / "cgroup.procs").write_text("0")
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
