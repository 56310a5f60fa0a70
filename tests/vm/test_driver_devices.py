# SPDX-License-Identifier: GPL-2.0-only
"""Drops in the driver by devices that others stand on: VLANs, bonds, bridges; and by RPS.

What is dropped in the driver does not come to IP. The first packet of a flow in each jiffy does,
so not all of a flow are.
"""

import errno
import os
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from inside import Skip, inside, mark
from inside.driver import PACKETS, PORT, SIZE, asking, ended, met, sender, settled, tags_stay
from inside.net import (
    SMALL,
    Namespace,
    Peer,
    Pressure,
    Worker,
    bridges_pass_by_rules,
    drops,
    ip,
    nft,
    rules_see_bridges,
)
from inside.suite import wait_for

pytestmark = mark.ends

TAGS = {
    "one tag": ("802.1Q",),
    "one tag of a provider": ("802.1ad",),
    "two tags": ("802.1Q", "802.1Q"),
    "two tags, the outer of a provider": ("802.1ad", "802.1Q"),
}
PART = 0.2  # of the packets at least; of the first of their flow in a jiffy a slow host has many


def needs(*modules: str) -> None:
    if subprocess.run(["modprobe", "-a", *modules], check=False).returncode:
        raise Skip(f"this kernel has no {' or no '.join(modules)}")


def vlan(below: str, kinds: tuple[str, ...], number: int, own: str, far: str, mac: str) -> str:
    """A device for such frames; its name."""
    name = below
    for kind in kinds:
        ip(f"link add link {name} name {name}.7 type vlan proto {kind} id 7\nlink set {name}.7 up")
        name += ".7"
    ip(
        f"address add 10.{number}.0.{own}/24 dev {name}\n"
        f"neighbour replace 10.{number}.0.{far} lladdr {mac} dev {name}"
    )
    return name


def tagged(
    peer: Peer, kinds: tuple[str, ...], number: int, below: str = ""
) -> Callable[[], object]:
    """A VLAN between both, here above that device; what sends by it to us."""
    macs = "02:00:00:00:01:01", "02:00:00:00:01:02"
    vlan(below or peer.device, kinds, number, "1", "2", macs[1])
    with peer:
        name = vlan("eth0", kinds, number, "2", "1", macs[0])
    return sender(peer, name, f"10.{number}.0.1")


def dropped_there(full: Pressure, send: Callable[[], object]) -> None:
    driver, early = ended(full, send)
    assert PART * PACKETS < driver <= early, (driver, early)


def left_to_the_hook(full: Pressure, send: Callable[[], object]) -> None:
    driver, early = ended(full, send)
    assert driver == 0 < PART * PACKETS < early, (driver, early)


@inside()
def test_tags_of_vlans() -> None:
    needs("8021q")
    peer, full = Peer(), Pressure("0.0.0.0", PORT)
    tags_stay(peer.device)
    with peer:
        tags_stay("eth0")
    with asking(peer.device):
        dropped_there(full, sender(peer, "eth0", peer.ours4))
        for at, kinds in enumerate(TAGS.values()):
            send = tagged(peer, kinds, 20 + at)
            dropped_there(full, send)
            ip(f"link delete {peer.device}.7")
            with peer:
                ip("link delete eth0.7")


@inside()
def test_tags_that_the_card_takes_off() -> None:
    """A program cannot see them, so nothing is dropped before the hook knows of them."""
    needs("8021q")
    peer, full = Peer(), Pressure("0.0.0.0", PORT)
    with asking(peer.device):
        left_to_the_hook(full, sender(peer, "eth0", peer.ours4))
        left_to_the_hook(full, tagged(peer, ("802.1Q",), 20))


