# SPDX-License-Identifier: GPL-2.0-only
"""Coming and going under traffic: modules, sockets, processes, namespaces.

Four CPUs, so that what may race does. The kernel's log is the judge: the guest
is searched for complaints after every test.
"""

import itertools
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from inside import inside, mark
from inside.coming import BARE, devices_come_and_go, seconds, sockets_come_and_go
from inside.growing import given_back, granted
from inside.net import Namespace, Pressure, sysctl, udp
from inside.repeating import busy
from inside.suite import (
    ALL,
    ROOT,
    dropped,
    entry,
    insmod,
    metric,
    rmmod,
    set_knob,
    sockets,
    stripped,
    wait_for,
)
from rig.guest import Guest
from rig.link import GUEST4
from rig.traffic import LIGHT, Flow, await_bound, sender

pytestmark = mark.full

# By the device, enough to be judged while other packets press the CPUs.
PORTS = {5001: 0, 5002: 10}  # and their receivers' nice levels
STREAM_PORT = 5300
PPS, SIZE = 2_000, 256

ORDERS = list(itertools.permutations(ALL))

# Three sockets: one is always full, one is always served, and one, whose size is left to
# the kernel, fills and is emptied now and then.
TRAFFIC = r"""
import os, socket, sys, time
pause = float(sys.argv[1])
full = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
full.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
full.bind(("127.0.0.1", 9000))
served = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
served.bind(("127.0.0.1", 9001))
served.setblocking(False)
deep = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
deep.bind(("127.0.0.1", 9002))
deep.setblocking(False)
for cpu in range(3):
    if not os.fork():
        os.sched_setaffinity(0, {cpu})
        break
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
turn = 0
while True:
    time.sleep(pause)
    for port in (9000, 9001, 9002) * 10:
        out.sendto(b"x" * 200, ("127.0.0.1", port))
    turn += 1
    for sock in (served, deep) if turn % 64 == 0 else (served,):
        try:
            while True:
                sock.recv(300)
        except BlockingIOError:
            pass
    short = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    short.bind(("127.0.0.1", 0))
    short.close()
"""

# The size of the third, to the byte, and whether it is what it was or more.
SIZES = """
set -e
size() {{ ss -Huamn 'sport = :9002' | grep -o ',rb[0-9]*'; }}
grown() {{
    for try in $(seq 200); do
        [ "$(size)" = ,rb{own} ] || return 0
        sleep 0.02
    done
    echo "cycle $1: it did not grow" >&2
    return 1
}}
back() {{
    [ "$(size)" = ,rb{own} ] || {{ echo "cycle $1: $(size) left, not {own}" >&2; return 1; }}
}}
"""


