# SPDX-License-Identifier: GPL-2.0-only
"""A guest: a stock kernel in a virtual machine, and everything done to it.

    with Guest(kernel("6.1")) as guest:
        guest.load("pf_filter")
        print(guest.run("uname -r").out)

A guest that dies or hangs raises GuestError with the end of its kernel log.
Leaving the context raises it too if the kernel complained of anything.

With icount the guest's clock counts its instructions, one a nanosecond, so that all that
happens in it takes the same time on any host, whatever else that does. The sender then
is in the guest as well, on a CPU of its own beyond `cpus`. Since QEMU's CPUs
take turns in that time, a task that only computes keeps a last one busy, and a machine of
one CPU has a third of the billion instructions a second, whatever the sender does. A guest
without a link has all of them; or half of them, if told, which is about what a guest has that is
emulated in the host's time.
A plugin of QEMU (src/instructions.c) can count them by address.

A guest that routes forwards between two such links. The far end of the second one is a
namespace, too, beside the task that is always busy.
"""

import errno
import os
import re
import signal
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rig import complaints, image, initramfs, link
from rig.channel import Channel, Reply
from rig.kernels import Kernel
from rig.link import VIRTIO
from rig.machine import Machine, accelerators, settle
from rig.programs import programs
from rig.share import Share

BOOT_SECONDS = 60.0
TRIAL_SECONDS = 8.0  # for hardware virtualization, which boots in one or two
REPLY_SECONDS = 30.0
LOG_SECONDS = 10.0
OTHERS = 2  # CPUs that are not the machine's: the sender's, and one always busy
PATIENCE = 12.0  # a second of counted instructions takes the host no longer than this

Command = str | list[str]


class GuestError(Exception):
    """The guest failed; the message ends with the tail of its log."""


class CommandError(Exception):
    """A program in the guest failed."""


@dataclass(frozen=True)
class Result:
    """How a program ended; a negative code is a signal's number."""

    rc: int
    out: str
    err: str


