# SPDX-License-Identifier: GPL-2.0-only
"""Guests for the behaviour tests.

A test that takes `guest` runs once on every kernel asked for, and, by the mark
`cpus`, for every number of CPUs. Tests share a running guest, one at a time;
those marked `fresh` have their own, those marked `card` one with another network
card, and after a failure comes a new one.

Where all of a test is inside a guest of one CPU, the guest's clock counts its instructions. So
what is waited for takes next to no time, and a slow or busy host changes nothing. Tests marked
`uncounted` have the host's time all the same, as do all on debug kernels, which take too many
instructions; those marked `counted` have counted time though a sender loads them from outside.

After each test the modules are unloaded, unless it is of a kind that leaves
them as they were, and a complaint in the kernel's log fails the test that
caused it.

An emulated guest on a busy host may miss a moment that a test waits for. So a
test that failed gets one more try, in a new guest that lives in slow time, for
which the host is fast; it is named in the summary.
A complaint of the kernel is never forgiven: it fails the run.
"""

import re
from collections.abc import Generator, Iterator

import pytest
from _pytest.terminal import TerminalReporter
from conftest import kernels
from rig.guest import CommandError, Guest, GuestError
from rig.kernels import DEBUG, REPO, kernel
from rig.link import DRIVERS, VIRTIO
from rig.outcomes import Outcomes
from rig.programs import programs as built
from rig.shared import Machines

LINES = 20  # of the log
DEBUG_SLOWER = 4  # so many times as long a test may take on a debug kernel
FAILED = pytest.StashKey[bool]()
COMPLAINTS = pytest.StashKey[list[str]]()
OUTCOMES = pytest.StashKey[Outcomes]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, object]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    running = getattr(item, "funcargs", {}).get("guest")
    if report.when == "call" and report.failed and isinstance(running, Guest):
        report.sections.append((f"the guest, kernel {running.kernel.version}", told(running)))
    if (machine := _machine(item)) and (report.when == "call" or not report.passed):
        note(item, machine, report)
    return report


def told(running: Guest) -> str:
    """What a person who looks for the reason asks for first."""
    try:
        status = running.read("/proc/packetflow/status")
    except (OSError, TimeoutError, GuestError) as error:
        status = f"cannot be read: {error}\n"
    log = "\n".join(running.log().splitlines()[-LINES:])
    return f"/proc/packetflow/status:\n{status}\nthe last lines of its log:\n{log}"


def pytest_itemcollected(item: pytest.Item) -> None:
    if machine := _machine(item):
        outcomes(item).collected(kernel(machine[0]), item.path.name)


def outcomes(item: pytest.Item) -> Outcomes:
    return item.config.stash.setdefault(OUTCOMES, Outcomes())


def note(item: pytest.Item, machine: tuple[str, int], report: pytest.TestReport) -> None:
    """For docs/compatibility.md."""
    on = kernel(machine[0])
    again = report.passed and getattr(item, "execution_count", 1) > 1
    test = item.name.replace(f"[{machine[0]}-", "[")
    outcomes(item).note(on, item.path.name, test, "again" if again else report.outcome)
    if hooks := dict(report.user_properties).get("hooks"):
        outcomes(item).note_hooks(on, str(hooks))


@pytest.fixture(scope="session")
def machines() -> Iterator[Machines]:
    found = Machines()
    yield found
    found.drop()


@pytest.fixture
def machine(request: pytest.FixtureRequest) -> tuple[str, int]:
    """The kernel and the number of CPUs."""
    return request.param


@pytest.fixture
def inputs(request: pytest.FixtureRequest) -> int:
    """How many a test makes up."""
    return int(request.config.getoption("--inputs"))


@pytest.fixture
def frames(request: pytest.FixtureRequest) -> int:
    """How many of all kinds come in."""
    return int(request.config.getoption("--frames"))


@pytest.fixture
def soak(request: pytest.FixtureRequest) -> float:
    """How many minutes it is to last."""
    return float(request.config.getoption("--soak"))


@pytest.fixture
def programs() -> str:
    """Where the rig's programs are, in a guest too."""
    return str(built())


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """What it makes them up from; told where it fails."""
    seed = int(request.config.getoption("--seed"))
    print(f"the same again: --seed {seed}")
    return seed


