# SPDX-License-Identifier: GPL-2.0-only
"""Receivers in a container: a network namespace of the guest, and how packets get there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rig.guest import Guest
from rig.traffic import Light

NAME = "pod"
HOST4, POD4 = "10.88.0.1", "10.88.0.2"
HOST_MAC, POD_MAC = "02:88:00:00:00:01", "02:88:00:00:00:02"
FORWARD = "/proc/sys/net/ipv4/ip_forward"
PORTS = "5000-5002"

# What has the host's address of the container's network: its end of the pair, or a bridge.
ROUTED = f"""
ip link set {NAME}0 up && ip address add {HOST4}/24 dev {NAME}0
"""
BRIDGED = f"""
ip link add {NAME}br address {HOST_MAC} type bridge && ip link set {NAME}0 master {NAME}br
ip link set {NAME}0 up && ip link set {NAME}br up && ip address add {HOST4}/24 dev {NAME}br
"""
# As Docker publishes a port.
TRANSLATED = f"""
nft -f - <<'END'
table ip {NAME} {{
    chain in {{
        type nat hook prerouting priority dstnat;
        iif eth0 udp dport {PORTS} dnat to {POD4}
    }}
}}
END
"""


def _made(connected: str) -> str:
    return f"""
set -e
ip netns add {NAME}
ip link add {NAME}0 address {HOST_MAC} type veth peer name eth0 address {POD_MAC} netns {NAME}
{connected}
ip -netns {NAME} link set lo up
ip -netns {NAME} link set eth0 up
ip -netns {NAME} address add {POD4}/24 dev eth0
ip -netns {NAME} route add default via {HOST4}
"""


@contextmanager
def _container(guest: Guest, connected: str) -> Iterator[None]:
    before = guest.read(FORWARD).strip()
    guest.write(FORWARD, "1")
    guest.run(_made(connected))
    try:
        yield
    finally:
        guest.run(f"ip netns delete {NAME}")
        guest.run(f"ip link delete {NAME}0; ip link delete {NAME}br; nft delete table ip {NAME};:")
        guest.write(FORWARD, before)


@contextmanager
def routed(guest: Guest) -> Iterator[Light]:
    """Behind a veth pair, to an address that the host routes there."""
    with _container(guest, ROUTED):
        yield Light(inside=NAME, at=POD4)


@contextmanager
def published(guest: Guest) -> Iterator[Light]:
    """On a bridge, behind destination NAT."""
    with _container(guest, BRIDGED + TRANSLATED):
        yield Light(inside=NAME)
