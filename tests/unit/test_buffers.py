# SPDX-License-Identifier: GPL-2.0-only
"""What the experiments tell of receive buffers and of pf_mm."""

from pathlib import Path
from typing import cast

import pytest
from experiments import buffers, cost, mm, result, runner, show
from experiments.arms import Arm
from experiments.buffers import Buffers
from experiments.measure import Account, Closing, Load, Run
from experiments.mm import Granted
from experiments.settings import TCP_RMEM, Modules, TcpBuffers
from rig.guest import Guest
from rig.kernels import OPTIONAL, Kernel
from rig.traffic import Received

METRICS = """\
# TYPE packetflow_mm_granted_bytes gauge
packetflow_mm_granted_bytes 1024
packetflow_mm_granted_bytes_peak 3000000
packetflow_mm_budget_bytes 33554432
# EOF
"""


class Files:
    """As much of a guest as some settings look at."""

    def __init__(self, loaded: list[str], **files: str) -> None:
        self.loaded = loaded
        self.files = dict(files)

    def read(self, path: str) -> str:
        return self.files[path]

    def write(self, path: str, text: str) -> None:
        self.files[path] = text


class Loading:
    """A guest that only notes what it is to load."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.loaded: list[list[str]] = []

    def load(self, *modules: str) -> None:
        self.loaded.append(list(modules))


def guest(*loaded: str, **files: str) -> Guest:
    return cast(Guest, Files(list(loaded), **files))


def test_what_pf_mm_grants_is_read_from_its_metrics() -> None:
    assert mm.granted(METRICS) == Granted(1024, 3_000_000, 33_554_432)


def test_absent_metrics_are_no_zeros() -> None:
    with pytest.raises(LookupError):
        mm.granted(METRICS.replace("granted_bytes_peak", "granted_bytes_most"))


def test_scale_follows_the_buffer_of_nice_0() -> None:
    assert mm.scale(mm.TOP_MB) == str(mm.PAPER)
    assert int(mm.scale(4 * mm.TOP_MB)) == 4 * mm.PAPER


def test_an_arm_tells_of_grants_only_where_pf_mm_is_loaded() -> None:
    metrics = {"/proc/packetflow/metrics": METRICS}
    for name in ("all", "filter+mm"):
        with_mm = guest("pf_common", "pf_filter", "pf_mm", **metrics)
        assert Arm(name).granted(with_mm) == mm.granted(METRICS)
    assert Arm("all").granted(guest("pf_common", "pf_filter", **metrics)) is None
    assert Arm("stock").granted(guest()) is None


def test_early_drops_are_taken_from_the_sockets_drops_with_the_filter_only() -> None:
    names = ("mm", "filter+mm", "observe+mm", "all", "all-scaled")
    counted = {name: Arm(name).counted_by_socket for name in names}
    assert counted == {
        "mm": False,
        "filter+mm": True,
        "observe+mm": False,
        "all": True,
        "all-scaled": True,
    }


@pytest.mark.parametrize(("most", "written"), [(8 << 20, 8 << 20), (4 << 20, 6 << 20)])
def test_tcp_buffers_are_raised_and_never_lowered(most: int, written: int) -> None:
    machine = guest(**{TCP_RMEM: "4096\t131072\t6291456\n"})
    setting = TcpBuffers(most)
    setting.enter(machine, ())
    assert machine.read(TCP_RMEM).split() == ["4096", "131072", str(written)]
    setting.leave(machine)
    assert machine.read(TCP_RMEM).split() == ["4096", "131072", "6291456"]


def test_the_modules_are_those_that_are_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rig.kernels.BUILT", tmp_path)
    kernel = Kernel("6.1", "6.1.0", tmp_path, tmp_path)
    assert kernel.modules == []
    for name in ("pf_mm", "pf_filter"):
        (kernel.build / name).mkdir(parents=True)
        (kernel.build / name / f"{name}.ko").touch()
    assert kernel.modules == ["pf_filter", "pf_mm"]


def test_flows_are_only_in_arms_that_name_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rig.kernels.BUILT", tmp_path)
    machine = Loading(Kernel("6.1", "6.1.0", tmp_path, tmp_path))
    for name in OPTIONAL:
        (machine.kernel.build / name).mkdir(parents=True)
        (machine.kernel.build / name / f"{name}.ko").touch()
    for setting in (Modules(), Modules("pf_flow")):
        setting.enter(cast(Guest, machine), ())
    assert machine.loaded == [["pf_filter", "pf_sched", "pf_mm"], ["pf_flow"]]


def test_each_module_that_is_built_has_its_cost() -> None:
    names = set(cost.cost_arms(list(OPTIONAL)))
    assert {"filter_idle", "sched_idle", "mm_idle", "flow_idle", "all_idle"} < names
    assert {"sched_busy", "mm_busy", "all_busy"} < names
    without = set(cost.cost_arms([name for name in OPTIONAL if name != "pf_mm"]))
    assert names - without == {"mm_idle", "mm_busy"}
    assert not any(name.endswith("_busy") for name in cost.cost_arms(["pf_filter"]))


def run(one: Buffers | None) -> Run:
    accounts = [Account(1000, 600, 300.0, 100, {"harm": 200}) for _ in range(3)]
    return Run(accounts, Closing(2.0, 3000, 1800, 300, 600, 0), 0.25, 0.0, {}, [], one)


def example() -> result.Json:
    """B1 by two repeats."""
    nothing = Buffers([212992] * 3, 630_000, 400_000, 0, 0, 0)
    grown = [
        Buffers([1_024_000, 768_000, 512_000], 2_000_000, 1_100_000, 1_600_000, 1 << 25, 0),
        Buffers([1_024_000, 768_000, 512_000], 2_200_000, 1_200_000, 1_700_000, 1 << 25, 4096),
    ]
    runs = {
        "stock": [run(nothing)] * 2,
        "stock2": [run(nothing)] * 2,
        "mm": [run(one) for one in grown],
    }
    load = Load(ports=(1, 2, 3), nices=(0, 5, 10), pps=500, watched=True)
    machine = Guest(Kernel("6.1", "6.1.0", *[Path("/")] * 2))
    return result.result_json("B1", machine, "light", load, runs)


def test_buffers_are_told_beside_what_u1_tells() -> None:
    arm = example()["arms"]["mm"]
    assert arm["received_pps"] == [[300] * 3] * 2
    assert arm["rcvbuf_bytes"] == [[1_024_000, 768_000, 512_000]] * 2
    assert arm["queued_bytes_peak"] == [2_000_000, 2_200_000]
    assert arm["queued_bytes_mean"] == [1_100_000, 1_200_000]
    assert arm["granted_bytes_peak"] == [1_600_000, 1_700_000]
    assert arm["budget_bytes"] == [1 << 25] * 2
    assert arm["given_back"] == [0, 4096]
    stock = example()["arms"]["stock"]
    assert [stock[name] for name in ("granted_bytes_peak", "budget_bytes", "given_back")] == [
        [0, 0]
    ] * 3


def test_unwatched_runs_tell_nothing_of_buffers() -> None:
    assert not {"rcvbuf_bytes", "given_back"} & set(result.arm_json([run(None)]))


def test_table_of_buffers() -> None:
    text = show.table(example())
    lines = text.partition("buffers in KiB")[2].splitlines()
    assert lines[2].split() == ["stock", *["208"] * 3, "615", "0", "0", "0"]
    assert lines[-1].split() == ["mm", "1000", "750", "500", "2148", "1660", "32768", "4"]
    assert result.table(example()) in text


def test_a_run_gathers_what_was_seen() -> None:
    received = [Received(1, 0, 0, [], 100), Received(1, 0, 0, [], 90)]
    found = buffers.found(received, (150, 70), Granted(now=1, peak=2, budget=3))
    assert found == Buffers([100, 90], 150, 70, 2, 3, 1)


def test_arms_of_every_experiment_are_known() -> None:
    for plan in runner.EXPERIMENTS.values():
        assert [Arm(name).name for name in plan.arms.split(",")] == plan.arms.split(",")
