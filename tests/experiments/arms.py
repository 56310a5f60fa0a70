# SPDX-License-Identifier: GPL-2.0-only
"""Arms: the states of the guest that an experiment compares.

An arm is one setting or several joined by "+", as in "shed-all+rmem4m"; stock
and stock2 are no setting at all (what differs between them is noise). A setting
enters the guest and leaves it; after an arm the guest must be as before, which
is asserted on all that any setting touches.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from experiments.counters import early_drops, metric
from rig.guest import Guest
from rig.kernels import REPO, Kernel

FOUR_MIB = 4 << 20
OFF = ("stock", "stock2")
DROPPED_METRIC = "packetflow_filter_dropped_total"
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


class RealTime(Setting):
    """The first receiver runs before all others, by hand: the ceiling of scheduling."""

    def started(self, guest: Guest, pids: Sequence[int]) -> None:
        guest.run(["chrt", "--rr", "--pid", "1", str(pids[0])])


class Sessions(Setting):
    """The program that raises sessions, where that is pf_sched's lever."""

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        guest.load("pf_sched", sched={"lever": "group"})
        self.program = guest.spawn([str(REPO / "tools" / "packetflow-group")], nice=-20)

    def leave(self, guest: Guest) -> None:
        self.program.signal()
        self.program.wait()
        guest.unload()


class ShedAll(Setting):
    """nftables drops everything for the lower receivers: the ceiling of dropping."""

    TABLE = "inet packetflow_shed_all"

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        hook = "type filter hook prerouting priority raw;"
        rules = "\n".join(f"udp dport {port} counter drop" for port in ports[1:])
        table = f"table {self.TABLE} {{ chain shed {{\n{hook}\n{rules}\n}}\n}}\n"
        guest.write("/run/shed-all.nft", table)
        guest.run(["nft", "-f", "/run/shed-all.nft"])

    def leave(self, guest: Guest) -> None:
        guest.run(f"nft delete table {self.TABLE}")

    def early(self, guest: Guest, ports: Sequence[int]) -> Early:
        listing = json.loads(guest.run(f"nft -j list table {self.TABLE}").out)
        rules = [entry["rule"]["expr"] for entry in listing["nftables"] if "rule" in entry]
        dropped = (
            next(part["counter"]["packets"] for part in rule if "counter" in part) for rule in rules
        )
        return {port: {"shed": count} for port, count in zip(ports[1:], dropped, strict=True)}


class Modules(Setting):
    """The suite's own modules; none named: every one that is built.

    Parameters go by module, as in Guest.load().
    """

    def __init__(self, *names: str, **parameters: Mapping[str, object]) -> None:
        self.names = names
        self.parameters = parameters
        self.counted_by_socket = parameters.get("filter", {}).get("mode") != "observe"

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        guest.load(*(self.names or built(guest.kernel)), **self.parameters)

    def leave(self, guest: Guest) -> None:
        guest.unload()

    def early(self, guest: Guest, ports: Sequence[int]) -> Early:
        if not self.counted_by_socket:
            return {}
        return early_drops(guest.read("/proc/packetflow/sockets"), ports)

    def decided(self, guest: Guest) -> dict[str, float]:
        return metric(guest.read("/proc/packetflow/metrics"), DROPPED_METRIC, "reason")


def built(kernel: Kernel) -> list[str]:
    """The modules that the build for this kernel holds."""
    names = ("pf_filter", "pf_sched", "pf_mm")
    return [name for name in names if (kernel.build / name / f"{name}.ko").exists()]


SETTINGS = {
    "stock": lambda: Setting(),
    "stock2": lambda: Setting(),
    "shed-all": lambda: ShedAll(),
    "rmem4m": lambda: Sysctl(net__core__rmem_max=FOUR_MIB, net__core__rmem_default=FOUR_MIB),
    "autogroup-on": lambda: Sysctl(kernel__sched_autogroup_enabled=1),
    "autogroup-off": lambda: Sysctl(kernel__sched_autogroup_enabled=0),
    "rr-by-hand": lambda: RealTime(),
    "filter": lambda: Modules("pf_filter"),
    "observe": lambda: Modules("pf_filter", filter={"mode": "observe"}),
    "sched": lambda: Modules("pf_sched"),
    "sched-nice": lambda: Modules("pf_sched", sched={"lever": "nice"}),
    "sched-group": lambda: Sessions(),
    "sched-deadline": lambda: Modules("pf_sched", sched={"lever": "deadline"}),
    "sched-rr": lambda: Modules("pf_sched", sched={"lever": "rr"}),
    "both": lambda: Modules("pf_filter", "pf_sched"),
    "all": lambda: Modules(),
}


class Arm:
    """A named state of the guest, made of settings, over those that go without saying."""

    def __init__(self, name: str, beneath: Sequence[str] = ()) -> None:
        unknown = [part for part in name.split("+") if part not in SETTINGS]
        if unknown:
            raise ValueError(f"no such arm: {unknown[0]} (there are {', '.join(SETTINGS)})")
        self.name = name
        self.settings = [SETTINGS[part]() for part in (*beneath, *name.split("+"))]

    @property
    def counted_by_socket(self) -> bool:
        return any(setting.counted_by_socket for setting in self.settings)

    @contextmanager
    def __call__(self, guest: Guest, ports: Sequence[int]) -> Iterator[None]:
        """The guest in this state."""
        before = state(guest)
        with ExitStack() as stack:
            for setting in self.settings:
                setting.enter(guest, ports)
                stack.callback(setting.leave, guest)
            yield
        after = state(guest)
        assert after == before, f"arm {self.name} left {after}, not {before}"

    def started(self, guest: Guest, pids: Sequence[int]) -> None:
        """To be called once the receivers run."""
        for setting in self.settings:
            setting.started(guest, pids)

    def early(self, guest: Guest, ports: Sequence[int]) -> Early:
        """Packets dropped on purpose before the sockets, for every port."""
        found: Early = {port: {} for port in ports}
        for setting in self.settings:
            for port, reasons in setting.early(guest, ports).items():
                found[port] |= reasons
        return found

    def decided(self, guest: Guest) -> dict[str, float]:
        """Drops decided on by reason, of all receivers, carried out or not."""
        found: dict[str, float] = {}
        for setting in self.settings:
            found |= setting.decided(guest)
        return found


def arms(names: Sequence[str], beneath: Sequence[str] = (), again: Sequence[str] = ()) -> list[Arm]:
    """These arms, with both stock ones whether named or not.

    beneath: settings that all of them have; again: those with which each is had once more.
    """
    once = list(dict.fromkeys((*OFF, *names)))
    more = [f"{name}+{part}" for part in again for name in once if part not in name.split("+")]
    return [Arm(name, beneath) for name in dict.fromkeys((*once, *more))]


def state(guest: Guest) -> dict[str, str]:
    """All of the guest that any setting touches."""
    sysctls = ("net/core/rmem_max", "net/core/rmem_default", "kernel/sched_autogroup_enabled")
    found = {name: guest.read(f"/proc/sys/{name}").strip() for name in sysctls}
    found["rules"] = guest.run("nft list ruleset").out
    modules = [line.split()[0] for line in guest.read("/proc/modules").splitlines()]
    found["modules"] = " ".join(sorted(name for name in modules if name.startswith("pf_")))
    return found
