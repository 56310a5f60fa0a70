# SPDX-License-Identifier: GPL-2.0-only
"""Arms: the states of the guest that an experiment compares.

An arm is one setting or several joined by "+", as in "shed-all+rmem4m"; stock
and stock2 are no setting at all (what differs between them is noise). A setting
enters the guest and leaves it; after an arm the guest must be as before, which
is asserted on all that any setting touches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from experiments import mm
from experiments.rules import Nft, ShedAll, TcPolice, XdpPolice
from experiments.settings import (
    CONTROLLERS,
    FLOW_LIMIT,
    FOUR_MIB,
    PUT_OFF,
    STEERED,
    THREADED,
    WEIGHT,
    Early,
    FlowLimit,
    InDriver,
    Modules,
    Pinned,
    RealTime,
    Reniced,
    Scaled,
    Sessions,
    Setting,
    Steered,
    Sysctl,
    TcpBuffers,
    ThreadedNapi,
    Weights,
)
from rig.guest import Guest

OFF = ("stock", "stock2")
TOUCHED = (THREADED, FLOW_LIMIT, STEERED, CONTROLLERS, PUT_OFF)

SETTINGS = {
    "stock": lambda: Setting(),
    "stock2": lambda: Setting(),
    "shed-all": lambda: ShedAll(),
    "rmem4m": lambda: Sysctl(net__core__rmem_max=FOUR_MIB, net__core__rmem_default=FOUR_MIB),
    "tcp4m": lambda: TcpBuffers(FOUR_MIB),
    "autogroup-on": lambda: Sysctl(kernel__sched_autogroup_enabled=1),
    "autogroup-off": lambda: Sysctl(kernel__sched_autogroup_enabled=0),
    "rr-by-hand": lambda: RealTime("rr"),
    "fifo-by-hand": lambda: RealTime("fifo"),
    "nice-by-hand": lambda: Reniced(-5),
    "weights-equal": lambda: Weights(1, 1),
    "weights-97": lambda: Weights(WEIGHT, 1),
    "threaded": lambda: ThreadedNapi(),
    "threaded-niced": lambda: ThreadedNapi(19),
    "flow-limit": lambda: FlowLimit(),
    "steered": lambda: Steered(),
    "pinned": lambda: Pinned(),
    "nft-limit": lambda: Nft(),
    "tc-police": lambda: TcPolice(),
    "xdp-police": lambda: XdpPolice(),
    "filter": lambda: Modules("pf_filter"),
    "filter-xdp": lambda: InDriver("pf_filter"),
    "observe": lambda: Modules("pf_filter", filter={"mode": "observe"}),
    "full": lambda: Modules("pf_filter", filter={"shed": "full"}),
    "floor-share": lambda: Modules("pf_filter", filter={"floor_share": "100"}),
    "sched": lambda: Modules("pf_sched"),
    "sched-nice": lambda: Modules("pf_sched", sched={"lever": "nice"}),
    "sched-group": lambda: Sessions(),
    "sched-deadline": lambda: Modules("pf_sched", sched={"lever": "deadline"}),
    "sched-rr": lambda: Modules("pf_sched", sched={"lever": "rr"}),
    "both": lambda: Modules("pf_filter", "pf_sched"),
    "mm": lambda: Modules("pf_mm"),
    "all": lambda: Modules(),
    "all-xdp": lambda: InDriver(),
    "all-scaled": lambda: Scaled(),
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

    def granted(self, guest: Guest) -> mm.Granted | None:
        """What pf_mm has added to buffers; None where it is not loaded."""
        found = (setting.granted(guest) for setting in self.settings)
        return next((one for one in found if one is not None), None)


def arms(names: Sequence[str], beneath: Sequence[str] = (), again: Sequence[str] = ()) -> list[Arm]:
    """These arms, with both stock ones whether named or not.

    beneath: settings that all of them have; again: those with which each is had once more.
    """
    once = list(dict.fromkeys((*OFF, *names)))
    more = [f"{name}+{part}" for part in again for name in once if part not in name.split("+")]
    return [Arm(name, beneath) for name in dict.fromkeys((*once, *more))]


def state(guest: Guest) -> dict[str, str]:
    """All of the guest that any setting touches."""
    sysctls = (
        "net/core/rmem_max",
        "net/core/rmem_default",
        "net/ipv4/tcp_rmem",
        "kernel/sched_autogroup_enabled",
    )
    found = {name: guest.read(f"/proc/sys/{name}").strip() for name in sysctls}
    found |= {path: guest.read(path).strip() for path in TOUCHED}
    for command in ("nft list ruleset", "tc qdisc show dev eth0", "ip -details link show eth0"):
        found[command] = guest.run(command).out
    modules = [line.split()[0] for line in guest.read("/proc/modules").splitlines()]
    found["modules"] = " ".join(sorted(name for name in modules if name.startswith("pf_")))
    return found
