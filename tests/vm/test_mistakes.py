# SPDX-License-Identifier: GPL-2.0-only
"""Do debug kernels catch the mistakes that they are for, in a module like ours?

A check that is off, or that was not compiled into modules, finds nothing and so passes all.
"""

import time
from pathlib import Path

import pytest
from rig.guest import Guest
from rig.module import built, made

SOURCE = Path(__file__).parent / "mistakes"

# What the kernel says to each, in its log.
COMMON = {
    "index_out_of_bounds": "UBSAN: array-index-out-of-bounds",
    "shift_out_of_bounds": "UBSAN: shift-out-of-bounds",
    "sleep_in_atomic": "BUG: sleeping function called from invalid context",
    "add_twice": " at lib/list_debug.c:",
    "hang": "INFO: task insmod:",
    "hold_cpu": "watchdog: BUG: soft lockup",
}
KASAN = {
    # First of all: any report of KASAN's, and the second of these, turns lockdep off.
    "rcu_unlocked": "WARNING: suspicious RCU usage",
    "lock_both_ways": "WARNING: possible circular locking dependency detected",
    "write_behind_slab": "BUG: KASAN: slab-out-of-bounds in ",
    "read_behind_vmalloc": "BUG: KASAN: vmalloc-out-of-bounds in ",
    "use_after_free": "use-after-free in ",
    "free_active": "ODEBUG: free active",
    "leak": "new suspected memory leaks",
}
KCSAN = {"race": "BUG: KCSAN: data-race in "}


def noticed(guest: Guest, module: Path, mistake: str, text: str) -> bool:
    """Whether the kernel says so once the module has made the mistake."""
    before = len(guest.complaints())
    made(guest, module, f"make={mistake}")
    if mistake == "leak":
        guest.scan_for_leaks()
    end = time.monotonic() + 5 * guest.dilation
    while time.monotonic() < end:
        if any(text in line for line in guest.complaints()[before:]):
            return True
        time.sleep(0.2)
    return False


@pytest.mark.debug
@pytest.mark.fresh
@pytest.mark.timeout(1800)
def test_a_kernel_notices_the_mistakes_that_it_is_for(guest: Guest) -> None:
    module = built(guest, SOURCE)
    guest.write("/proc/sys/kernel/hung_task_timeout_secs", "2")
    guest.write("/proc/sys/kernel/watchdog_thresh", "1")
    expected = (KCSAN if guest.kernel.name == "kcsan" else KASAN) | COMMON
    with guest.expecting(""):
        missed = [name for name, text in expected.items() if not noticed(guest, module, name, text)]
    assert not missed
