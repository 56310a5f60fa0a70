# SPDX-License-Identifier: GPL-2.0-only
"""The link between the sender and a guest.

The sender is the current network namespace with a tap device; the guest has
virtio-net on that tap, or a card that counts what it loses itself. Where the guest's
clock counts instructions nothing outside lives in its time, so the sender is inside: a
network namespace of the guest with a virtio-net device of its own, wired to the
receiving one, on a CPU of its own. Neighbours are static, so that no packet but
the experiment's own is ever on the link.

A guest that routes has a second link, from a card of its own to a second namespace: what
comes to it from the sender and is for the far network leaves it there, and the other way
round.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TAP = "pf0"
TAP_DROPS = Path("/sys/class/net") / TAP / "statistics/tx_dropped"
INSIDE, INSIDE_DEVICE = "sender", "eth1"  # its network namespace, where it is in the guest
FAR, FAR_DEVICE, OUT_DEVICE = "far", "eth3", "eth2"  # the second link, where the guest routes
# The wire's grain: so long a sender's packets may wait, and a CPU for its turn.
GRAIN_US = 50
SENDER4, GUEST4 = "10.77.0.1", "10.77.0.2"
SENDER6, GUEST6 = "fd77::1", "fd77::2"
NETWORK4 = "10.77.0.0/24"
FAR_NETWORK4 = "10.78.0.0/24"
FAR4, OUT4 = "10.78.0.1", "10.78.0.2"
FAR6, OUT6 = "fd78::1", "fd78::2"
FAR_NOBODY4 = "10.78.0.9"  # on the far network; what is for it ends on the wire
VIRTIO = "virtio-net-pci"
# Other cards, and the drivers that a guest loads for them.
DRIVERS = {"rtl8139": "8139cp"}
SENDER_MAC, GUEST_MAC = "02:77:00:00:00:01", "02:77:00:00:00:02"
FAR_MAC, OUT_MAC = "02:78:00:00:00:01", "02:78:00:00:00:02"
NOBODY_MAC = "02:78:00:00:00:09"  # no card takes a frame for it


def _configuration(
    device: str, mac: str, own: tuple[str, str], peer: str, far: tuple[str, str]
) -> str:
    """Commands for "ip -batch" that set up one end."""
    return f"""\
link set {device} address {mac} addrgenmode none
link set {device} up
address add {own[0]}/24 dev {device}
address add {own[1]}/64 dev {device} nodad
neighbour replace {far[0]} lladdr {peer} dev {device} nud permanent
neighbour replace {far[1]} lladdr {peer} dev {device} nud permanent
"""


def guest_configuration() -> str:
    """What the guest's end needs."""
    return _configuration("eth0", GUEST_MAC, (GUEST4, GUEST6), SENDER_MAC, (SENDER4, SENDER6))


def inside_configuration() -> str:
    """What the sender's end needs where it is in the guest."""
    return _configuration(
        INSIDE_DEVICE, SENDER_MAC, (SENDER4, SENDER6), GUEST_MAC, (GUEST4, GUEST6)
    )


def out_configuration() -> list[str]:
    """The same of the second link, the guest's end and the far one."""
    out, far = (OUT4, OUT6), (FAR4, FAR6)
    return [
        _configuration(OUT_DEVICE, OUT_MAC, out, FAR_MAC, far)
        + f"neighbour replace {FAR_NOBODY4} lladdr {NOBODY_MAC} dev {OUT_DEVICE} nud permanent\n",
        _configuration(FAR_DEVICE, FAR_MAC, far, OUT_MAC, out)
        + f"route add {NETWORK4} via {OUT4}\n",
    ]


def _card(netdev: str, mac: str, at: int, timed: bool) -> list[str]:
    """Timers of the guest's clock hand on what it sends: no thread of the host has a say in
    when."""
    by_timer = f",ioeventfd=off,tx=timer,x-txtimer={GRAIN_US * 1000}" if timed else ""
    return ["-device", f"{VIRTIO},netdev={netdev},mac={mac},romfile=,addr={at:#x}{by_timer}"]


def wired(routed: bool) -> list[str]:
    """QEMU's options for both ends in the guest, the receiving one first; and for a second
    link."""
    # QEMU's CPUs take turns up to the next timer, so a steady one keeps them short.
    options = [
        *("-netdev", "hubport,id=net,hubid=0", "-netdev", "hubport,id=sender,hubid=0"),
        *_card("net", GUEST_MAC, 0x10, routed),
        *_card("sender", SENDER_MAC, 0x11, True),
        *("-object", f"filter-buffer,id=beat,netdev=net,interval={GRAIN_US}"),
    ]
    if routed:
        options += ["-netdev", "hubport,id=out,hubid=1", "-netdev", "hubport,id=far,hubid=1"]
        options += [*_card("out", OUT_MAC, 0x12, True), *_card("far", FAR_MAC, 0x13, True)]
    return options


@contextmanager
def tap(queues: int, card: str = VIRTIO) -> Iterator[list[str]]:
    """The sender's end while it lasts; gives QEMU's options for the guest's end."""
    multi = ["multi_queue"] if queues > 1 else []
    _ip("tuntap", "add", TAP, "mode", "tap", *multi)
    try:
        ours = _configuration(TAP, SENDER_MAC, (SENDER4, SENDER6), GUEST_MAC, (GUEST4, GUEST6))
        _ip("-batch", "-", input=ours)
        backend = f"tap,id=net,ifname={TAP},script=no,downscript=no,vhost=off,queues={queues}"
        vectors = f",mq=on,vectors={2 * queues + 2}" if queues > 1 else ""
        device = f"{card},netdev=net,mac={GUEST_MAC},romfile={vectors}"
        yield ["-netdev", backend, "-device", device]
    finally:
        _ip("link", "delete", TAP)


def _ip(*arguments: str, input: str | None = None) -> None:
    done = subprocess.run(
        ["ip", *arguments], input=input, text=True, capture_output=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
