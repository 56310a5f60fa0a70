# SPDX-License-Identifier: GPL-2.0-only
"""Receivers in containers: network namespaces of the guest, and how packets get there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rig.guest import Guest
from rig.traffic import Light

PODS = ("pod", "pod2")
HOST4, POD4S = "10.88.0.1", ("10.88.0.2", "10.88.0.3")
FORWARD = "/proc/sys/net/ipv4/ip_forward"
PORTS = "5000-5002"

# What has the host's address of the containers' network: its end of the pair, or a bridge.
ROUTED = f"ip link set pod0 up && ip address add {HOST4}/24 dev pod0"
BRIDGED = f"""
ip link add podbr type bridge && ip link set podbr up && ip address add {HOST4}/24 dev podbr
for end in pod0 pod20; do
  [ ! -e /sys/class/net/$end ] || ip link set $end master podbr up
done
"""


def _published(*rules: str) -> str:
    """Destination NAT of what comes to the card, as Docker publishes ports."""
    chain = "".join(f"iif eth0 {rule}; " for rule in rules)
    hook = "type nat hook prerouting priority dstnat;"
    return f"nft 'table ip pod {{ chain in {{ {hook} {chain}}}; }}'"


def _made(pods: int, connected: str) -> str:
    one = """
ip netns add {0}
ip link add {0}0 type veth peer name eth0 netns {0}
ip -netns {0} link set lo up
ip -netns {0} link set eth0 up
ip -netns {0} address add {1}/24 dev eth0
ip -netns {0} route add default via {2}
"""
    made = [one.format(PODS[i], POD4S[i], HOST4) for i in range(pods)]
    return "\n".join(["set -e", *made, connected])


@contextmanager
def _containers(guest: Guest, pods: int, *connected: str) -> Iterator[None]:
    before = guest.read(FORWARD).strip()
    guest.write(FORWARD, "1")
    guest.run(_made(pods, "\n".join(connected)))
    try:
        yield
    finally:
        for pod in PODS[:pods]:
            guest.run(f"ip netns delete {pod}; ip link delete {pod}0; :")
        guest.run("ip link delete podbr; nft delete table ip pod; :")
        guest.write(FORWARD, before)


@contextmanager
def routed(guest: Guest) -> Iterator[Light]:
    """One behind a veth pair, at an address that the host routes there."""
    with _containers(guest, 1, ROUTED):
        yield Light(inside=PODS[0], at=POD4S[0])


@contextmanager
def published(guest: Guest) -> Iterator[Light]:
    """One on a bridge, behind destination NAT."""
    rule = _published(f"udp dport {PORTS} dnat to {POD4S[0]}")
    with _containers(guest, 1, BRIDGED, rule):
        yield Light(inside=PODS[0])


@contextmanager
def neighbours(guest: Guest, port: int) -> Iterator[Light]:
    """Two on a bridge; one has a server at that port, the other one receives datagrams."""
    rules = f"tcp dport {port} dnat to {POD4S[0]}", f"udp dport {PORTS} dnat to {POD4S[1]}"
    with _containers(guest, 2, BRIDGED, _published(*rules)):
        yield Light(inside=PODS[1])
