# SPDX-License-Identifier: GPL-2.0-only
"""Keeps a CPU under pressure, as a program in the guest: python3 -m inside.pressed CPU.

It tells in /run/pressed-CPU how often it looked whether packets are judged there, and how often
they were.
"""

import os
import sys
import time
from pathlib import Path

from inside.net import Pressure
from inside.suite import judging

APART = 0.1  # seconds
LOOK = 10  # rounds
AT_ONCE = 16  # packets, dropped early: then to look at packets pays


def main(cpu: int) -> None:
    os.sched_setaffinity(0, {cpu})
    looks = found = 0
    made = Pressure()
    made.raise_()
    for number in range(sys.maxsize):
        for _ in range(AT_ONCE):
            made.again()
        if number % LOOK == 0:
            looks += 1
            found += judging(cpu)
            told = Path(f"/run/pressed-{cpu}.part")
            told.write_text(f"{looks} {found}\n")
            told.rename(f"/run/pressed-{cpu}")
        time.sleep(APART)


if __name__ == "__main__":
    main(int(sys.argv[1]))
