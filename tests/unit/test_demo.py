# SPDX-License-Identifier: GPL-2.0-only
"""What the demonstration shows, without running anything."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from experiments import chart, demo, result, runner, sweep
from experiments.measure import Account, Closing, Load, Run
from rig.guest import Guest
from rig.kernels import Kernel
from rig.traffic import IPERF3, LIGHT, Tool

GUEST = Guest(Kernel("6.12", "6.12.0", *[Path("/")] * 2), icount=True)
LOAD = Load(ports=(1, 2, 3), nices=(0, 5, 10), pps=12e3)
STOCK, OURS, BY_HAND = (100, 100, 0), (12e3, 3600, 300), (12e3, 0, 0)


def run(pps: tuple[float, ...]) -> Run:
    accounts = [Account(24_000, round(2 * one), one, 0, {}) for one in pps]
    received = sum(one.received for one in accounts)
    closing = Closing(2.0, 72_000, received, 0, 0, 72_000 - received)
    return Run(accounts, closing, 0.1, 0.0, {}, [])


def contained() -> result.Json:
    found = {"stock": STOCK, "stock2": STOCK, "all": OURS, "shed-all": BY_HAND}
    step = sweep.Step(LOAD, {name: [run(pps)] for name, pps in found.items()})
    return sweep.result_json("C1-nat", GUEST, [step])


def flooded() -> result.Json:
    runs = {name: [run(STOCK)] for name in ("stock", "stock2", "all", "all-xdp")}
    return result.result_json("U1", GUEST, "light", LOAD, runs)


def asked() -> result.Json:
    found = {"stock": 5.0, "stock2": 5.0, "all": 90.0, "all-xdp": 95.0, "shed-all": 100.0}
    closing = {"sent": 1, "unaccounted": 0}
    arms = {
        name: {
            **{figure: [per_s] for figure in ("answers_per_s", "p50_ms", "p99_ms")},
            "errors": [0],
            "received_pps": [[0.0, 0.0]],
            "idle": [0.0],
            "accounts": [closing],
        }
        for name, per_s in found.items()
    }
    part = {"part": "kept alive", "floods": True, "noise": 0.0, "arms": arms}
    heading = result.heading("W1", GUEST)
    return {**heading, "nices": [0, 10, 10], "pps": 22e3, "parts": [part]}


def test_receivers_in_a_container_stand_beside_stock_and_what_is_got_by_hand() -> None:
    title, *lines = chart.text(contained()).splitlines()
    assert title == "C1-nat: receivers in a container, behind NAT; 12 kpps sent to each"
    rows = [line for line in lines if line]
    assert len(rows) == 3 * 4
    assert [row.split()[-2] for row in rows[:3]] == ["0.1", "12.0", "12.0"]
    assert [row.split()[-2] for row in rows[-3:]] == ["0.2", "15.9", "12.0"]
    assert {row.index(row.split()[-3][0]) for row in rows} == {rows[0].index("·")}


def test_what_is_dropped_in_the_driver_has_a_bar_where_it_was_measured() -> None:
    for found in (flooded(), asked()):
        assert "dropped in the driver" in chart.text(found)
    assert "dropped in the driver" not in chart.text(contained())


def test_a_panel_of_receivers_in_a_container_has_a_bar_for_each_state_and_receiver() -> None:
    figure = chart.compose([flooded(), contained()])
    first, second = figure.axes
    assert (len(first.patches), len(second.patches)) == (3 * 4, 3 * 4)
    assert [one.get_text() for one in figure.legends[0].get_texts()] == [
        "stock kernel",
        "with PacketFlow",
        "dropped in the driver",
        "others dropped by hand",
    ]


def test_bars_of_one_group_do_not_hide_each_other() -> None:
    for panel in chart.compose([flooded(), contained()]).axes:
        places = sorted(list(one.get_extents().intervalx) for one in panel.patches)
        assert all(end < start for (_, end), (start, _) in pairwise(places))


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """In the order in which it would."""
    ran: list[str] = []

    def showing(name: str, found: result.Json) -> None:
        def step(*_: object) -> result.Json:
            ran.append(name)
            return found

        monkeypatch.setattr(demo, name, step)

    @contextmanager
    def booted(kernel: Kernel, clock: runner.Clock, _say: object) -> Iterator[Guest]:
        yield Guest(kernel, icount=clock.counted)

    monkeypatch.setattr(runner, "booted", booted)
    for name, found in (("ask", asked()), ("flood", flooded()), ("publish", contained())):
        showing(name, found)
    return ran


@pytest.mark.parametrize(
    ("tool", "counted", "ran", "shown"),
    [
        # The web server last: for that the guest is changed in a way that shifts rates.
        (LIGHT, True, ["flood", "publish", "ask"], ["W1", "U1", "C1-nat"]),
        (LIGHT, False, ["flood"], ["U1"]),
        (IPERF3, False, ["flood"], ["U1"]),
    ],
)
def test_all_that_is_run_is_shown_and_kept(
    tool: Tool,
    counted: bool,
    ran: list[str],
    shown: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    nothing_runs: list[str],
) -> None:
    clock = runner.Clock(counted)
    demo.run(GUEST.kernel, tool, None, clock, tmp_path, lambda _: None)
    assert nothing_runs == ran
    said = capsys.readouterr().out
    titles = [said.index(f"{name}: {chart.EXPLAINED[name]}") for name in shown]
    assert titles == sorted(titles)
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {*(f"{name}.json" for name in shown), "packetflow.png", "packetflow.svg"}


def test_what_is_published_is_beside_stock_and_the_ceiling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked_for: list[object] = []
    monkeypatch.setattr(sweep, "run", lambda *given: asked_for.extend(given))
    demo.publish(GUEST, lambda _: None)
    name, _, arms, repeats, _, rates, _ = asked_for
    assert (name, arms, repeats) == ("C1-nat", ["all", "shed-all"], 1)
    assert rates == [demo.PUBLISHED_PPS]
    assert demo.PUBLISHED_PPS in sweep.EXPERIMENTS["C1-nat"].pps
