# SPDX-License-Identifier: GPL-2.0-only
"""Control groups, for as long as a test needs them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from inside.suite import wait_for

TOP = Path("/sys/fs/cgroup")


def enter(group: Path, task: int = 0) -> None:
    """0: whoever asks."""
    (group / "cgroup.procs").write_text(str(task))


@contextmanager
def entered(group: Path, task: int = 0) -> Iterator[None]:
    """It is back at the top afterwards, whatever happens."""
    enter(group, task)
    try:
        yield
    finally:
        enter(TOP, task)


@contextmanager
def cgroup(
    name: str, above: Path = TOP, controller: str = "cpu", **settings: str
) -> Iterator[Path]:
    """With that controller, or none, whose settings have no dots here: max is cpu.max."""
    group = above / name
    control = above / "cgroup.subtree_control"
    if controller:
        control.write_text(f"+{controller}")
    group.mkdir()
    try:
        for setting, value in settings.items():
            (group / f"{controller}.{setting}").write_text(value)
        yield group
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()
        if controller and not any(other.is_dir() for other in above.iterdir()):
            control.write_text(f"-{controller}")


@contextmanager
def nested(*names: str, controller: str = "cpu") -> Iterator[list[Path]]:
    """Each in the one before."""
    made: list[Path] = []
    with ExitStack() as stack:
        for name in names:
            above = made[-1] if made else TOP
            made.append(stack.enter_context(cgroup(name, above, controller)))
        yield made
