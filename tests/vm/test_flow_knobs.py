# SPDX-License-Identifier: GPL-2.0-only
"""pf_flow: its knobs, and the parameters that set them at once."""

import stat
from pathlib import Path

from inside import inside, mark
from inside.flows import FLOW
from inside.grammar import BAD_NUMBER, never_taken
from inside.suite import ROOT, takes_only

pytestmark = mark.ends

KNOBS = {
    "memory": ("1", "1024", "64"),
    "exempt": ("1", "65535", "53,100-110", "none", "68,546"),
    "scheduler": ("rank", "eevdf"),
    "server": ("thread", "softirq"),
}
BAD_FOR = {
    "memory": [*BAD_NUMBER, "0", "1025", "64M", "4294967360"],
    "exempt": ["0", "65536", "1-", "-1", "2-1", "1-2-3", "1,,2", ",1", "1,", "1,none"],
    "scheduler": ["0", "1", "EEVDF", "eevdf,rank", "eevdf rank", "ranks"],
    "server": ["0", "1", "Thread", "softirq thread", "threads", "none"],
}


@mark.parametrize("knob", list(KNOBS))
@inside(modules=FLOW)
def test_a_knob_takes_what_it_should_and_nothing_else(knob: str) -> None:
    good = KNOBS[knob]
    takes_only(ROOT / "flow" / knob, good, [*BAD_FOR[knob], *never_taken(good[0])])


GIVEN = {"memory": "3", "exempt": "9,11-12", "scheduler": "rank", "server": "thread"}


@inside(modules=FLOW, flow={**GIVEN})
def test_its_parameters_count_from_the_start() -> None:
    assert set(KNOBS) < {file.name for file in (ROOT / "flow").iterdir()}
    parameters = {file.name for file in Path("/sys/module/pf_flow/parameters").iterdir()}
    assert parameters == set(KNOBS)
    for knob, value in GIVEN.items():
        file = ROOT / "flow" / knob
        parameter = Path("/sys/module/pf_flow/parameters") / knob
        assert file.read_text() == parameter.read_text() == value + "\n"
        assert stat.S_IMODE(file.stat().st_mode) == 0o644
        assert stat.S_IMODE(parameter.stat().st_mode) == 0o444