def bound(address: str, device: str) -> socket.socket:
    """To the port on that device alone."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
    sock.bind((address, PORT))
    return sock


def receives_all_beside_a_full_one(peer: Peer) -> None:
    """The same addresses and ports with a tag and without; a receiver for each, one is full."""
    macs = "02:00:00:00:01:01", "02:00:00:00:01:02"
    name = vlan(peer.device, ("802.1Q",), 20, "1", "2", macs[1])
    with peer:
        vlan("eth0", ("802.1Q",), 20, "2", "1", macs[0])
        ip(f"neighbour replace {peer.ours4} lladdr {macs[0]} dev eth0.7")
    pressure = Pressure()
    full, empty = (bound("0.0.0.0", device) for device in (peer.device, name))
    full.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    empty.settimeout(15)
    below, above = (udp_from(peer, device) for device in ("eth0", "eth0.7"))
    with asking(peer.device):
        for _ in range(16):
            below()
        pressure.raise_()
        before = drops(full)
        # In step with the empty one: before 6.5 packets may wait for ksoftirqd while more are
        # sent. Then so many come at once that they fill its buffer, too.
        for _ in range(PACKETS):
            below()
            above()
            assert len(empty.recv(2 * SIZE)) == SIZE
        settled(full, before)


def udp_from(peer: Peer, device: str) -> Callable[[], object]:
    """By that device, always from the same port."""
    with peer:
        sock = bound(peer.theirs4, device)
    return lambda: sock.sendto(bytes(SIZE), (peer.ours4, PORT))


@inside()
def test_a_vlan_is_not_taken_for_the_device_below() -> None:
    needs("8021q")
    peer = Peer()
    tags_stay(peer.device)
    with peer:
        tags_stay("eth0")
    receives_all_beside_a_full_one(peer)


@inside()
def test_nor_where_the_other_end_of_a_pair_hides_the_tags() -> None:
    needs("8021q")
    peer = Peer()
    tags_stay(peer.device)
    receives_all_beside_a_full_one(peer)


def master(
    peer: Peer, kind: str, name: str, port: str = "", far: str = "eth0"
) -> Callable[[], object]:
    """The device gets another above, with an address of its own; what sends to that."""
    port = port or peer.device
    ip(
        f"link add {name} type {kind}\nlink set {port} down\n"
        f"link set {port} master {name}\nlink set {port} up\n"
        f"link set {name} address 02:00:00:00:01:01 up\naddress add 10.30.0.1/24 dev {name}\n"
        f"neighbour replace 10.30.0.2 lladdr 02:00:00:00:01:02 dev {name}"
    )
    with peer:
        ip(
            f"address add 10.30.0.2/24 dev {far}\n"
            f"neighbour replace 10.30.0.1 lladdr 02:00:00:00:01:01 dev {far}"
        )
    send = sender(peer, far, "10.30.0.1")
    before = met()
    wait_for(lambda: send() and met() > before)  # its port takes a moment
    return send


@inside()
def test_a_bond_and_its_ports() -> None:
    needs("bonding", "8021q")
    peer, full = Peer(), Pressure("0.0.0.0", PORT)
    with peer:
        tags_stay("eth0")
    tags_stay(peer.device)
    send = master(peer, "bond mode active-backup", "b0")
    for device in (peer.device, "b0"):
        with asking(device):
            dropped_there(full, send)
    send = tagged(peer, ("802.1Q",), 20, "b0")
    for device in (peer.device, "b0"):
        with asking(device):
            dropped_there(full, send)


@mark.parametrize("rules", [False, True])
@inside()
def test_a_port_of_a_bridge(rules: bool) -> None:
    """Whose packets the rules of IP see, or do not."""
    needs("bridge")
    if rules:
        rules_see_bridges()
    else:
        bridges_pass_by_rules()
    peer, full = Peer(), Pressure("0.0.0.0", PORT)
    tags_stay(peer.device)
    send = master(peer, "bridge", "br0")
    with asking(peer.device):
        dropped_there(full, send)


@inside()
def test_a_bridge_that_may_put_a_tag_in() -> None:
    """It filters VLANs, and may count what has no tag to one of them. No program sees that."""
    needs("bridge", "8021q")
    bridges_pass_by_rules()
    peer, full = Peer(), Pressure("0.0.0.0", PORT)
    tags_stay(peer.device)
    port = vlan(peer.device, ("802.1Q",), 20, "1", "2", "02:00:00:00:01:02")
    with peer:
        tags_stay("eth0")
        far = vlan("eth0", ("802.1Q",), 20, "2", "1", "02:00:00:00:01:01")
    send = master(peer, "bridge vlan_filtering 1", "br0", port, far)
    with asking(port, generic=True):
        dropped_there(full, send)
        ip("link add link br0 name br0.8 type vlan id 8\nlink set br0.8 up")
        left_to_the_hook(full, send)


@contextmanager
def rules_at(device: str) -> Iterator[None]:
    """Somebody looks at what comes by it."""
    hook = f'type filter hook ingress device "{device}" priority 0;'
    nft(f"table netdev looking {{ chain c {{ {hook} }}; }}")
    yield
    nft("delete table netdev looking")


def each_may_look(full: Pressure, send: Callable[[], object], by: str, way: list[str]) -> None:
    """Rules at any of these devices see all that comes by them."""
    with asking(by):
        dropped_there(full, send)
        for device in way:
            with rules_at(device):
                left_to_the_hook(full, send)


@inside()
def test_rules_at_the_ingress_of_vlans_see_all() -> None:
    needs("8021q")
    peer, full = Peer(), Pressure("0.0.0.0", PORT)
    tags_stay(peer.device)
    with peer:
        tags_stay("eth0")
    send = tagged(peer, ("802.1Q", "802.1Q"), 20)
    name = peer.device
    each_may_look(full, send, name, [name, f"{name}.7", f"{name}.7.7"])


@inside()
def test_rules_at_the_ingress_of_a_bond_see_all() -> None:
    """What comes by it to itself, and what to a VLAN above."""
    needs("bonding", "8021q")
    peer, full = Peer(), Pressure("0.0.0.0", PORT)
    with peer:
        tags_stay("eth0")
    tags_stay(peer.device)
    send = master(peer, "bond mode active-backup", "b0")
    each_may_look(full, send, peer.device, [peer.device, "b0"])
    send = tagged(peer, ("802.1Q",), 20, "b0")
    each_may_look(full, send, peer.device, [peer.device, "b0", "b0.7"])


@inside()
def test_rules_at_the_ingress_of_a_bond_below_a_bridge_see_all() -> None:
    needs("bonding", "bridge")
    bridges_pass_by_rules()
    peer, full = Peer(), Pressure("0.0.0.0", PORT)
    tags_stay(peer.device)
    ip(
        f"link add b0 type bond mode active-backup\nlink set {peer.device} down\n"
        f"link set {peer.device} master b0\nlink set {peer.device} up\nlink set b0 up"
    )
    send = master(peer, "bridge", "br0", "b0")
    each_may_look(full, send, peer.device, [peer.device, "b0", "br0"])


STEER = "mount -t sysfs sysfs /sys && echo 2 > /sys/class/net/v1/queues/rx-0/rps_cpus"


@mark.steers
@mark.cpus(2)
@inside()
def test_steered_to_another_cpu_all_passes_the_driver() -> None:
    """The hook is met there, and tells nothing to the driver's CPU."""
    peer, full = Peer(), Pressure("0.0.0.0", PORT)
    tags_stay(peer.device)
    subprocess.run(["unshare", "--mount", "sh", "-c", STEER], check=True)
    send = sender(peer, "eth0", peer.ours4)
    with asking(peer.device):
        driver, _ = ended(full, send)
    assert driver == 0


