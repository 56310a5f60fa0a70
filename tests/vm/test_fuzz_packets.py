# SPDX-License-Identifier: GPL-2.0-only
"""Packets of all kinds, sound and unsound, at the hook of a CPU under pressure.

The same ones come twice, each time to a new namespace: with everything detached, and with
all modules. Two sockets are full from the beginning, so stock drops what they are sent;
but for where that is dropped the two must not differ in anything.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from inside import Skip, inside, mark
from inside.net import Namespace, Pressure, drops, ip
from inside.suite import ALL, begin, dropped, set_knob

pytestmark = mark.ends

TOOL = Path(__file__).resolve().parents[2] / "tools" / "packetflow-xdp"
FULL, FULL4 = 4000, 4002
BATCH = 250_000  # in one namespace
WILD = 8  # of which one in so many more are wild
SMALLEST_SHARE = 50  # of the frames, one in so many must have been dropped early
FRAME_HOLDS = 5  # of early drops, one in so many stands for a further packet of its frame, at most
RARELY = 100  # of the frames that a tap refuses, no more than one in so many is dropped before

DEVICES = """\
tuntap add t0 mode tap vnet_hdr
link set t0 address 02:00:00:00:01:01 addrgenmode none arp off up
address add 10.1.0.1/24 dev t0
address add fd01::1/64 dev t0 nodad
link add d0 type dummy
link set d0 addrgenmode none up
address add 10.9.0.1/24 dev d0
address add fd09::1/64 dev d0 nodad
"""
# What not every kernel has.
OPTIONAL = (
    "link add link t0 name t0.7 type vlan id 7\nlink set t0.7 addrgenmode none up\n"
    "address add 10.7.0.1/24 dev t0.7\n",
    "link add vx type vxlan id 7 dstport 4789 local 10.1.0.1 dev t0\n"
    "link set vx addrgenmode none up\n",
)
# Answers to a packet that seems to be our own come to us, so none may depend on the time.
SETTINGS = {
    "ipv4/icmp_ratemask": 0,
    "ipv6/icmp/ratemask": 0,
    "ipv4/ip_forward": 1,
    "ipv6/conf/all/forwarding": 1,
    "ipv4/ipfrag_time": 5,
    "ipv4/ipfrag_high_thresh": 256 << 20,
}

# What comes in, and what becomes of it.
COMPARED = re.compile(
    r"(?:Ip|IpExt|Udp|UdpLite|Tcp|Icmp):(?:In\w+|NoPorts|IgnoredMulti|ForwDatagrams|RcvbufErrors)"
    r"|(?:Ip|Udp|UdpLite|Icmp)6(?:In\w+|NoPorts|OutForwDatagrams|RcvbufErrors)"
)
# Dropped early it is not delivered to the protocol, nor its sum looked at if it is small; then it
# counts as lost to the full socket.
DIFFERS = re.compile(r"(?:Ip:|Ip6)InDelivers|Udp[:6](?:InCsumErrors|RcvbufErrors)")
UNCOUNTED = re.compile(r"Udp[:6]InErrors")  # by the kernel, of super-packets that are unsound


class Seen(NamedTuple):
    """What became of the packets: as their receiver and the kernel tell it."""

    served: dict[str, Any]
    counters: dict[str, int]
    drops: tuple[int, int]  # of the full sockets
    early: int
    dropped: dict[str, int]


def counters() -> dict[str, int]:
    """Of this namespace, by names such as Udp:InErrors and Udp6InErrors."""
    here = Path("/proc/thread-self/net")
    found: dict[str, int] = {}
    for name in ("snmp", "netstat"):
        lines = [line.split() for line in (here / name).read_text().splitlines()]
        for names, values in zip(lines[::2], lines[1::2], strict=True):
            found |= {names[0] + n: int(v) for n, v in zip(names[1:], values[1:], strict=True)}
    for line in (here / "snmp6").read_text().splitlines():
        found[line.split()[0]] = int(line.split()[1])
    return found


def configure() -> None:
    ip(DEVICES)
    for commands in OPTIONAL:
        with suppress(subprocess.CalledProcessError):
            ip(commands)
    for name, value in SETTINGS.items():
        Path("/proc/sys/net", name).write_text(str(value))


@contextmanager
def in_driver(wanted: bool) -> Iterator[None]:
    """What comes by the tap is judged there, in the namespace that this is called in."""
    if wanted:
        subprocess.run([TOOL, "attach", "t0"], check=True)
    yield
    if wanted:
        subprocess.run([TOOL, "detach", "t0"], check=True)


def judge(programs: str, seed: int, count: int, wild: bool, on: bool, driver: bool = False) -> Seen:
    """Send them to a namespace of their own."""
    set_knob("enable", int(on))
    namespace = Namespace()
    with namespace:
        configure()
        full, full4 = Pressure("::", FULL), Pressure("0.0.0.0", FULL4)
        for _ in range(16):
            full.again()
            full4.again()
        if on:
            full.raise_()

        def lost() -> tuple[int, int]:
            return drops(full.sock), drops(full4.sock)

        def early() -> int:
            return full.early() + full4.early() if on else 0

        lost_before, early_before, before = lost(), early(), counters()
        begin()
        command = [f"{programs}/frame_fuzz", "t0", str(seed), str(count), *["wild"] * wild]
        with in_driver(driver):
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        after, told = counters(), dropped() if on else {}
        lost_after = lost()
        seen = Seen(
            json.loads(done.stdout),
            {n: v - before.get(n, 0) for n, v in after.items() if COMPARED.fullmatch(n)},
            (lost_after[0] - lost_before[0], lost_after[1] - lost_before[1]),
            early() - early_before,
            told,
        )
        full.sock.close()
        full4.sock.close()
    namespace.close()
    return seen


def compare(off: Seen, on: Seen, wild: bool) -> None:
    def more(*names: str) -> int:
        return sum(on.counters[name] - off.counters[name] for name in names)

    assert on.served == off.served
    assert on.dropped["overload"] == on.dropped["harm"] == 0
    assert on.dropped["socket_full"] == on.early
    both = {n: (off.counters.get(n, 0), on.counters.get(n, 0)) for n in off.counters | on.counters}
    unlike = {n: two for n, two in both.items() if two[0] != two[1] and not DIFFERS.fullmatch(n)}
    if wild:
        assert not [n for n in unlike if not UNCOUNTED.fullmatch(n)], unlike
        return
    assert not unlike, unlike
    wrong = -more("Udp:InCsumErrors", "Udp6InCsumErrors")
    full = more("Udp:RcvbufErrors", "Udp6RcvbufErrors")
    lost = [after - before for before, after in zip(off.drops, on.drops, strict=True)]
    assert wrong == full == sum(lost), (wrong, full, lost)


def compare_driver(off: Seen, on: Seen, wild: bool) -> None:
    """The protocols count no packet that was dropped before them; all else is the same.

    Several packets in one frame, which only a tap has, are one there. And a tap looks at its own
    header after the program, so what it would refuse may have been dropped by then.
    """
    refused, spared = off.served["refused"], on.served["refused"]
    assert 0 <= refused - spared <= refused / RARELY, (refused, spared)
    assert on.served | {"refused": refused} == off.served
    assert on.dropped["overload"] == on.dropped["harm"] == 0
    assert on.dropped["socket_full"] == on.early
    if wild:
        return
    wrong = sum(off.counters[n] - on.counters[n] for n in ("Udp:InCsumErrors", "Udp6InCsumErrors"))
    lost = [after - before for before, after in zip(off.drops, on.drops, strict=True)]
    assert 0 < -sum(lost) + wrong < on.early / FRAME_HOLDS or wrong == sum(lost), (wrong, lost)


@mark.timeout(14400)
@inside(timeout=14400, modules=ALL)
def test_the_driver_drops_what_the_hook_would(frames: int, seed: int, programs: str) -> None:
    if subprocess.run(["modprobe", "-a", "tun", "dummy"], check=False).returncode:
        raise Skip("this kernel has no tap device, or no dummy")
    if not Path("/sys/kernel/btf/pf_filter").exists():
        raise Skip("this kernel has no types (BTF)")
    early = 0
    for first in range(0, frames, BATCH):
        for wild in (False, True):
            count = min(BATCH, frames - first) // (WILD if wild else 1)
            off = judge(programs, seed + first, count, wild, on=False)
            on = judge(programs, seed + first, count, wild, on=True, driver=True)
            compare_driver(off, on, wild)
            early += on.early
    assert early > frames // SMALLEST_SHARE


@mark.timeout(14400)
@inside(timeout=14400, modules=ALL)
def test_packets_of_all_kinds_are_left_to_stock(frames: int, seed: int, programs: str) -> None:
    if subprocess.run(["modprobe", "-a", "tun", "dummy"], check=False).returncode:
        raise Skip("this kernel has no tap device, or no dummy")
    early = 0
    for first in range(0, frames, BATCH):
        for wild in (False, True):
            count = min(BATCH, frames - first) // (WILD if wild else 1)
            off, on = (judge(programs, seed + first, count, wild, bool(on)) for on in (0, 1))
            compare(off, on, wild)
            early += on.early
    assert early > frames // SMALLEST_SHARE
