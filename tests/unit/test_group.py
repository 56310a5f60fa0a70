# SPDX-License-Identifier: GPL-2.0-only
"""What tools/packetflow-group decides: every session ends as it was or was left."""

import itertools
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from programs import load

GROUPS, THREADS = 2, 4


program = load("packetflow-group")

nices = st.integers(-20, 19)
groups = st.integers(0, GROUPS - 1)
threads = st.integers(0, THREADS - 1)
names = st.text(st.characters(codec="latin-1", exclude_characters="\0"), max_size=15)


class Boost(NamedTuple):
    group: int
    thread: int
    levels: int


class Restore(NamedTuple):
    thread: int


class Change(NamedTuple):
    """By an administrator."""

    group: int
    nice: int


class Vanish(NamedTuple):
    """The last process of a group ends; its number is never used again."""

    group: int


class Kill(NamedTuple):
    """The program is killed and started again."""


class Lose(NamedTuple):
    """The kernel had no room for some events."""


Action = Boost | Restore | Change | Vanish | Kill | Lose
changes = st.builds(Change, groups, nices)
often: st.SearchStrategy[Action] = st.one_of(
    st.builds(Boost, groups, threads, st.integers(1, 39)), st.builds(Restore, threads), changes
)
seldom: st.SearchStrategy[Action] = st.one_of(
    st.builds(Vanish, groups), st.builds(Kill), st.builds(Lose)
)
few = st.lists(often, min_size=1, max_size=6)
many = st.lists(often, min_size=5, max_size=20)
actions = st.builds(lambda first, one, rest: [*first, one, *rest], many, seldom, many)


class Killed(Exception):
    pass


class World:
    """Groups, and the program; `own` is the level that each group is to have at last."""

    def __init__(self, before: Sequence[int]) -> None:
        self.own: list[int | None] = list(before)
        self.now: list[int | None] = list(before)
        self.group_of: dict[int, int] = {}
        self.set: dict[int, set[int]] = {}  # to what by the program, the last time
        self.kept = ""
        self.killed_after = -1  # so many steps, counted down
        self.restart()

    def step(self) -> None:
        self.killed_after -= 1
        if self.killed_after == 0:
            raise Killed

    # What the program is handed

    def of(self, thread: int) -> tuple[int, int] | None:
        if thread not in self.group_of:
            return None
        group = self.group_of[thread]
        nice = self.now[group]
        return None if nice is None else (group, nice)

    def nice(self, group: int, likely: Iterable[int]) -> int | None:
        return self.now[group]

    def set_nice(self, group: int, nice: int, likely: Iterable[int]) -> None:
        self.step()
        assert -20 <= nice <= 19
        assert self.now[group] is not None
        self.now[group] = nice
        self.set[group] = {nice}
        self.step()

    def keep(self, text: str) -> None:
        self.kept = text
        self.step()

    def intended(self, group: int) -> list[int]:
        """Levels that a killed program may have set, for all that the next one knows."""
        saved = json.loads(self.kept or "{}").get(str(group), [0, []])
        return list(saved[1])

    # What happens

    def restart(self) -> None:
        self.killed_after = -1
        self.program = program.Sessions(self, self.keep, self.kept)
        self.program.give_back()

    def play(self, action: Action) -> None:
        match action:
            case Boost(group, thread, levels):
                self.group_of[thread] = group
                self.program.hear(f" pid={thread} rank=120 lever=group levels={levels}")
            case Restore(thread):
                self.program.hear(f" pid={thread} lever=group reason=expired")
            case Change(group, nice):
                # To the level that the program set: that cannot be told from nothing.
                if self.now[group] is not None and nice not in self.set.get(group, ()):
                    self.own[group] = self.now[group] = nice
            case Vanish(group):
                self.own[group] = self.now[group] = None
            case Kill():
                self.restart()
            case Lose():
                self.program.hear("CPU:0 [LOST 3 EVENTS]")


@given(st.tuples(*[nices] * GROUPS), actions)
def test_every_session_ends_as_it_was_or_was_left(before: list[int], done: list[Action]) -> None:
    world = World(before)
    for action in done:
        world.play(action)
        claims = world.program.claims
        assert not (claims and isinstance(action, Kill | Lose))
        raised = [thread for claim in claims.values() for thread in claim.levels]
        assert len(raised) == len(set(raised))
        for group, claim in claims.items():
            assert claim.levels
            if world.now[group] in claim.ours:
                wanted = claim.before - max(claim.levels.values())
                assert world.now[group] == max(wanted, -20)
                assert claim.before == world.own[group]
        for group in range(GROUPS):
            if group not in claims:
                assert world.now[group] == world.own[group]
    for thread in range(THREADS):
        world.play(Restore(thread))
    assert world.now == world.own
    assert not world.program.claims
    assert world.kept in ("", "{}")


