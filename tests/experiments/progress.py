# SPDX-License-Identifier: GPL-2.0-only
"""Progress for people: every line with the seconds since the start."""

from __future__ import annotations

import sys
import time


class Say:
    """Prints lines to standard error, so that a result can be redirected."""

    def __init__(self) -> None:
        self.started = time.monotonic()

    def __call__(self, text: str) -> None:
        print(f"[{time.monotonic() - self.started:5.0f} s] {text}", file=sys.stderr, flush=True)
