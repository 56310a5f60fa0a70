# SPDX-License-Identifier: GPL-2.0-only
"""Allocations of ours fail, each in its turn: an error, and nothing else.

On debug kernels, whose log tells of what is left behind in memory.
"""

import errno
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from inside import inside, mark
from inside.failing import failing, load, prepare
from inside.suite import (
    ALL,
    ROOT,
    insmod,
    rmmod,
    write,
)

# The kernel shows who asked for a cache that there is no memory for. Complaints have a headline.
# What it has lost is looked at by the test itself.
SAYS = r"Call Trace:$|kmemleak: \d+ new suspected"
KMEMLEAK = Path("/sys/kernel/debug/kmemleak")


def left() -> dict[str, object]:
    """What shows of us: modules, files, probes."""
    modules = Path("/proc/modules").read_text().splitlines()
    return {
        "modules": sorted(line.split()[0] for line in modules),
        "files": sorted(str(path) for path in ROOT.rglob("*")),
        "kprobes": Path("/sys/kernel/debug/kprobes/list").read_text(),
        "functions": Path("/sys/kernel/tracing/enabled_functions").read_text(),
        "caches": Path("/sys/kernel/slab/pflow_sock").exists(),
    }


def fails_cleanly(do: Callable[[], object], undo: Callable[[], object], least: int) -> None:
    """Each failure is ENOMEM and changes nothing; so many are found, though not all are tried."""
    before, refused = left(), 0
    for error in failing(do):
        if error:
            assert error.errno == errno.ENOMEM, error
            refused += 1
        else:
            undo()
        assert left() == before
    assert refused >= least
    do()
    undo()


def nothing_of_ours_is_lost() -> None:
    """The kernel itself loses the name of a cache that it cannot show in sysfs."""
    if not KMEMLEAK.exists():
        return
    time.sleep(6)  # what is younger than 5 s is not looked at
    for _ in range(2):
        KMEMLEAK.write_text("scan")
    lost = KMEMLEAK.read_text().split("unreferenced object")[1:]
    assert [one for one in lost if "sysfs_slab_add" not in one] == []
    KMEMLEAK.write_text("clear")


@mark.debug()
@mark.timeout(3600)
@mark.parametrize(
    "module, least", [("pf_common", 20), ("pf_filter", 5), ("pf_sched", 5), ("pf_mm", 1)]
)
@inside(load=False, timeout=3000, expect=SAYS)
def test_a_module_that_is_refused_memory_is_refused(module: str, least: int) -> None:
    prepare()
    Path("/sys/kernel/rcu_expedited").write_text("1")
    with ExitStack() as stack:
        if module != "pf_common":
            insmod("pf_common")
            stack.callback(rmmod, "pf_common")
        fails_cleanly(lambda: load(module), lambda: rmmod(module), least)
    nothing_of_ours_is_lost()


@mark.debug()
@mark.parametrize(
    "knob, value",
    [("filter/exempt", "5000-5010,from:53"), ("mm/exempt", "5000"), ("sched/exempt", "chronyd")],
)
@inside(modules=ALL)
def test_a_list_that_is_refused_memory_stays_as_it_is(knob: str, value: str) -> None:
    prepare()
    file = ROOT / knob
    own = file.read_text()
    refused = 0
    for error in failing(lambda: write(file, value)):
        assert file.read_text() == (own if error else value + "\n")
        assert not error or error.errno == errno.ENOMEM
        refused += error is not None
        write(file, own)
    assert refused >= 2  # the text and the list


@mark.debug()
@mark.parametrize("name", ["status", "metrics", "sockets", "enable", "filter/exempt"])
@inside(modules=ALL)
def test_a_file_that_is_refused_memory_is_not_opened(name: str) -> None:
    prepare()
    found = []
    errors = [e for e in failing(lambda: found.append((ROOT / name).read_text())) if e]
    assert {error.errno for error in errors} <= {errno.ENOMEM}
    assert all(text.startswith(found[0][:5]) and text.endswith("\n") for text in found)
