# SPDX-License-Identifier: GPL-2.0-only
"""Settings: what arms are made of; each enters the guest and leaves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments import mm
from experiments.counters import early_drops, metric
from rig.guest import Guest
from rig.kernels import REPO

FOUR_MIB = 4 << 20
CGROUPS = "/sys/fs/cgroup"
CONTROLLERS = f"{CGROUPS}/cgroup.subtree_control"
WEIGHT = 97  # of the first, where the others have 1
SCALED_MB = 4  # nice 0's largest buffer in the arm all-scaled
DROPPED_METRIC = "packetflow_filter_dropped_total"
METRICS = "/proc/packetflow/metrics"
TCP_RMEM = "/proc/sys/net/ipv4/tcp_rmem"
THREADED = "/sys/class/net/eth0/threaded"
FLOW_LIMIT = "/proc/sys/net/core/flow_limit_cpu_bitmap"
PUT_OFF = "/sys/class/net/eth0/gro_flush_timeout"
STEERED = "/sys/class/net/eth0/queues/rx-0/rps_cpus"
Early = dict[int, dict[str, int]]  # packets by port and reason


class Setting:
    """One change to the guest; the base changes nothing."""

    # Whether the sockets' own drop counters contain what early() tells.
    counted_by_socket = False

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        """Put the guest into this state; ports in order of priority."""

    def started(self, guest: Guest, pids: Sequence[int]) -> None:
        """The receivers run now, these in order of priority; they end before leave()."""

    def leave(self, guest: Guest) -> None:
        """Undo enter()."""

    def early(self, guest: Guest, ports: Sequence[int]) -> Early:
        """What this setting has dropped before the sockets since enter()."""
        return {}

    def decided(self, guest: Guest) -> dict[str, float]:
        """Drops it decided on by reason, carried out or not."""
        return {}

    def granted(self, guest: Guest) -> mm.Granted | None:
        """What pf_mm has added to buffers since enter(); None where it is not loaded."""
        return None


class Sysctl(Setting):
    def __init__(self, **values: int) -> None:
        self.values = {f"/proc/sys/{name.replace('__', '/')}": v for name, v in values.items()}
        self.before: dict[str, str] = {}

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        for path, value in self.values.items():
            self.before[path] = guest.read(path).strip()
            guest.write(path, str(value))

    def leave(self, guest: Guest) -> None:
        for path, value in self.before.items():
            guest.write(path, value)


class TcpBuffers(Setting):
    """TCP buffers may grow to so many bytes, or to as many as before if these are more."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.before = ""

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        self.before = guest.read(TCP_RMEM).strip()
        least, default, most = self.before.split()
        guest.write(TCP_RMEM, f"{least} {default} {max(int(most), self.most)}")

    def leave(self, guest: Guest) -> None:
        guest.write(TCP_RMEM, self.before)


class RealTime(Setting):
    """The first receiver runs before all others, by hand: the ceiling of scheduling."""

    def __init__(self, policy: str) -> None:
        self.policy = policy

    def started(self, guest: Guest, pids: Sequence[int]) -> None:
        guest.run(["chrt", "--all-tasks", f"--{self.policy}", "--pid", "1", str(pids[0])])


class Reniced(Setting):
    """The first receiver has a better nice level."""

    def __init__(self, nice: int) -> None:
        self.nice = nice

    def started(self, guest: Guest, pids: Sequence[int]) -> None:
        guest.run(f"renice -n {self.nice} -p $(ls /proc/{pids[0]}/task)")


class Pinned(Setting):
    """Each receiver may run on one CPU only, by turns."""

    def started(self, guest: Guest, pids: Sequence[int]) -> None:
        for i, pid in enumerate(pids):
            guest.run(["taskset", "--all-tasks", "--pid", f"{1 << i % guest.cpus:x}", str(pid)])


