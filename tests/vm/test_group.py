# SPDX-License-Identifier: GPL-2.0-only
"""lever=group: pf_sched elects, and tools/packetflow-group raises that thread's session.

What is compared is the scheduler's own word on a thread, see `State`; its session's nice
level is at the end of ``autogroup``.
"""

import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from inside import TESTS, inside, mark
from inside.raising import LONG, SCHED, UNTRIED, is_restored, starving
from inside.receiver import Receiver, receiving
from inside.scheduling import (
    Counting,
    State,
    autogroup,
    boosted,
    calm,
    end,
    everybody,
    flood,
    knobs,
    libc,
    state,
)
from inside.suite import ROOT, insmod, rmmod, unloaded, wait_for

pytestmark = mark.oldest

PROGRAM = TESTS.parent / "tools" / "packetflow-group"
INSTANCE = Path("/sys/kernel/tracing/instances/packetflow-group")
STATE = Path("/run/packetflow-group.json")
PR_SET_NAME = 15


@contextmanager
def helped() -> Iterator[subprocess.Popen[str]]:
    """The program runs, and sessions count."""
    with autogroup():
        program = launch()
        try:
            yield program
        finally:
            program.terminate()
            program.wait(20)


def launch() -> subprocess.Popen[str]:
    program = subprocess.Popen(
        [PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert program.stdout is not None
    with program.stdout as out:
        said = out.readline()
    assert said == "watching pf_sched\n", said
    return program


def refused(*wrapper: str, program: Path = PROGRAM) -> str:
    """Why the program does not even start."""
    command = [*wrapper, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (1, ""), done
    return done.stderr


def of_session(at: State, nice: int) -> State:
    """The same, with that nice level of the session."""
    group, word, _ = at.autogroup.split()
    return at._replace(autogroup=f"{group} {word} {nice}")


def is_raised(receiver: Receiver, nice: int) -> bool:
    """The session, that is; nothing of the thread itself is changed."""
    return receiver.state() == of_session(receiver.before, nice)


def raise_up(receiver: Receiver, nice: int = -5) -> None:
    """Flood it until its session is raised; the flood is over then."""
    calm()
    with flood(receiver.port):
        wait_for(partial(is_raised, receiver, nice))


def set_session(nice: int, pid: int | str = "self") -> None:
    Path(f"/proc/{pid}/autogroup").write_text(str(nice))


def with_a_strange_name() -> None:
    """It looks like the end of one event's line, and has a line of its own."""
    libc.prctl(PR_SET_NAME, b"\n pid=1 lever=g", 0, 0, 0)


def watched() -> bool:
    switch = INSTANCE / "events/packetflow/boost/enable"
    return switch.exists() and switch.read_text() == "1\n"


@mark.parametrize("before", [0, 7, -18])
@inside(modules=SCHED)
def test_the_session_of_whoever_starves_is_raised_and_restored(before: int) -> None:
    others = everybody()
    with (
        helped(),
        starving("group", hold=500),
        receiving(partial(set_session, before)) as receiver,
    ):
        calm()
        with flood(receiver.port):
            wait_for(partial(is_raised, receiver, max(before - 5, -20)))
            assert boosted() == {"group": 1}
            assert f"thread {receiver.tid}" in (ROOT / "status").read_text()
            wait_for(receiver.elected)
        wait_for(partial(is_restored, receiver))
        wait_for(lambda: not boosted())
        wait_for(lambda: STATE.read_text() == "{}\n", 1)
    now = everybody()
    assert {who: (was, now[who]) for who, was in others.items() if now.get(who, was) != was} == {}


@inside(modules=SCHED)
def test_it_stays_raised_as_long_as_its_buffer_fills() -> None:
    with helped(), starving("group", hold=500), receiving() as receiver:
        calm()
        with flood(receiver.port):
            wait_for(partial(is_raised, receiver, -5))
            for _ in range(UNTRIED):
                assert is_raised(receiver, -5)
                time.sleep(0.01)


@inside(modules=SCHED)
def test_a_program_may_have_any_name() -> None:
    with helped(), starving("group"), receiving(with_a_strange_name) as receiver:
        raise_up(receiver)
        wait_for(partial(is_restored, receiver))


@inside(modules=SCHED)
def test_the_largest_of_their_levels_holds_in_a_session() -> None:
    with (
        helped(),
        starving("group", hogs=1, elect=2, hold=LONG, levels=6),
        receiving(session=False) as one,
        receiving(partial(os.nice, 1), session=False) as other,
    ):
        assert one.before.autogroup == other.before.autogroup
        calm()
        with flood(one.port):
            wait_for(partial(is_raised, one, -6))
        # Beside a more important one whose buffer still fills it would not be raised.
        calm()
        with flood(other.port):
            wait_for(lambda: boosted() == {"group": 2})
        # Who still wants the CPU, and is not raised, would come before the other; and a buffer
        # that stays full would put the other's boost on trial.
        one.drain()
        other.drain()
        time.sleep(0.5)
        assert is_raised(other, -6)
        # It ends its boost, and does not run for it as it would to close its socket.
        os.setpriority(os.PRIO_PROCESS, one.tid, 5)
        wait_for(partial(is_raised, other, -3))
        other.close()
        wait_for(partial(is_restored, other))


@inside(modules=SCHED)
def test_a_session_outlives_whom_it_was_raised_for() -> None:
    with helped(), starving("group", hold=LONG), receiving() as receiver:
        child = receiver.fork()
        raise_up(receiver)
        assert state(child).autogroup == of_session(receiver.before, -5).autogroup
        end(receiver.pid)
        wait_for(lambda: state(child).autogroup == receiver.before.autogroup, 5)
        end(child)


@mark.parametrize("how", ["leave", "execute"])
@inside(modules=SCHED)
def test_so_does_a_process_its_thread(how: str) -> None:
    """One that executes takes the number of the process, and its own is gone."""
    with helped(), starving("group", hold=LONG), receiving(in_thread=True) as receiver:
        raise_up(receiver)
        getattr(receiver, how)()
        wait_for(lambda: not Path(f"/proc/{receiver.tid}").exists())
        wait_for(lambda: state(receiver.pid).autogroup == receiver.before.autogroup, 2)
        wait_for(lambda: STATE.read_text() == "{}\n", 1)


@inside(modules=SCHED)
def test_a_session_that_is_gone_is_forgotten() -> None:
    with helped(), starving("group", hold=LONG):
        with receiving() as receiver:
            raise_up(receiver)
        wait_for(lambda: STATE.read_text() == "{}\n", 5)
        with receiving() as receiver:
            raise_up(receiver)


@inside(modules=SCHED)
def test_an_administrators_change_stays() -> None:
    """And is what the session is raised from the next time."""
    with helped(), starving("group", hold=LONG), receiving() as receiver:
        raise_up(receiver)
        set_session(3, receiver.pid)
        with knobs(mode="observe"):
            wait_for(lambda: not boosted())
            time.sleep(0.5)
            assert is_raised(receiver, 3)
        raise_up(receiver, -2)
        with knobs(mode="observe"):
            wait_for(partial(is_raised, receiver, 3))


# The program comes and goes


@inside(modules=SCHED)
def test_without_it_nothing_changes_and_status_says_so() -> None:
    with autogroup(), starving("group", hold=LONG), receiving() as receiver:
        calm()
        with flood(receiver.port):
            wait_for(boosted)
            assert boosted() == {"group": 1}
            for _ in range(50):
                assert is_restored(receiver)
                time.sleep(0.01)
        assert "packetflow-group" in (ROOT / "status").read_text()


@inside(modules=SCHED)
def test_whoever_was_elected_before_it_came_is_raised_too() -> None:
    with autogroup(), starving("group"), receiving() as receiver:
        calm()
        with flood(receiver.port):
            wait_for(boosted)
            with helped():
                wait_for(partial(is_raised, receiver, -5), 5)
            assert is_restored(receiver)


@inside(modules=SCHED)
def test_when_it_is_ended_it_gives_back() -> None:
    # Beside two that never sleep the program may take longer to end than any boost lasts.
    with helped() as program, starving("group", 1, hold=10_000), receiving() as receiver:
        raise_up(receiver)
        program.terminate()
        assert program.wait(10) == 0
        assert is_restored(receiver)
        assert boosted() == {"group": 1}
        assert not INSTANCE.exists()


@inside(modules=SCHED)
def test_when_it_is_killed_the_next_one_gives_back() -> None:
    with helped() as program, starving("group", hold=LONG), receiving() as receiver:
        raise_up(receiver)
        program.kill()
        program.wait()
        wait_for(lambda: not boosted())
        assert is_raised(receiver, -5)
        with helped():
            assert is_restored(receiver)
            raise_up(receiver)
        assert is_restored(receiver)


@mark.full()
@mark.cpus(2)
@inside(timeout=200, modules=SCHED, pinned=False)
def test_it_is_killed_at_any_moment() -> None:
    with autogroup(), starving("group", hold=10, apart=0), receiving() as receiver:
        for _ in range(10):
            program = launch()
            with flood(receiver.port, pause=0.1, burst=40):
                time.sleep(random.random() / 2)
                program.kill()
                program.wait()
        receiver.drain()
        wait_for(lambda: not boosted())
        with helped():
            assert is_restored(receiver)


@inside(modules=SCHED)
def test_there_is_only_one() -> None:
    with helped(), starving("group"), receiving() as receiver:
        assert "another" in refused()
        raise_up(receiver)
        wait_for(partial(is_restored, receiver))


@inside(modules=SCHED)
def test_where_it_cannot_work_it_says_what_to_do() -> None:
    with autogroup():
        with autogroup(False):
            assert "sysctl kernel.sched_autogroup_enabled=1" in refused()
        # Where others may read it: the repository need not be.
        copy = shutil.copy(PROGRAM, "/run")
        nobody = "setpriv", "--reuid=65534", "--clear-groups"
        assert "must be root" in refused(*nobody, program=Path(copy))
        with unloaded("pf_sched"):
            assert "modprobe pf_sched" in refused()
    assert not INSTANCE.exists()


# pf_sched comes and goes


@inside(modules=SCHED)
def test_unloading_gives_back_and_loading_again_is_seen() -> None:
    with helped() as program, starving("group", hold=LONG), receiving() as receiver:
        raise_up(receiver)
        with unloaded("pf_sched"):
            wait_for(partial(is_restored, receiver), 5)
            assert program.poll() is None
        seen = Counting()
        with knobs(lever="group"):  # it was loaded with its defaults
            wait_for(watched, 5)
            raise_up(receiver)
            wait_for(partial(is_restored, receiver))
        assert seen["elected"] >= 1


@mark.cpus(2)
@inside(timeout=120, modules=SCHED, pinned=False)
def test_unloading_is_never_held_up() -> None:
    """Even when it is loaded again before anybody looked."""
    with helped(), starving("group", hold=LONG), receiving() as receiver:
        with flood(receiver.port):
            for _ in range(5):
                wait_for(partial(is_raised, receiver, -5))
                rmmod("pf_sched")
                insmod("pf_sched", lever="group")
        wait_for(partial(is_restored, receiver), 5)
