# SPDX-License-Identifier: GPL-2.0-only
"""pf_sched: its knobs, who may write them, and its line in status."""

import stat
import subprocess
from pathlib import Path

from inside import inside, mark
from inside.grammar import BAD, BAD_NUMBER
from inside.raising import LONG, SCHED, raise_up, starving
from inside.receiver import receiving
from inside.scheduling import libc
from inside.suite import ROOT, takes_only

pytestmark = mark.ends

PR_SET_NAME = 15

KNOBS = {
    "mode": ("observe", "enforce"),
    "lever": ("nice", "group", "deadline", "rr", "auto"),
    "elect": ("0", "16", "2"),
    "threshold": ("1", "100", "50"),
    "levels": ("1", "39", "5"),
    "hold": ("10", "10000", "100"),
    "apart": ("0", "10000", "20"),
    "cap": ("1", "95", "75"),
    "escape": ("1", "0"),
    "exempt": ("a", "sshd,ksmd", "a-b_c.d/0:1", "fifteen-letters", "none"),
}
BAD_FOR = {
    "mode": ["0", "1", "Enforce", "enforced", "enforce observe", "observe\n\n"],
    "lever": ["0", "Nice", "nice,rr", "fifo", "autogroup", "none", "nice\n\n"],
    "elect": [*BAD_NUMBER, "17", "auto", "4294967296"],
    "threshold": [*BAD_NUMBER, "0", "101", "50%"],
    "levels": [*BAD_NUMBER, "0", "40"],
    "hold": [*BAD_NUMBER, "0", "9", "10001", "4294967296", "100ms"],
    "apart": [*BAD_NUMBER, "10001", "4294967296"],
    "cap": [*BAD_NUMBER, "0", "96", "75%"],
    "escape": [*BAD_NUMBER, "2", "yes"],
    "exempt": [",", "a,", ",a", "a,,b", "sixteen-letters-", "a," * 600 + "a", "a\0", "a\n,b"],
}


@mark.parametrize("knob", list(KNOBS))
@inside(modules=SCHED)
def test_a_knob_takes_what_it_should_and_nothing_else(knob: str) -> None:
    good = KNOBS[knob]
    bad = [*BAD_FOR[knob], "\n", "\0", "\n\n", good[0] + "\n\n", "1" * 5000]
    if knob != "exempt":  # a program may have any name
        bad += [*BAD, good[0] + "\r\n", good[0] + " "]
    takes_only(ROOT / "sched" / knob, good, bad)


@inside(modules=SCHED)
def test_its_files_are_its_parameters() -> None:
    files = list((ROOT / "sched").iterdir())
    assert {file.name for file in files} == set(KNOBS)
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o644
        parameter = Path("/sys/module/pf_sched/parameters") / file.name
        assert parameter.read_text() == file.read_text()
        assert stat.S_IMODE(parameter.stat().st_mode) == 0o444


@mark.parametrize("capability", ["net_admin", "sys_nice"])
@inside(modules=SCHED)
def test_only_who_may_schedule_others_writes(capability: str) -> None:
    before = {file: file.read_text() for file in (ROOT / "sched").iterdir()}
    for file in before:
        command = ["setpriv", f"--bounding-set=-{capability}", "sh", "-c", f"echo 1 > {file}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode and "ermi" in done.stderr, file
    assert {file: file.read_text() for file in before} == before


def with_a_name_of_several_lines() -> None:
    libc.prctl(PR_SET_NAME, b"a\nraised: \x1b[m")


@inside(modules=SCHED)
def test_a_name_does_not_make_a_line_of_its_own() -> None:
    with starving("nice", hogs=1, hold=LONG), receiving(with_a_name_of_several_lines) as one:
        raise_up(one, "nice")
        lines = (ROOT / "status").read_text().splitlines()
        (line,) = [line for line in lines if line.startswith("raised: ")]
        assert line.startswith(f"raised: thread {one.tid} (a_raised:__[m) ")
