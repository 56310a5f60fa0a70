# SPDX-License-Identifier: GPL-2.0-only
"""Drops in the driver: the hook's verdicts, made before a packet has a buffer."""

import re
import time
from collections.abc import Iterator

import pytest
from experiments.measure import await_quiet, by_program, lost
from rig.guest import Guest
from rig.kernels import REPO
from rig.traffic import LIGHT, Flow, sender
from rig.traffic import programs as built

pytestmark = [pytest.mark.counted, pytest.mark.ends]

TOOL = f"{REPO}/tools/packetflow-xdp"
SUITE = f"{REPO}/tools/packetflow"
NICES = {5001: 0, 5002: 5, 5003: 10}
PPS, SECONDS, SIZE = 18_000, 1.5, 256
SLOW_S = 120  # the kernel's types are read, which takes an emulated CPU a while


def says(guest: Guest, command: str) -> str:
    """What a command that fails says."""
    done = guest.run(command, timeout=SLOW_S, check=False)
    assert done.rc, command
    return done.err


def attached(guest: Guest, device: str = "eth0") -> bool:
    return "prog/xdp" in guest.run(f"ip link show {device}").out


@pytest.fixture
def filtered(guest: Guest) -> Iterator[Guest]:
    """pf_filter is loaded, and asked by the driver."""
    guest.load("pf_filter")
    guest.run(f"{TOOL} attach eth0", timeout=SLOW_S)
    yield guest
    guest.run(f"{TOOL} detach")
    time.sleep(0.5)


def early(guest: Guest) -> dict[int, int]:
    head, *rows = guest.read("/proc/packetflow/sockets").splitlines()
    found = {}
    for row in (dict(zip(head.split(), line.split(), strict=True)) for line in rows):
        port = int(row["local"].rsplit(":", 1)[1])
        found[port] = sum(int(row[f"early_{why}"]) for why in ("overload", "harm", "full"))
    return found


def passed(guest: Guest) -> dict[str, int]:
    metrics = guest.read("/proc/packetflow/metrics")
    found = re.findall(r'^packetflow_filter_passed_total{reason="(\w+)"} (\d+)', metrics, re.M)
    return {reason: int(value) for reason, value in found}


def offer(guest: Guest) -> tuple[list[int], list[int], dict[int, int], int]:
    """Sent, received, dropped early by port, and dropped by the driver; the account closes."""
    receivers = [LIGHT.receiver(guest, port, nice) for port, nice in NICES.items()]
    before, by_driver = lost(guest).in_front, by_program(guest)
    flows = [Flow(port, PPS) for port in NICES]
    sent = LIGHT.send(flows, SIZE, SECONDS, sender(guest)).packets
    await_quiet(guest, list(NICES))
    drops = early(guest)
    by_driver = by_program(guest) - by_driver
    in_front = lost(guest).in_front - before
    seen = [receiver.finish() for receiver in receivers]
    at_sockets = sum(one.socket_drops or 0 for one in seen)
    others = sum(one.packets for one in seen) + at_sockets + in_front - sum(sent.values())
    assert 0 <= others < 3, (sent, seen, in_front)
    return [sent[port] for port in NICES], [one.packets for one in seen], drops, by_driver


def test_order_account_and_place(filtered: Guest) -> None:
    sent, got, drops, by_driver = offer(filtered)
    # A debug kernel has a tenth of the speed.
    least = 0.8 if filtered.kernel.debug else 0.97
    assert got[0] > least * sent[0] and min(got[:2]) > got[2], (sent, got)
    # The first packet of a flow in each tick goes up, and is judged by the hook.
    assert by_driver > 0.9 * sum(drops.values()) > 0, (by_driver, drops)
    told = passed(filtered)
    # What passed the driver was met by the hook and not judged again.
    assert told["judged_before"] > 0.9 * sum(got), (told, got)
    assert told["judged"] < 1.1 * sum(got), (told, got)


LOCAL_PORT = 5004
SEND_HERE = f"""
import socket, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end = time.monotonic() + {2 * SECONDS}
while time.monotonic() < end:
    out.sendto(b"x" * 200, ("127.0.0.1", {LOCAL_PORT}))
    time.sleep(0.0005)
"""


def shed(guest: Guest, port: int) -> int:
    """Packets dropped for others' sake, for the receiver on that port."""
    head, *rows = guest.read("/proc/packetflow/sockets").splitlines()
    for row in (dict(zip(head.split(), line.split(), strict=True)) for line in rows):
        if row["local"].endswith(f":{port}"):
            return int(row["early_overload"]) + int(row["early_harm"])
    raise AssertionError(port)


@pytest.mark.newest
def test_what_comes_over_loopback_is_not_shed(filtered: Guest) -> None:
    """Nor by the hook: its sender runs on this host, and no receive queue is relieved."""
    filtered.run(f"{TOOL} attach --generic lo", timeout=SLOW_S)
    here = LIGHT.receiver(filtered, LOCAL_PORT, 15)
    receivers = [LIGHT.receiver(filtered, port, nice) for port, nice in NICES.items()]
    sending = filtered.spawn(["nice", "-n", "-10", "python3", "-c", SEND_HERE])
    LIGHT.send([Flow(port, PPS) for port in NICES], SIZE, SECONDS, sender(filtered))
    assert shed(filtered, 5003) > 100
    assert shed(filtered, LOCAL_PORT) == 0
    sending.wait(20)
    for receiver in (here, *receivers):
        receiver.finish()