@given(st.tuples(*[nices] * GROUPS), actions)
def test_so_it_does_when_the_program_ends(before: list[int], done: list[Action]) -> None:
    world = World(before)
    for action in done:
        world.play(action)
    world.program.give_back()
    assert world.now == world.own
    assert not world.program.claims


@given(st.tuples(*[nices] * GROUPS), few, changes | st.none())
def test_so_it_does_wherever_it_is_killed(
    before: list[int], done: list[Action], late: Change | None
) -> None:
    for step in itertools.count(1):
        world = World(before)
        world.killed_after = step
        with suppress(Killed):
            for action in done:
                world.play(action)
        survived = world.killed_after > 0
        if late and late.nice not in world.intended(late.group):
            world.play(late)
        world.restart()
        assert world.now == world.own
        assert not world.program.claims
        assert world.kept in ("", "{}")
        if survived:
            break


@given(nices, st.permutations(range(THREADS)), st.lists(st.integers(1, 39), min_size=THREADS))
def test_the_largest_of_their_levels_holds(nice: int, order: list[int], levels: list[int]) -> None:
    world = World([nice] * GROUPS)
    for thread in range(THREADS):
        world.play(Boost(0, thread, levels[thread]))
    left = set(range(THREADS))
    for thread in order:
        assert world.now == [max(nice - max(levels[t] for t in left), -20), nice]
        world.play(Restore(thread))
        left.remove(thread)
    assert world.now == [nice] * GROUPS


def test_a_thread_that_goes_on_by_another_number_is_restored() -> None:
    """As one does that executes."""
    world = World([0, 7])
    world.play(Boost(0, 1, 5))
    world.play(Boost(1, 2, 5))
    world.group_of[3] = world.group_of.pop(1)
    world.play(Restore(3))
    assert world.now == [0, 2]


def heard(text: str) -> list[tuple[str, ...]]:
    patterns = {"boost": program.BOOST, "restore": program.RESTORE, "lost": program.LOST}
    return [
        (name, *(group for group in found.groups() if group))
        for line in text.split("\n")
        for name, pattern in patterns.items()
        if (found := pattern.search(line))
    ]


def line(current: str, event: str) -> str:
    return f"{current:>16}-123     [000] d.s2.  4711.081500: {event}\n"


@given(names, names)
def test_a_line_is_understood_whatever_the_program_is_called(current: str, name: str) -> None:
    boost = f"boost: comm={name} pid=5 rank=120 lever=group levels=3"
    assert heard(line(current, boost)) == [("boost", "5", "3")]
    restore = f"restore: comm={name} pid=5 lever=group reason=expired"
    assert heard(line(current, restore)) == [("restore", "5")]


@given(names, st.sampled_from(["nice", "deadline", "rr", "none"]))
def test_other_levers_are_left_alone(name: str, lever: str) -> None:
    assert heard(line(name, f"boost: comm={name} pid=5 rank=120 lever={lever} levels=3")) == []
    assert heard(line(name, f"restore: comm={name} pid=5 lever={lever} reason=expired")) == []


def test_lost_events_are_noticed() -> None:
    """As the kernel says it, with a number and without."""
    assert heard("CPU:3 [LOST 17 EVENTS]\n") == [("lost", "17 ")]
    assert heard("CPU:12 [LOST EVENTS]\n") == [("lost",)]


@given(names)
def test_who_was_elected_before_is_found_in_status(name: str) -> None:
    """By its own line only, if a name takes more than one."""
    lines = [
        "raised: nobody",
        "raised: thread 3 (rx) of prio 120, by rr",
        f"raised: thread 5 ({name}) of prio 100, by group, 5 levels",
        "raised: thread 7 (by group) of prio 120, by nice, 3 levels",
        "raised: thread 11 (udp_recv) of prio 139, by group, 2 levels",
    ]
    found = re.findall(program.RAISED, "\n".join(lines) + "\n", re.MULTILINE)
    assert found == [("11", "2")] if "\n" in name else [("5", "5"), ("11", "2")]