@inside()
def test_in_the_stack() -> None:
    """Where a driver has no XDP, the same verdicts come later."""
    peer, full = Peer(), Pressure("0.0.0.0", PORT)
    tags_stay(peer.device)
    with asking(peer.device, generic=True):
        dropped_there(full, sender(peer, "eth0", peer.ours4))


def send_for_ever(send: Callable[[], object]) -> None:
    while True:
        send()


def by_program(device: str) -> int:
    """Frames that XDP has dropped, as ethtool shows them."""
    done = subprocess.run(["ethtool", "-S", device], capture_output=True, text=True, check=True)
    return sum(map(int, re.findall(r"xdp_drops: (\d+)", done.stdout)))


def attached_once(device: str, full: Pressure) -> None:
    """While traffic comes by it. The driver drops meanwhile, and not afterwards."""
    full.raise_()
    with asking(device):
        before = by_program(device)
        wait_for(lambda: by_program(device) > before)
    dropped, reached = by_program(device), met()
    wait_for(lambda: met() > reached + PACKETS)
    assert by_program(device) == dropped


@inside()
def test_attached_and_detached_under_traffic(ten_cycles: int) -> None:
    peer, full = Peer(), Pressure("0.0.0.0", PORT)
    tags_stay(peer.device)
    worker = Worker(partial(send_for_ever, sender(peer, "eth0", peer.ours4)))
    worker.begin()
    for _ in range(10):
        attached_once(peer.device, full)
    worker.end()


PAIR = """\
link add q0 numrxqueues 2 numtxqueues 2 address 02:00:00:00:09:01 type veth \
peer name q1 numrxqueues 2 numtxqueues 2 netns {peer}
"""
UP = """\
link set q0 up
address add 10.9.0.1/24 dev q0
"""
THERE = """\
link set q1 up
address add 10.9.0.2/24 dev q1
neighbour replace 10.9.0.1 lladdr 02:00:00:00:09:01 dev q1
"""
CYCLES = 5


def set_queues(device: str, which: str, count: int) -> None:
    subprocess.run(["ethtool", "-L", device, which, str(count)], check=True)


def changed(peer: Peer, other: Namespace) -> None:
    """What happens to a device in its life, to its end."""
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    for queues in (1, 2):
        set_queues("q0", "tx", queues)
    with peer:
        set_queues("q1", "tx", 1)  # no more than there are to receive by
    for queues in (1, 2):
        set_queues("q0", "rx", queues)
    ip("link set q0 mtu 1400\nlink set q0 down\nlink set q0 name q2\nlink set q2 name q0 up")
    ip(f"link set q0 netns {other.path}")
    with other:
        ip(f"{UP}link set q0 netns /proc/{os.getpid()}/fd/{here}")
    os.close(here)
    ip(f"{UP}link delete q0")


@inside()
def test_a_device_is_changed_and_goes_under_traffic() -> None:
    peer, other, full = Peer(), Namespace(), Pressure("0.0.0.0", PORT)
    for _ in range(CYCLES):
        full.raise_()
        ip(PAIR.format(peer=peer.path) + UP)
        tags_stay("q0")
        with peer:
            ip(THERE)
        with asking("q0"):
            worker = Worker(partial(send_while_it_is_there, sender(peer, "q1", "10.9.0.1")))
            worker.begin()
            changed(peer, other)
            worker.finished()
            worker.end()


def send_while_it_is_there(send: Callable[[], object]) -> None:
    while True:
        try:
            send()
        except OSError as error:
            if error.errno == errno.ENODEV:
                return