@pytest.fixture
def guest(
    request: pytest.FixtureRequest, machines: Machines, machine: tuple[str, int]
) -> Iterator[Guest]:
    again = getattr(request.node, "execution_count", 1) > 1
    fresh, counted, alone, card = _kind(request.node)
    if fresh:
        machines.drop()
    if card in DRIVERS and not kernel(machine[0]).offers(DRIVERS[card]):
        pytest.skip("this kernel has no driver for this card")
    running = machines.get(*machine, again, card, counted, alone)
    shares = request.node.get_closest_marker("keeps_modules")
    if not shares:
        running.unload()
    if request.node.get_closest_marker("steers") and machine[0] == "6.1-rt":
        # Of a softirq raised for another CPU; 6.10 has threads for that (80d2eefcb4c8).
        with running.expecting(r"do_softirq_post_smp_call_flush|\bCall Trace:"):
            yield running
    else:
        yield running
    if request.node.stash.get(FAILED, False):
        replace(request, machines, running)
        return
    try:
        if not shares:
            running.unload()
        found = running.complaints()
    except (CommandError, GuestError):
        replace(request, machines, running)
        raise
    if found:
        replace(request, machines, running)
    if fresh:
        machines.drop()


def replace(request: pytest.FixtureRequest, machines: Machines, running: Guest) -> None:
    """A guest may be in any state: the next test is to have a new one."""
    try:
        found, log = running.complaints(), running.log()
    finally:
        machines.give_up()
    if found:
        complain(request, found, log)


def complain(request: pytest.FixtureRequest, found: list[str], log: str) -> None:
    """The whole log is kept: what led to it, and a trace, are more than single lines."""
    kept = REPO / "build" / f"complaint-{re.sub(r'[^-.0-9A-Za-z]+', '_', request.node.name)}.log"
    kept.write_text(log)
    text = f"the kernel complained (all of its log: {kept}):\n" + "\n".join(found)
    request.config.stash.setdefault(COMPLAINTS, []).append(f"{request.node.nodeid}: {text}")
    pytest.fail(text)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    session.config.stash.get(OUTCOMES, Outcomes()).keep()
    if session.config.stash.get(COMPLAINTS, []):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    for report in terminalreporter.stats.get("rerun", []):
        why = report.longreprtext.splitlines()[-LINES:]
        terminalreporter.write_line("\n".join([f"why {report.nodeid} had a second try:", *why]))
    for text in config.stash.get(COMPLAINTS, []):
        terminalreporter.write_line(text, red=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "machine" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("cpus")
        machines = [
            (name, cpus)
            for name in kernels(metafunc.config)
            for cpus in (mark.args if mark else (1,))
        ]
        ids = [f"{name}-{cpus}cpu" for name, cpus in machines]
        metafunc.parametrize("machine", machines, ids=ids, indirect=True)
    if "ten_cycles" in metafunc.fixturenames:
        metafunc.parametrize("ten_cycles", range(-(-metafunc.config.getoption("--cycles") // 10)))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests for the same guest one after another: a boot takes long."""
    order: dict[object, int] = {}
    for item in items:
        order.setdefault((_machine(item), _kind(item)), len(order))
    items.sort(key=lambda item: order[_machine(item), _kind(item)])
    for item in items:
        if not (machine := _machine(item)):
            continue
        item.add_marker(pytest.mark.flaky(reruns=1, rerun_except="kernel complained"))
        own = item.get_closest_marker("timeout")
        if own and machine[0] in DEBUG:
            item.add_marker(pytest.mark.timeout(DEBUG_SLOWER * own.args[0]), append=False)


def _machine(item: pytest.Item) -> tuple[str, int] | None:
    call = getattr(item, "callspec", None)
    return call.params.get("machine") if call else None


def _kind(item: pytest.Item) -> tuple[bool, bool, bool, str]:
    """The guest that a test needs: one of its own? One that counts instructions? Which nobody sends
    to, as all of the test is inside? Which card?"""
    machine, card = _machine(item), item.get_closest_marker("card")
    model = card.args[0] if card else VIRTIO
    marked = bool(item.get_closest_marker("counted"))
    alone = bool(item.get_closest_marker("keeps_modules")) and model == VIRTIO
    counted = (
        machine is not None
        and machine[0] not in DEBUG
        and not item.get_closest_marker("uncounted")
        and (marked or (alone and machine[1] == 1))
    )
    return bool(item.get_closest_marker("fresh")), counted, counted and alone, model
