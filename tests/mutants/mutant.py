# SPDX-License-Identifier: GPL-2.0-only
"""What a mutant is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str
    test: str  # below tests/
    kernel: str = ""  # one on which it lives, if not on all