class Weights(Setting):
    """Each receiver is in a control group of its own (version 2), with a weight."""

    def __init__(self, first: int, other: int) -> None:
        self.first, self.other = first, other
        self.groups: list[str] = []

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        guest.write(CONTROLLERS, "+cpu")

    def started(self, guest: Guest, pids: Sequence[int]) -> None:
        self.groups = [f"{CGROUPS}/receiver{i}" for i in range(len(pids))]
        for i, (group, pid) in enumerate(zip(self.groups, pids, strict=True)):
            guest.run(["mkdir", group])
            guest.write(f"{group}/cpu.weight", str(self.other if i else self.first))
            guest.write(f"{group}/cgroup.procs", str(pid))

    def leave(self, guest: Guest) -> None:
        if self.groups:
            guest.run(["rmdir", *self.groups])
        guest.write(CONTROLLERS, "-cpu")


class ThreadedNapi(Setting):
    """The device is polled by a thread of its own, of this nice level."""

    def __init__(self, nice: int = 0) -> None:
        self.nice = nice

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        guest.write(THREADED, "1")
        found = guest.run(["pgrep", "napi/eth0"]).out.split()
        guest.run(["renice", "-n", str(self.nice), "-p", *found])

    def leave(self, guest: Guest) -> None:
        guest.write(THREADED, "0")


class FlowLimit(Setting):
    """Receive packet steering to the CPU, which drops of large flows first where its
    backlog fills."""

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        guest.write(FLOW_LIMIT, "1")
        guest.write(STEERED, "1")

    def leave(self, guest: Guest) -> None:
        guest.write(STEERED, "0")
        guest.write(FLOW_LIMIT, "0")


class Steered(Setting):
    """Receive packet steering to all CPUs."""

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        guest.write(STEERED, f"{(1 << guest.cpus) - 1:x}")

    def leave(self, guest: Guest) -> None:
        guest.write(STEERED, "0")


class Sessions(Setting):
    """The program that raises sessions, where that is pf_sched's lever."""

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        guest.load("pf_sched", sched={"lever": "group"})
        self.program = guest.spawn([str(REPO / "tools" / "packetflow-group")], nice=-20)

    def leave(self, guest: Guest) -> None:
        self.program.signal()
        self.program.wait()
        guest.unload()


class Modules(Setting):
    """The suite's own modules; none named: every one that is built and about receivers.

    Parameters go by module, as in Guest.load(). Flows (pf_flow) are only where a table gives
    some, so an arm has to name that module.
    """

    def __init__(self, *names: str, **parameters: Mapping[str, object]) -> None:
        self.names = names
        self.parameters = parameters
        drops = not names or "pf_filter" in names
        self.counted_by_socket = drops and parameters.get("filter", {}).get("mode") != "observe"

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        receiving = [name for name in guest.kernel.modules if name != "pf_flow"]
        guest.load(*(self.names or receiving), **self.parameters)

    def leave(self, guest: Guest) -> None:
        guest.unload()

    def early(self, guest: Guest, ports: Sequence[int]) -> Early:
        if not self.counted_by_socket:
            return {}
        return early_drops(guest.read("/proc/packetflow/sockets"), ports)

    def decided(self, guest: Guest) -> dict[str, float]:
        return metric(guest.read(METRICS), DROPPED_METRIC, "reason")

    def granted(self, guest: Guest) -> mm.Granted | None:
        return mm.granted(guest.read(METRICS)) if "pf_mm" in guest.loaded else None


class InDriver(Modules):
    """The same, and what is dropped is dropped in the driver of the receiving device."""

    TOOL = "tools/packetflow-xdp"
    DEVICE = "eth0"

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        super().enter(guest, ports)
        guest.run(f"{REPO}/{self.TOOL} attach {self.DEVICE}", timeout=120)

    def leave(self, guest: Guest) -> None:
        guest.run(f"{REPO}/{self.TOOL} detach")
        super().leave(guest)


class Scaled(Modules):
    """Every module, and buffers larger than the paper's."""

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        super().enter(guest, ports)
        guest.write(mm.SCALE, mm.scale(SCALED_MB))