class Process:
    """A program running in the guest."""

    def __init__(self, guest: "Guest", command: Command, child: int, pid: int) -> None:
        self.pid = pid
        self._guest = guest
        self._command = command
        self._child = child
        self._result: Result | None = None

    def wait(self, timeout: float = 60.0) -> Result:
        """Its result; TimeoutError if it is still running then."""
        if self._result is None:
            try:
                reply = self._guest.ask(timeout, do="wait", child=self._child)
            except TimeoutError:
                raise TimeoutError(f"runs on after {timeout:.0f} s: {self._command}") from None
            self._result = Result(reply["rc"], reply["out"], reply["err"])
        return self._result

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Send a signal, to its whole session if it has one of its own."""
        self._guest.ask(do="signal", child=self._child, signal=int(number))

    def alive(self) -> bool:
        return bool(self._guest.ask(do="alive", child=self._child)["alive"])


class Guest:
    """A virtual machine, running while in its context."""

    def __init__(
        self,
        kernel: Kernel,
        *,
        cpus: int = 1,
        queues: int = 1,
        icount: bool = False,
        plugin: Path | None = None,
        half: bool = False,
        link: bool = True,
        card: str = VIRTIO,
        dilation: float = 1,
        routed: bool = False,
    ) -> None:
        assert icount or not routed, "the second link is one of counted time"
        assert not half or (icount and not link), "the sender's share is not half of it"
        self.kernel = kernel
        self.dilation = dilation
        self.cpus = cpus
        self.queues = queues
        # What checks memory takes as much again for each piece of it.
        self._memory_mib = 2048 if kernel.debug else 1024
        self._icount = icount
        self._plugin = plugin
        self._link = link
        self._card = card
        self.wired = link and icount  # the sender is inside
        self._half = half
        self.routed = routed
        self.patience = dilation * (PATIENCE if icount else 1)
        self._expected: set[int] = set()  # lines of the log
        self._marks = 0  # lines of ours in it
        self._loaded: list[str] = []
        self._interrupts: list[str] = []  # of the sender's device, where it is in the guest
        self._stack = ExitStack()

    # The machine

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            initramfs.build(self.kernel, self._directory / "initramfs")
            self._boot(self._network(stack))
            stack.callback(self._machine.end)
            stack.callback(self._channel.close)
            if self._link:
                if self._card in link.DRIVERS:
                    self.run(["modprobe", link.DRIVERS[self._card]])
                self.write("/run/link", link.guest_configuration())
                self.run("ip -batch /run/link && ip link set lo up")
            if self.wired:
                self._make_sender()
            if self.routed:
                self._make_far()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._stack:
            if kind is None and self.kernel.leaks:
                self.scan_for_leaks()
            found = self.complaints()
        if found and kind is None:
            raise GuestError("the kernel complained:\n" + "\n".join(found))

    def _network(self, stack: ExitStack) -> list[str]:
        """QEMU's options."""
        if self.wired:
            return link.wired(self.routed)
        return stack.enter_context(link.tap(self.queues, self._card)) if self._link else []

    def _options(self) -> str:
        """The kernel's: nothing uninvited on the last CPUs, and one time-stamp counter
        for all; on one with KASAN, every mistake is told of, not only the first. A guest that
        the host does not run for half a minute wakes up to a grace period that is as old: only
        what lasts longer is a stall, and hangs the test too. A counted clock stands meanwhile."""
        if not self.wired:
            debug = " kasan_multi_shot" if self.kernel.debug else ""
            return f"rcupdate.rcu_cpu_stall_timeout=120{debug}"
        first, end = self.cpus, self.cpus + OTHERS
        return f"isolcpus={first}-{end - 1} irqaffinity=0-{first - 1} tsc=reliable"

    @property
    def _counts(self) -> Path:
        return self._directory / "instructions"

    def instructions(self) -> Counter[int]:
        """What all CPUs executed so far, by address, as the plugin counts it."""
        found: Counter[int] = Counter()
        for address, _, executed in struct.iter_unpack("=3Q", self._counts.read_bytes()):
            if executed:
                found[address] += executed
        return found

    def _make_sender(self) -> None:
        """The sender's network namespace, its device's interrupts on its CPU, and the
        task that is always busy."""
        self._interrupts = self._interrupts_of(link.INSIDE_DEVICE)
        self._make_end(link.INSIDE, link.INSIDE_DEVICE, link.inside_configuration())
        self._interrupt(self._interrupts, self.cpus)
        self.spawn(["taskset", "-c", str(self.busy), str(programs() / "busy")])

    def _make_far(self) -> None:
        """The second link; what comes for one of the networks from the other passes."""
        out, far = link.out_configuration()
        self.write("/run/out", out)
        self.run("ip -batch /run/out")
        self.write("/proc/sys/net/ipv4/ip_forward", "1")
        interrupts = self._interrupts_of(link.FAR_DEVICE)
        self._make_end(link.FAR, link.FAR_DEVICE, far)
        self._interrupt(interrupts, self.busy)
        self.run(f"ip -netns {link.INSIDE} route add {link.FAR_NETWORK4} via {link.GUEST4}")

    def _make_end(self, namespace: str, device: str, configuration: str) -> None:
        """A namespace that has the device."""
        self.write(f"/run/{namespace}", configuration)
        self.run(f"ip netns add {namespace} && ip link set {device} netns {namespace}")
        self.run(f"ip -netns {namespace} -batch /run/{namespace}")

    def _interrupts_of(self, device: str) -> list[str]:
        name = self.run(f"basename $(readlink /sys/class/net/{device}/device)").out.strip()
        return [
            line.split(":")[0].strip()
            for line in self.read("/proc/interrupts").splitlines()
            if f" {name}-" in line
        ]

    def _interrupt(self, numbers: list[str], cpu: int) -> None:
        for number in numbers:
            self.write(f"/proc/irq/{number}/smp_affinity_list", str(cpu))

    @property
    def busy(self) -> int:
        """The CPU of the task that is always busy."""
        return self.cpus + OTHERS - 1

    def spare_sender(self) -> None:
        """Have the sender's device interrupt the task that is always busy. What streams are
        answered, and what they send upon it, then takes nothing from who sends datagrams. It
        shifts all rates a little, so it is left where there are datagrams only."""
        self._interrupt(self._interrupts, self.busy)

    def in_sender(
        self, command: list[str], apart: bool = False, namespace: str = link.INSIDE
    ) -> list[str]:
        """The command, to be run where the sender is, in the guest, or in another namespace;
        apart: beside the task that is always busy."""
        cpu = self.busy if apart else self.cpus
        enter = ["nsenter", f"--net=/run/netns/{namespace}", "taskset", "-c", str(cpu)]
        return [*enter, *command]

    def link_drops(self) -> int:
        """Packets so far that were sent to the guest's device and never came out of it."""
        if not self.wired:
            return int(link.TAP_DROPS.read_text())
        count = f"/sys/class/net/{link.INSIDE_DEVICE}/statistics/tx_packets"
        sent = self.run(["ip", "netns", "exec", link.INSIDE, "cat", count]).out
        return int(sent) - int(self.read("/sys/class/net/eth0/statistics/rx_packets"))

    def _boot(self, network: list[str]) -> None:
        candidates = accelerators(self._icount, self._half)
        for number, accelerator in enumerate(candidates, 1):
            last = number == len(candidates)
            control = self._directory / "control"
            control.unlink(missing_ok=True)
            self._channel = Channel(control)
            self._machine = Machine(
                image.bootable(self.kernel),
                self._directory,
                cpus=self.cpus + (OTHERS if self.wired else 0),
                memory_mib=self._memory_mib,
                accelerator=accelerator,
                network=network,
                share=Share(self.kernel, self._directory, self._memory_mib),
                dilation=self.dilation,
                options=self._options(),
                plugin=f"{self._plugin},counts={self._counts}" if self._plugin else "",
            )
            try:
                trial = "kvm" in accelerator and not last
                self._greet(TRIAL_SECONDS if trial else BOOT_SECONDS * self.patience)
            except BaseException as error:
                self._machine.end()
                self._channel.close()
                if last or not isinstance(error, GuestError):
                    raise
            else:
                if not self._icount:
                    settle(accelerator)
                return

    def _greet(self, timeout: float) -> None:
        try:
            self._channel.accept(10.0)
        except TimeoutError:
            raise self._error("QEMU did not start") from None
        try:
            self._await(self._channel.greeting, timeout)
        except TimeoutError:
            raise self._error(f"no agent after {timeout:.0f} s") from None

    def pin(self) -> None:
        """For measuring: the virtual CPU alone on the first host CPU."""
        self._machine.pin()

    # Talking to the agent

    def ask(self, timeout: float = REPLY_SECONDS, **request: Any) -> Reply:
        """One request and its reply."""
        try:
            future = self._channel.request(**request)
        except EOFError:
            raise self._error("the guest is gone") from None
        return self._await(future, timeout)

    def _await(self, future: Future[Reply], timeout: float) -> Reply:
        try:
            reply = future.result(timeout * self.patience)
        except EOFError:
            raise self._error("the guest died") from None
        if "errno" in reply:
            raise OSError(reply["errno"], os.strerror(reply["errno"]))
        return reply

    def _error(self, what: str) -> GuestError:
        tail = complaints.tail(self.log())
        return GuestError(f"kernel {self.kernel.version}: {what}\n{self._machine.errors()}{tail}")

    # What a test does

    def spawn(self, command: Command, nice: int = 0, new_session: bool = True) -> Process:
        """Start a program; a string goes through the shell."""
        argv = ["sh", "-c", command] if isinstance(command, str) else command
        reply = self.ask(do="spawn", argv=argv, nice=nice, session=new_session)
        return Process(self, command, reply["child"], reply["pid"])

    def run(self, command: Command, timeout: float = 60.0, check: bool = True) -> Result:
        """Run a program to its end."""
        process = self.spawn(command)
        try:
            result = process.wait(timeout)
        except TimeoutError:
            process.signal(signal.SIGKILL)
            raise self._error(f"no end after {timeout:.0f} s: {command}") from None
        if check and result.rc:
            raise CommandError(f"{command}: code {result.rc}\n{result.out}{result.err}")
        return result

    def read(self, path: str) -> str:
        """The content of a file of the guest."""
        return str(self.ask(do="read", path=path)["text"])

    def write(self, path: str, text: str) -> None:
        """Write a file of the guest, by one write call."""
        if self.ask(do="write", path=path, text=text)["short"]:
            raise OSError(errno.EIO, "short write", path)

    @property
    def loaded(self) -> list[str]:
        """The project's modules, in the order they were loaded in."""
        return list(self._loaded)

    def load(self, *modules: str, **parameters: Mapping[str, object]) -> None:
        """Load modules of the project, pf_common first.

        Parameters go by module: load("pf_filter", filter={"floor": 5}).
        """
        for module in dict.fromkeys(["pf_common", *modules]):
            if module not in self._loaded:
                short = module.removeprefix("pf_")
                directory = "common" if short == "common" else module
                path = self.kernel.build / directory / f"{module}.ko"
                needs = self.run(["modinfo", "-F", "depends", str(path)]).out.strip().split(",")
                stock = [n for n in needs if n and not n.startswith("pf_")]
                if stock:
                    self.run(["modprobe", "--all", *stock])
                values = [f"{k}={v}" for k, v in parameters.get(short, {}).items()]
                self.run(["insmod", str(path), *values])
                self._loaded.append(module)

    def unload(self) -> None:
        """Unload what `load` loaded."""
        while self._loaded:
            self.run(["rmmod", self._loaded[-1]])
            self._loaded.pop()

    def forget(self) -> None:
        """What `load` loaded was unloaded by other means."""
        self._loaded.clear()

    # The kernel's log

    def log(self) -> str:
        """The kernel log so far."""
        path = self._directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    @contextmanager
    def expecting(self, pattern: str) -> Iterator[None]:
        """Lines that are logged meanwhile, and match, are no complaint."""
        self._catch_up()
        begin = len(self.log().splitlines())
        try:
            yield
        finally:
            self._catch_up()
            for number, line in enumerate(self.log().splitlines()):
                if number >= begin and re.search(pattern, line):
                    self._expected.add(number)

    def complaints(self) -> list[str]:
        """Lines of the kernel log that tell of a defect."""
        self._catch_up()
        return complaints.complaints(self.log(), self._expected)

    def _catch_up(self) -> None:
        """Wait until the log has all that was said so far: a thread of the kernel's may write
        it. Who is dead says nothing any more."""
        self._marks += 1
        mark = f"rig: {self._marks} times looked at"
        try:
            self.write("/dev/kmsg", f"{mark}\n")
        except (GuestError, OSError):
            return
        end = time.monotonic() + LOG_SECONDS * self.patience
        while mark not in self.log():
            if time.monotonic() > end:
                raise self._error("its log has not what was written to it")
            time.sleep(0.01)

    def scan_for_leaks(self) -> None:
        """Have the kernel log lost memory; what is younger than 5 s, by its own clock, is not
        looked at."""
        scan = "echo scan > /sys/kernel/debug/kmemleak"
        self.run(f"sleep 6; {scan}; {scan}", timeout=600 + 6 * self.dilation)
