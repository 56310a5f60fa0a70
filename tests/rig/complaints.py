# SPDX-License-Identifier: GPL-2.0-only
"""Finds what a kernel log must not hold."""

import re

PATTERN = re.compile(
    r"""
    \bWARNING:
    | \bBUG:
    | \bINFO:\ (?:rcu|task|possible|suspicious|trying)
    | \bOops\b
    | \bgeneral\ protection\ fault
    | \bKernel\ panic
    | \bKASAN:
    | \bUBSAN:
    | \bkmemleak:\ \d+\ new\ suspected
    | \bCall\ Trace:
    | \bODEBUG:
    | \brefcount_t:
    | \bself-detected\ stall
    | \brcu:.*\bstall
    | \bunregister_netdevice:\ waiting
    | \bblocked\ for\ more\ than
    | \bsleeping\ function\ called
    | \bscheduling\ while\ atomic
    """,
    re.VERBOSE,
)


def complaints(log: str, expected: list[re.Pattern[str]]) -> list[str]:
    """The lines of a kernel log that tell of a defect and were not expected."""
    return [
        line
        for line in log.splitlines()
        if PATTERN.search(line) and not any(e.search(line) for e in expected)
    ]


def tail(log: str) -> str:
    """The end of a log for a message, with the first complaint if there is one."""
    lines = log.splitlines()
    begin = max(0, len(lines) - 40)
    found = (n for n, line in enumerate(lines) if PATTERN.search(line))
    return "\n".join(lines[max(0, min(begin, next(found, begin)) - 5) :][:150])
