# SPDX-License-Identifier: GPL-2.0-only
"""pf_mm: it comes and goes, and sockets do, while buffers grow."""

import itertools
import os
import random
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

from inside import inside, mark
from inside.growing import FULL, MM, Owner, await_size, granted, limit, owner
from inside.streaming import Stream, small_windows
from inside.suite import ROOT, insmod, rmmod, set_knob, wait_for

pytestmark = mark.ends

LASTING: dict[str, dict[str, object]] = {"pf_mm": {"burst": 0}}  # what stands keeps its room
TRACING = Path("/sys/kernel/tracing")
ENQUEUE = "__udp_enqueue_schedule_skb"


@inside(modules=MM)
def test_where_there_is_no_tracepoint_ftrace_tells() -> None:
    """And no kprobe, which costs more; nothing of it stays when all is switched off."""

    def looks() -> tuple[bool, bool]:
        kprobes = Path("/sys/kernel/debug/kprobes/list").read_text().splitlines()
        works = any(ENQUEUE in line and "[DISABLED]" not in line for line in kprobes)
        return ENQUEUE in (TRACING / "enabled_functions").read_text(), works

    if (TRACING / "events/sock/sk_data_ready").exists():
        assert looks() == (False, False)
        return
    status = (ROOT / "status").read_text()
    assert re.search(rf"^probe: {ENQUEUE} armed +missed 0, by ftrace$", status, re.MULTILINE)
    assert looks() == (True, False)
    for _ in range(3):
        set_knob("enable", 0)
        assert looks() == (False, False)
        set_knob("enable", 1)
        assert looks() == (True, False)
    with owner() as one:
        one.flood(FULL)
        await_size(one, limit(0))


ORDERS = list(itertools.permutations(("pf_filter", "pf_sched", "pf_mm")))


@mark.parametrize("order", ORDERS, ids=str)
@inside(timeout=120, load=False)
def test_modules_come_and_go_in_any_order(order: tuple[str, ...]) -> None:
    insmod("pf_common")
    with owner() as one:
        own = one.size()
        for module in order:
            insmod(module, **LASTING.get(module, {}))
            # Whose buffer stood full without anybody receiving gets nothing past pf_filter.
            one.numbers()
            one.flood(FULL)
            if (ROOT / "mm").exists():
                await_size(one, limit(0))
        for module in order:
            rmmod(module)
            assert one.size() == (limit(0) if (ROOT / "mm").exists() else own)
        rmmod("pf_common")
        assert one.size() == own


@mark.cpus(2)
@inside(timeout=200, modules=MM, pinned=False)
def test_sockets_that_come_and_go_while_they_grow() -> None:
    """Closed, killed, set, at any moment; the sum is the judge, and the kernel's log."""
    chance = random.Random(2)
    with small_windows():
        for turn in range(80):
            with owner(chance.randrange(-20, 20), tcp=turn % 4 == 3) as one:
                child = os.fork()
                if not child:
                    with suppress(OSError):
                        if turn % 4 == 3:
                            Stream(one).fill()
                        else:
                            one.flood(FULL)
                    os._exit(0)
                time.sleep(chance.random() / 50)
                chance.choice((Owner.close, Owner.kill, lambda one: one.ask("set", 9000)))(one)
                os.waitpid(child, 0)
    wait_for(lambda: granted() == 0, 5)


@mark.cpus(2)
@inside(timeout=200, load=False, pinned=False)
def test_loading_and_unloading_while_buffers_grow(ten_cycles: int) -> None:
    Path("/sys/kernel/rcu_expedited").write_text("1")
    insmod("pf_common")
    with owner() as one:
        own = one.size()
        child = os.fork()
        if not child:
            while True:
                with suppress(OSError):
                    one.flood(1000)
        try:
            for _ in range(10):
                insmod("pf_mm", **LASTING["pf_mm"])
                await_size(one, limit(0))
                one.numbers()
                rmmod("pf_mm")
                assert one.size() == own, ten_cycles
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    rmmod("pf_common")
    Path("/sys/kernel/rcu_expedited").write_text("0")
