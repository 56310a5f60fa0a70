# SPDX-License-Identifier: GPL-2.0-only
"""Sockets, other machines (as network namespaces), and pressure.

From one CPU a datagram that is sent on the loopback or a veth pair has reached
its socket, or has been dropped, when the system call returns: counters are
exact at once. Where a test sends from several CPUs it waits for its sum.
"""

import ctypes
import os
import re
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from inside import Skip
from inside.suite import early, judging, looked_at, settle

SO_MEMINFO, SO_RCVBUFFORCE = 55, 33
UDP_SEGMENT = 103
SMALL = 1  # SO_RCVBUF: the kernel makes it the least that it allows

Address = tuple[str, int]


def ip(commands: str) -> None:
    """Commands for `ip`, one a line, in the current namespace."""
    subprocess.run(["ip", "-batch", "-"], input=commands, text=True, check=True)


def nft(rules: str) -> None:
    """Rules for nftables in the current namespace."""
    subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True)


def nft_counters() -> list[int]:
    """The packets of all its named counters there."""
    command = ["nft", "list", "counters"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [int(number) for number in re.findall(r"packets (\d+)", told)]


def first_namespace(setting: str, value: str) -> str:
    """Set a sysctl that only the first namespace has; what it was."""
    inside_first = ["nsenter", "--target", "1", "--net", "sysctl", "-n"]
    before = subprocess.run([*inside_first, setting], capture_output=True, text=True, check=True)
    subprocess.run([*inside_first, "-w", f"{setting}={value}"], check=True, capture_output=True)
    return " ".join(before.stdout.split())


@contextmanager
def sysctl(setting: str, value: str) -> Iterator[None]:
    """Such a setting for a while."""
    before = first_namespace(setting, value)
    try:
        yield
    finally:
        first_namespace(setting, before)


def bridges_pass_by_rules() -> None:
    """What a bridge hands on here meets no hook of IP; debug kernels have br_netfilter built in."""
    for family in "iptables", "ip6tables":
        calls = Path(f"/proc/sys/net/bridge/bridge-nf-call-{family}")
        if calls.exists():
            calls.write_text("0")


def rules_see_bridges() -> None:
    """What a bridge hands on here meets the hooks of IP, once."""
    subprocess.run(["modprobe", "-a", "bridge", "br_netfilter"], check=False)
    for family in "iptables", "ip6tables":
        calls = Path(f"/proc/sys/net/bridge/bridge-nf-call-{family}")
        if not calls.exists():
            raise Skip("this kernel has no br_netfilter")
        calls.write_text("1")


def udp(address: str = "127.0.0.1", port: int = 0, rcvbuf: int = 0) -> socket.socket:
    """A bound UDP socket."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    if rcvbuf:
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, rcvbuf)
    sock.bind((address, port))
    return sock


def port_of(sock: socket.socket) -> int:
    return int(sock.getsockname()[1])


def drops(sock: socket.socket) -> int:
    """The socket's own count of drops, early ones included.

    Those of the last moments are added to it when somebody looks at the socket.
    """
    settle()
    return int(struct.unpack("9I", sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 36))[8])


def rmem(sock: socket.socket) -> int:
    return int(struct.unpack("9I", sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 36))[0])


def datagram(number: int, size: int) -> bytes:
    """A payload that is different for every number and in every byte's place."""
    return b"".join(struct.pack("!II", number, i) for i in range(size // 8 + 1))[:size]


def drain(sock: socket.socket) -> list[bytes]:
    """All that waits in a socket."""
    found = []
    try:
        while True:
            found.append(sock.recv(65536, socket.MSG_DONTWAIT))
    except BlockingIOError:
        return found


def udp_errors(v6: bool = False) -> tuple[int, int]:
    """(InErrors, RcvbufErrors) of the current namespace, as nstat shows them."""
    if v6:
        with open("/proc/thread-self/net/snmp6") as file:
            pairs = dict(line.split() for line in file)
        return int(pairs["Udp6InErrors"]), int(pairs["Udp6RcvbufErrors"])
    with open("/proc/thread-self/net/snmp") as file:
        names, values = (line.split() for line in file if line.startswith("Udp:"))
    found = dict(zip(names, values, strict=True))
    return int(found["InErrors"]), int(found["RcvbufErrors"])


def _new() -> int:
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    os.unshare(os.CLONE_NEWNET)
    made = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    os.setns(before, os.CLONE_NEWNET)
    os.close(before)
    return made


def _new_of_another_user() -> int:
    own, its = socket.socketpair()
    pid = os.fork()
    if not pid:
        try:
            os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNET)
            its.send(b"x")
            signal.pause()
        finally:
            os._exit(1)
    its.close()
    with own:
        assert own.recv(1) == b"x", "no user may make one"
        made = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return made


class Namespace:
    """A network namespace; `with` it, the thread is in it. Ends with its last user.

    It may be one that another user has made, and may do with what he likes.
    """

    def __init__(self, anothers: bool = False) -> None:
        self.fd = _new_of_another_user() if anothers else _new()
        self.path = f"/proc/{os.getpid()}/fd/{self.fd}"
        self._before: list[int] = []
        with self:
            ip("link set lo up")

    def __enter__(self) -> "Namespace":
        self._before.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY))
        os.setns(self.fd, os.CLONE_NEWNET)
        return self

    def __exit__(self, *_: object) -> None:
        before = self._before.pop()
        os.setns(before, os.CLONE_NEWNET)
        os.close(before)

    def close(self) -> None:
        os.close(self.fd)


