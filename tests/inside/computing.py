# SPDX-License-Identifier: GPL-2.0-only
"""Computing, by instructions that cost an emulating host little (rig/src/nops.h)."""

import ctypes
import functools
import time

from inside import TESTS

COMPUTE = TESTS.parent / "build" / "rig" / "compute.so"


@functools.cache
def _computing() -> ctypes.CDLL:
    return ctypes.CDLL(str(COMPUTE))


def compute(instructions: int = 5_000) -> None:
    """Execute about so many, more than this call itself takes."""
    _computing().compute(ctypes.c_uint64(instructions))


def spin(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        compute()


def hog() -> None:
    while True:
        compute(1_000_000)