@pytest.mark.newest
def test_nothing_is_dropped_by_who_is_switched_off_or_observes(filtered: Guest) -> None:
    for file, off, on in (("enable", "0", "1"), ("filter/mode", "observe", "enforce")):
        filtered.write(f"/proc/packetflow/{file}", off)
        _, _, drops, by_driver = offer(filtered)
        assert by_driver == 0 == sum(drops.values()), file
        filtered.write(f"/proc/packetflow/{file}", on)


def test_it_holds_the_module_until_it_is_detached(filtered: Guest) -> None:
    assert "name packetflow " in filtered.run("ip link show eth0").out  # as bpftool has it
    assert "in use" in says(filtered, "rmmod pf_filter")
    filtered.run(f"{SUITE} stop", timeout=SLOW_S)
    assert not attached(filtered)
    assert "pf_" not in filtered.run("lsmod").out
    filtered.forget()


@pytest.mark.newest
def test_pf_flow_can_be_asked_alone(guest: Guest) -> None:
    guest.load("pf_flow")
    guest.run(f"{TOOL} attach eth0", timeout=SLOW_S)
    assert attached(guest)
    assert "in use" in says(guest, "rmmod pf_flow")
    guest.run(f"{SUITE} stop", timeout=SLOW_S)
    assert not attached(guest)
    assert "pf_" not in guest.run("lsmod").out
    guest.forget()


def test_without_types_all_else_works(guest: Guest) -> None:
    guest.load("pf_filter")
    guest.run("rmmod pf_filter")
    module = guest.kernel.build / "pf_filter" / "pf_filter.ko"
    guest.run(f"objcopy -g -R .BTF -R .BTF.base {module} /run/bare.ko && insmod /run/bare.ko")
    assert "Install pahole" in says(guest, f"{TOOL} attach eth0")
    assert not attached(guest)


@pytest.mark.newest
def test_what_cannot_be_is_told(filtered: Guest) -> None:
    assert "there is no device none0" in says(filtered, f"{TOOL} attach none0")
    assert "attached already" in says(filtered, f"{TOOL} attach eth0")
    assert "not attached" in says(filtered, f"{TOOL} detach lo")
    assert "bpf_jit_enable=1" in uncompiled(filtered)
    foreign = filtered.spawn([str(built() / "xdp_police"), "eth0", "7:0"])
    filtered.run("until ip link show eth0 | grep -q xdp; do sleep 0.1; done")
    assert "another XDP program" in says(filtered, f"{TOOL} attach eth0")
    foreign.signal()
    foreign.wait(20)
    filtered.run(
        "ip link add one type veth peer name two && ip link set one up && ip link set two up"
    )
    try:
        assert "rxvlan off" in says(filtered, f"{TOOL} attach one")
        filtered.run("ethtool -K one rxvlan off")
        filtered.run(f"{TOOL} attach one", timeout=SLOW_S)
        assert attached(filtered, "one")
    finally:
        filtered.run("ip link delete one")
    assert filtered.run(f"{TOOL} status").out.strip() == "one (is gone)"
    filtered.run("ip link add one type dummy")
    assert "its driver cannot do it" in says(filtered, f"{TOOL} attach one")
    told = filtered.run(f"{TOOL} attach --generic one", timeout=SLOW_S).err
    assert "costs" in told and len(told.splitlines()) == 1
    assert filtered.run(f"{TOOL} status").out.strip() == "one"
    filtered.run(f"{TOOL} detach one && ip link delete one")


def uncompiled(guest: Guest) -> str:
    """What is said where the kernel does not compile programs."""
    guest.run(f"{TOOL} detach eth0")
    guest.run("sysctl -w net.core.bpf_jit_enable=0")
    said = says(guest, f"{TOOL} attach eth0")
    guest.run("sysctl -w net.core.bpf_jit_enable=1")
    return said


# Loads the program once, and attaches it again and again.
CYCLES = 80
CYCLE = f"""
import importlib.machinery, os, socket, struct, types
loader = importlib.machinery.SourceFileLoader("tool", "{TOOL}")
tool = types.ModuleType("tool")
loader.exec_module(tool)
program, device = tool.program(), socket.if_nametoindex("eth0")
print("ready", flush=True)
for _ in range({CYCLES}):
    request = struct.pack("IIII16x", program, device, tool.ATTACH_XDP, tool.NATIVE)
    os.close(tool.bpf(tool.LINK_CREATE, request)[0])
"""


def test_it_comes_and_goes_under_a_flood(filtered: Guest) -> None:
    filtered.run(f"{TOOL} detach eth0")
    receivers = [LIGHT.receiver(filtered, port, nice) for port, nice in NICES.items()]
    cycling = filtered.spawn(["python3", "-c", CYCLE])
    time.sleep(5)
    flows = [Flow(port, PPS) for port in NICES]
    sent = LIGHT.send(flows, SIZE, 2 * SECONDS, sender(filtered)).packets
    assert cycling.wait(SLOW_S).rc == 0
    assert all(receiver.finish().packets for receiver in receivers), sent
    assert not attached(filtered)
    filtered.run(f"{TOOL} attach eth0", timeout=SLOW_S)
