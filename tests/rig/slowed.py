# SPDX-License-Identifier: GPL-2.0-only
"""A receive path that is too slow for what is sent, on a host however fast."""

from collections.abc import Iterator
from contextlib import contextmanager

from rig.guest import Guest


@contextmanager
def slowed(guest: Guest, family: str, hook: str, rules: int) -> Iterator[None]:
    """Have each packet pass so many rules at a hook of nftables."""
    lines = [f"table {family} slowed {{", "chain rules {", f"type filter hook {hook} priority 0;"]
    lines += ["meta mark 1 drop"] * rules + ["}", "}"]
    guest.write("/run/slowed.nft", "\n".join(lines))
    guest.run("nft -f /run/slowed.nft")
    try:
        yield
    finally:
        guest.run(f"nft delete table {family} slowed")