def cycle(number: int) -> str:
    """All come and go; the orders of both are others in each of 36 cycles."""
    come, go = ORDERS[number % 6], ORDERS[(number + number // 6) % 6]
    lines = ["insmod /tmp/pf_common.ko"]
    for module in come:
        lines.append(f"insmod /tmp/{module}.ko")
    lines.append(f"grown {number}")
    if number % 2:
        lines.append("cat /proc/packetflow/sockets >/dev/null")
    for module in go:
        lines.append(f"rmmod {module}")
        if module == "pf_mm":
            lines.append(f"back {number}")
    if number % 3 == 0:
        lines.append(f"insmod /tmp/{come[0]}.ko; rmmod {come[0]}; back {number}")
    lines.append("rmmod pf_common")
    return "\n".join(lines)


@contextmanager
def traffic_by_the_device(guest: Guest) -> Iterator[None]:
    """Datagrams to receivers of different priority, and a TCP stream; all of them flow."""
    receivers = [LIGHT.receiver(guest, port, nice) for port, nice in PORTS.items()]
    server = guest.spawn(["iperf3", "-s", "-p", str(STREAM_PORT)])
    await_bound(guest, "tcp", STREAM_PORT)
    stream = subprocess.Popen(
        ["iperf3", "-c", GUEST4, "-p", str(STREAM_PORT), "-b", "5M", "-t", "3600"],
        stdout=subprocess.DEVNULL,
    )
    over = threading.Event()

    def send() -> None:
        while not over.is_set():
            LIGHT.send([Flow(port, PPS) for port in PORTS], SIZE, 1, sender(guest))

    flood = threading.Thread(target=send)
    flood.start()
    try:
        yield
        assert flood.is_alive()
        assert stream.poll() is None
    finally:
        over.set()
        flood.join()
        stream.kill()
        stream.wait()
        server.signal(signal.SIGKILL)
        server.wait()  # or the next one finds its port taken
    assert all(receiver.finish().packets for receiver in receivers)


@mark.cpus(4, 16)
@mark.timeout(900)
def test_loading_and_unloading_under_traffic(guest: Guest, ten_cycles: int) -> None:
    """Fails too if a buffer that pf_mm let grow does not get its own size back, to the byte."""
    # Read over the share and parsed once, not at every cycle.
    for name in ("pf_common", *ALL):
        path = guest.kernel.build / ("common" if name == "pf_common" else name) / f"{name}.ko"
        guest.run(["strip", "-d", "-o", f"/tmp/{name}.ko", str(path)])
    own = int(guest.read("/proc/sys/net/core/rmem_default"))
    # A debug kernel has a tenth of the speed: there two of them are run.
    debug = guest.kernel.debug
    cycles = [cycle(ten_cycles * 10 + number) for number in range(2 if debug else 10)]
    script = "\n".join([SIZES.format(own=own), *cycles])
    guest.run(["ip", "link", "set", "lo", "up"])
    # Most of a cycle is waiting for grace periods, long ones on emulated CPUs.
    guest.write("/sys/kernel/rcu_expedited", "1")
    traffic = guest.spawn(["python3", "-c", TRAFFIC, "0.02" if debug else "0.002"])
    try:
        with traffic_by_the_device(guest):
            guest.run(script, timeout=800)
        assert traffic.alive()
    finally:
        traffic.signal(signal.SIGKILL)
        guest.write("/sys/kernel/rcu_expedited", "0")
    assert "pf_" not in guest.read("/proc/modules")
    assert "pf_common" not in guest.run("cat /sys/kernel/debug/kprobes/list /proc/kallsyms").out


def without(*symbols: str) -> Path:
    """pf_common as a kernel finds it that lacks these: it asks for others."""
    data = stripped("pf_common").read_bytes()
    for symbol in symbols:
        name = symbol.encode() + b"\0"
        assert data.count(name) == 1
        data = data.replace(name, b"_" * len(symbol) + b"\0")
    made = Path("/tmp/without.ko")
    made.write_bytes(data)
    return made


@inside(load=False)
def test_a_function_that_can_be_done_without_is_told_of() -> None:
    subprocess.run(["insmod", without("inet6_bind")], check=True)
    try:
        (line,) = [
            line
            for line in (ROOT / "status").read_text().splitlines()
            if line.startswith("probe: " + "_" * len("inet6_bind"))
        ]
        assert "absent" in line
        assert line.endswith("; new IPv6 sockets are learnt when they receive, or by a scan")
        assert entry(udp("::1"))["learnt"] == "holds"
    finally:
        rmmod("pf_common")


@inside(load=False)
def test_a_function_that_is_needed_refuses_to_load_and_leaves_nothing() -> None:
    def left() -> tuple[str, str, bool]:
        loaded = [line.split()[0] for line in Path("/proc/modules").read_text().splitlines()]
        kprobes = Path("/sys/kernel/debug/kprobes/list").read_text()
        return " ".join(loaded), kprobes, ROOT.exists()

    before = left()
    assert not before[2]
    # Newer kernels have a tracepoint for what the function is probed for.
    lacking = without("sock_recv_length", "inet_recvmsg")
    done = subprocess.run(["insmod", lacking], check=False)
    assert done.returncode
    assert left() == before
    insmod("pf_common")
    rmmod("pf_common")


@mark.cpus(4, 16)
@inside(modules=ALL, pinned=False)
def test_sockets_that_close_while_packets_fly() -> None:
    ports = range(9100, 9108)
    out = udp()

    def send() -> None:
        for port in ports:
            out.sendto(b"x" * 300, ("127.0.0.1", port))

    closed = given_back()["closed"]
    with sysctl("net.core.rmem_default", BARE), busy(send, send):
        for _ in seconds(6):
            sockets_come_and_go(ports, 1 / 50)
    assert dropped()["socket_full"] > 0
    assert given_back()["closed"] > closed
    wait_for(lambda: granted() == 0, 5)


@mark.cpus(4, 16)
@inside(modules=ALL, pinned=False)
def test_processes_that_die_while_packets_fly() -> None:
    out = udp()

    def send() -> None:
        for port in (9200, 9201) * 10:
            out.sendto(b"x" * 300, ("127.0.0.1", port))

    before, closed = metric("packetflow_sockets")[""], given_back()["closed"]
    with sysctl("net.core.rmem_default", BARE), busy(send, send):
        for _ in seconds(6):
            child = os.fork()
            if not child:
                sock, deep = udp("127.0.0.1", 9200, 1), udp("127.0.0.1", 9201)
                deep.recv(400)
                sock.recv(400)
                sock.recv(400)
                time.sleep(10)
            time.sleep(random.random() / 20)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            sockets()
    wait_for(lambda: metric("packetflow_sockets")[""] == before)
    assert given_back()["closed"] > closed
    wait_for(lambda: granted() == 0, 5)


@mark.cpus(4)
@inside(modules=ALL, pinned=False)
def test_namespaces_that_go_while_packets_fly() -> None:
    before = metric("packetflow_sockets")[""]

    def come_and_go() -> None:
        child = os.fork()
        if not child:
            with Namespace():
                full = Pressure()
                other = udp("::1")  # which grows
                for _ in range(100):
                    full.again()
                    other.sendto(b"x", other.getsockname()[:2])
            os._exit(0)
        time.sleep(random.random() / 5)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    def switch() -> None:
        set_knob("enable", 0)
        time.sleep(random.random() / 10)
        set_knob("enable", 1)
        time.sleep(random.random() / 10)

    with sysctl("net.core.rmem_default", BARE), busy(come_and_go, come_and_go, switch):
        time.sleep(8)
    set_knob("enable", 1)
    wait_for(lambda: metric("packetflow_sockets")[""] <= before)
    wait_for(lambda: granted() == 0, 5)


@mark.cpus(4)
@inside(modules=ALL, pinned=False)
def test_devices_that_go_while_packets_fly() -> None:
    subprocess.run(["modprobe", "tun"], check=False)
    before = metric("packetflow_sockets")[""]
    with sysctl("net.core.rmem_default", BARE):
        for _ in seconds(8):
            devices_come_and_go()
    assert dropped()["socket_full"] > 0
    wait_for(lambda: metric("packetflow_sockets")[""] <= before)
    wait_for(lambda: granted() == 0, 5)
