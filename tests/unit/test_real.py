# SPDX-License-Identifier: GPL-2.0-only
"""R1 and R2: real programs beside floods."""

from pathlib import Path

import pytest
from experiments import real, report, result, show
from experiments.measure import Closing
from rig.guest import Guest
from rig.kernels import Kernel

GUEST = Guest(Kernel("6.1", "6.1.0", *[Path("/")] * 2))
# The columns that matter, of a file that sipp 3.7 wrote.
CALLER = """\
OutgoingCall(C);SuccessfulCall(C);FailedCall(C);Retransmissions(C);ResponseTime1(C);
120;118;0;10;00:00:00:022000;
400;396;4;286;00:00:01:710500;
"""


def served(got: int, again: int | None = None, answer_ms: float | None = None) -> real.Run:
    work = real.Served(1000, got, again, answer_ms)
    return real.Run(work, [19e3, 19e3], [9e3, 8e3], Closing(1.0, 100, 90, 5, 2, 1), 0.02)


def rows(found: result.Json) -> dict[str, list[str]]:
    return {line.split()[0]: line.split() for line in show.table(found).splitlines()}


def test_a_callers_last_line_is_of_all_calls() -> None:
    found = real.answered(CALLER)
    assert (found.asked, found.served, found.again) == (400, 396, 286)
    assert found.answer_ms == pytest.approx(1710.5)


def test_lines_that_are_lost_are_a_share_of_those_sent() -> None:
    runs = {"stock": [served(500)], "stock2": [served(480)], "filter": [served(990)]}
    found = real.result_json("R1", GUEST, runs)
    assert found["noise"] == pytest.approx(0.02)
    assert found["arms"]["filter"]["lost"] == [0.01] and "again" not in found["arms"]["stock"]
    assert rows(found)["stock"][1:4] == ["1000", "50.00%", "(50.00%-50.00%)"]
    assert rows(found)["stock"][-2:] == ["2%", "+2.00%"]
    assert "percent" in report.section(found)


def test_calls_have_answers_and_messages_sent_again() -> None:
    runs = {name: [served(1000, again=28, answer_ms=71.5)] for name in ("stock", "stock2")}
    assert rows(real.result_json("R2", GUEST, runs))["stock"][4:6] == ["28", "71.5"]
