# SPDX-License-Identifier: GPL-2.0-only
"""pf_mm: its knobs, and the parameters that set them at once."""

import stat
from pathlib import Path

from inside import inside, mark
from inside.grammar import BAD_NUMBER, never_taken
from inside.growing import FULL, MM, granted, owner
from inside.suite import ROOT, metric, takes_only, wait_for

pytestmark = mark.ends

KNOBS = {
    "mode": ("observe", "enforce"),
    "default_size": ("4", "262144", "500"),
    "scale": ("10", "10000", "100"),
    "budget": ("0", "1", "1073741824", "auto"),
    "burst": ("0", "60000", "200"),
    "max_delay": ("1", "60000", "0"),
    "override_locked": ("1", "0"),
    "exempt": ("1", "65535", "53,100-110", "none"),
}
BAD_FOR = {
    "mode": ["0", "1", "Enforce", "enforced", "enforce observe", "observe\n\n"],
    "default_size": [*BAD_NUMBER, "0", "3", "262145", "500K"],
    "scale": [*BAD_NUMBER, "0", "9", "10001", "100%"],
    "budget": [*BAD_NUMBER, "Auto", "automatic", "1073741825", "4294967295", "4294967296"],
    "burst": [*BAD_NUMBER, "60001", "4294967296", "5ms"],
    "max_delay": [*BAD_NUMBER, "60001", "4294967296", "5ms"],
    "override_locked": [*BAD_NUMBER, "2", "yes"],
    "exempt": ["0", "65536", "1-", "-1", "2-1", "1-2-3", "1,,2", ",1", "1,", "from:1", "1,none"],
}


@mark.parametrize("knob", list(KNOBS))
@inside(modules=MM)
def test_a_knob_takes_what_it_should_and_nothing_else(knob: str) -> None:
    good = KNOBS[knob]
    takes_only(ROOT / "mm" / knob, good, [*BAD_FOR[knob], *never_taken(good[0])])


@inside(modules=MM)
def test_its_files_are_its_parameters() -> None:
    files = list((ROOT / "mm").iterdir())
    assert {file.name for file in files} == set(KNOBS)
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o644
        parameter = Path("/sys/module/pf_mm/parameters") / file.name
        assert parameter.read_text() == file.read_text()
        assert stat.S_IMODE(parameter.stat().st_mode) == 0o444


@inside(modules=MM, mm={"budget": 64, "default_size": 300, "scale": 200, "exempt": "9,11-12"})
def test_parameters_count_from_the_start() -> None:
    assert (ROOT / "mm/exempt").read_text() == "9,11-12\n"
    assert metric("packetflow_mm_budget_bytes")[""] == 64 << 10
    with owner() as one:
        own = one.size()
        one.flood(FULL)
        wait_for(lambda: one.size() == own + (64 << 10))
        assert granted() == 64 << 10
