# SPDX-License-Identifier: GPL-2.0-only
"""Child processes that do something over and over while a test does something else."""

import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn


def _repeat(action: Callable[[], object]) -> NoReturn:
    try:
        while True:
            with suppress(OSError):
                action()
    except BaseException:
        traceback.print_exc()
    os._exit(1)


@contextmanager
def busy(*actions: Callable[[], object]) -> Iterator[None]:
    """A child process for each action. What the system refuses it is tried again."""
    children = []
    for action in actions:
        child = os.fork()
        if not child:
            _repeat(action)
        children.append(child)
    try:
        yield
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
        ends = [os.waitpid(child, 0)[1] for child in children]
    assert all(map(os.WIFSIGNALED, ends)), "a child ended by itself"
