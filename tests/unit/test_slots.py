# SPDX-License-Identifier: GPL-2.0-only
"""Where flows are remembered: nobody who chooses addresses and ports has them meet in one slot."""

import random
from collections.abc import Iterator

import pytest
from unit.policy import slot_hash

SLOTS, FLOWS, KEYS = 64, 20, 300
LOCAL = 0x0100000A


def words(remote: int, remote_port: int, local: int = LOCAL, port: int = 5000) -> list[int]:
    """Of IPv4; addresses as they are in memory, read by a CPU of the other byte order."""
    return [remote << 32 | local, remote_port << 16 | port]


def same_sum() -> Iterator[list[int]]:
    for number in range(FLOWS):
        yield words(0x0200000A ^ number << 16, 7000 ^ number)


def of_neighbours() -> Iterator[list[int]]:
    for number in range(FLOWS):
        yield words(0x0000000A | number << 24, 7000)


def to_several_addresses() -> Iterator[list[int]]:
    for number in range(FLOWS):
        yield words(0x0200000A, 7000, LOCAL ^ number << 24)


def of_several_ports() -> Iterator[list[int]]:
    for number in range(FLOWS):
        yield words(0x0200000A, 7000 + number)


def of_a_power_of_two() -> Iterator[list[int]]:
    for number in range(FLOWS):
        yield words(number * 0x04000000 & 0xFFFFFFFF, 7000 + number // 8)


def of_ipv6() -> Iterator[list[int]]:
    for number in range(FLOWS):
        yield [0x20010DB8, number << 32 ^ 0x1000, 0x20010DB8, number << 32, 7000 << 16 | 5000]


WAYS = (
    same_sum,
    of_neighbours,
    to_several_addresses,
    of_several_ports,
    of_a_power_of_two,
    of_ipv6,
)


@pytest.mark.parametrize("flows", WAYS, ids=lambda way: way.__name__)
def test_flows_are_spread_whatever_they_have_in_common(flows: type[Iterator[list[int]]]) -> None:
    dice, taken, crowd = random.Random(1), 0, 0
    for _ in range(KEYS):
        key = [dice.getrandbits(64) | 1 for _ in range(5)]
        slots = [slot_hash(key, flow) * SLOTS >> 64 for flow in flows()]
        taken += len(set(slots))
        crowd += max(slots.count(slot) for slot in slots) > FLOWS // 2
    by_chance = SLOTS * (1 - (1 - 1 / SLOTS) ** FLOWS)
    assert taken / KEYS > 0.85 * by_chance
    assert crowd < KEYS / 10


def test_which_flows_meet_depends_on_the_key() -> None:
    """A pair that meets under one key is no better than another pair under the next."""
    dice = random.Random(2)
    all_flows = [words(dice.getrandbits(32), dice.getrandbits(16)) for _ in range(FLOWS)]
    met = 0
    for _ in range(KEYS):
        key, next_key = ([dice.getrandbits(64) | 1 for _ in range(5)] for _ in range(2))
        first = slot_hash(key, all_flows[0]) * SLOTS >> 64
        for flow in all_flows[1:]:
            if slot_hash(key, flow) * SLOTS >> 64 == first:
                here = slot_hash(next_key, all_flows[0]) * SLOTS >> 64
                met += slot_hash(next_key, flow) * SLOTS >> 64 == here
    assert met < KEYS * len(all_flows) / SLOTS * 4 / SLOTS + 10