class Peer(Namespace):
    """Another machine behind a veth pair of the current namespace.

    The device is v<number> here and eth0 there; the addresses are
    10.<number>.0.1 and fd<number>::1 here, 2 there.
    """

    def __init__(self, number: int = 1, mtu: int = 1500, anothers: bool = False) -> None:
        super().__init__(anothers)
        self.device = f"v{number}"
        self.ours4, self.theirs4 = f"10.{number}.0.1", f"10.{number}.0.2"
        self.ours6, self.theirs6 = f"fd{number:02}::1", f"fd{number:02}::2"
        macs = f"02:00:00:00:{number:02}:01", f"02:00:00:00:{number:02}:02"
        there = self._configure("eth0", self.theirs4, self.theirs6, self.ours4, self.ours6, macs[0])
        ip(
            f"link add {self.device} mtu {mtu} address {macs[0]} type veth"
            f" peer name eth0 mtu {mtu} address {macs[1]} netns {self.path}\n"
        )
        ip(
            self._configure(
                self.device, self.ours4, self.ours6, self.theirs4, self.theirs6, macs[1]
            )
        )
        with self:
            ip(f"{there}route add default via {self.ours4}\nroute add default via {self.ours6}\n")

    @staticmethod
    def _configure(device: str, own4: str, own6: str, far4: str, far6: str, mac: str) -> str:
        return (
            f"link set {device} addrgenmode none up\n"
            f"address add {own4}/24 dev {device}\n"
            f"address add {own6}/64 dev {device} nodad\n"
            f"neighbour replace {far4} lladdr {mac} dev {device}\n"
            f"neighbour replace {far6} lladdr {mac} dev {device}\n"
        )

    def udp(self, address: str = "", port: int = 0, rcvbuf: int = 0) -> socket.socket:
        with self:
            return udp(address or self.theirs4, port, rcvbuf)


def vrf(peer: Peer) -> bytes:
    """Have what comes from this machine arrive in a VRF; its name, to bind sockets to."""
    try:
        ip(f"link add red type vrf table 100\nlink set red up\nlink set {peer.device} master red")
    except subprocess.CalledProcessError:
        raise Skip("this kernel has no VRF") from None
    return b"red"


def bond_over(peer: Peer) -> None:
    """A bond, bond7, gets the device and its address of IPv4."""
    if subprocess.run(["modprobe", "bonding"], check=False).returncode:
        raise Skip("this kernel has no bonding")
    ip(
        "link add bond7 type bond mode balance-rr\n"
        f"link set {peer.device} down\n"
        f"link set {peer.device} master bond7\n"
        "link set bond7 up\n"
        f"address flush dev {peer.device}\n"
        f"address add {peer.ours4}/24 dev bond7\n"
    )


class Pressure:
    """A full socket that nobody reads: its drops keep this CPU under pressure."""

    def __init__(self, address: str = "127.0.0.1", port: int = 0) -> None:
        self.sock = udp(address, port, SMALL)
        self.port = port_of(self.sock)
        self._sender = udp("::1" if ":" in address else "127.0.0.1")
        self._to = (self._sender.getsockname()[0], self.port)

    def raise_(self) -> None:
        """Make sure that packets which arrive on this CPU are judged from here on. Hooks come to a
        new network namespace a tenth of a second later."""
        cpu, before = min(os.sched_getaffinity(0)), looked_at()
        while not judging(cpu) or looked_at() == before:
            self.again()
        for _ in range(16):
            self.again()

    def again(self) -> None:
        """Lasts a second."""
        self._sender.sendto(b"x" * 512, self._to)

    def early(self) -> int:
        return early(self.sock)


@contextmanager
def pressure(address: str = "127.0.0.1", port: int = 0) -> Iterator[Pressure]:
    made = Pressure(address, port)
    made.raise_()
    yield made
    made.sock.close()


class Worker:
    """A child process that performs an action whenever it is told to."""

    def __init__(self, action: Callable[[], object], nice: int = 0) -> None:
        self._own, its = socket.socketpair()
        parent = os.getpid()
        self.pid = os.fork()
        if not self.pid:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
            if os.getppid() == parent:
                os.nice(nice)
                self._own.close()
                while its.recv(1):
                    action()
                    its.send(b"x")
            os._exit(0)
        its.close()
        self._own.settimeout(20)

    def begin(self) -> None:
        """Have it act, and do not wait."""
        self._own.send(b"x")

    def finished(self) -> None:
        """Wait until it has acted."""
        assert self._own.recv(1) == b"x", "the worker died"

    def act(self) -> None:
        self.begin()
        self.finished()

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
