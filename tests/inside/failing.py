# SPDX-License-Identifier: GPL-2.0-only
"""Allocations that fail, on kernels that can be told to let them.

Only those are counted, and fail, that are made with a module's function on the stack. All else
is built in there, so they are ours, those that the kernel makes for us included.
"""

import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from inside.suite import stripped

KINDS = [Path("/sys/kernel/debug") / name for name in ("failslab", "fail_page_alloc")]
SETTINGS = {
    "require-start": 0xFFFFFFFFA0000000,  # where modules are: arch/x86/x86_64/mm.rst of Linux
    "require-end": 0xFFFFFFFFFF000000,
    "stacktrace-depth": 32,
    "ignore-gfp-wait": "N",
    "ignore-gfp-highmem": "N",
    "min-order": 0,
    "verbose": 0,
}
NTH = Path("/proc/thread-self/fail-nth")
FINIT_MODULE = 313

OPTIONAL_IN_A_ROW = 3


def prepare() -> None:
    for kind in KINDS:
        for name, value in SETTINGS.items():
            if (kind / name).exists():
                (kind / name).write_text(f"{value}")


def load(module: str) -> None:
    """Load a module of the project from this very thread; OSError tells why not."""
    libc = ctypes.CDLL(None, use_errno=True)
    file = os.open(stripped(module), os.O_RDONLY)
    try:
        if libc.syscall(FINIT_MODULE, file, b"", 0):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), module)
    finally:
        os.close(file)


def attempt(action: Callable[[], object], nth: int) -> tuple[bool, OSError | None]:
    """Whether there was such an allocation, so that it failed; and what the action said."""
    error = None
    NTH.write_text(f"{nth}")
    try:
        action()
    except OSError as caught:
        error = caught
    left = int(NTH.read_text())
    NTH.write_text("0")
    return not left, error


def failing(action: Callable[[], object]) -> Iterator[OSError | None]:
    """Do it with its first allocation failing, its second, and so on; what it said to each.

    Where it does not mind many in a row, as with a pool that is filled, some are left out.
    """
    good, step, growing, in_a_row = 0, 1, True, 0
    while True:
        failed, error = attempt(action, good + step)
        if failed and not error:
            good += step
            in_a_row += 1
            if growing and in_a_row > OPTIONAL_IN_A_ROW:
                step *= 2
        elif step > 1:
            # Too far: where it begins to mind is in between.
            step, growing = step // 2, False
        elif failed:
            good, growing, in_a_row = good + 1, True, 0
        else:
            assert not error, error
            yield None
            return
        yield error
