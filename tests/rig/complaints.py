# SPDX-License-Identifier: GPL-2.0-only
"""Finds what a kernel log must not hold."""

import re
from collections.abc import Collection

PATTERN = re.compile(
    r"""
    \bWARNING:
    | \bBUG\b
    | \bINFO:\ (?:rcu|task|possible|suspicious|trying|lockdep)
    | \bOops\b
    | \[\#\d+\]  # an exception, whatever its name: the number of those that were fatal
    | \bgeneral\ protection\ fault
    | \bKernel\ panic
    | \bKASAN:
    | \bUBSAN:
    | \bkmemleak:\ \d+\ new\ suspected
    | \b(?:leak\ detector|ODEBUG)\ disabled
    | \bCall\ Trace:
    | \bODEBUG:\ (?!selftest\ passed)
    | \brefcount_t:
    | \blist_(?:add|del)\ corruption
    | \bself-detected\ stall
    | \brcu:.*\b(?:stall|starved)
    | \bhard\ LOCKUP
    | \bunregister_netdevice:\ waiting
    | \bblocked\ for\ more\ than
    | \bsleeping\ function\ called
    | \bscheduling\ while\ atomic
    """,
    re.VERBOSE,
)

# KCSAN knows the rest of the kernel to be full of races that are its own affair. Ours are those
# where one of the two accesses is made by a function of ours, which the headline tells.
NOT_OURS = re.compile(r"\bBUG: KCSAN: (?!.*\[pf_)")


def complaints(log: str, expected: Collection[int] = ()) -> list[str]:
    """The lines of a kernel log that tell of a defect, but for those of these numbers."""
    return [
        line
        for number, line in enumerate(log.splitlines())
        if _complains(line) and number not in expected
    ]


def tail(log: str) -> str:
    """The end of a log for a message, with the first complaint if there is one."""
    lines = log.splitlines()
    begin = max(0, len(lines) - 40)
    found = (n for n, line in enumerate(lines) if _complains(line))
    return "\n".join(lines[max(0, min(begin, next(found, begin)) - 5) :][:150])


def _complains(line: str) -> bool:
    return bool(PATTERN.search(line)) and not NOT_OURS.search(line)
