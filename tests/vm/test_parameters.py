# SPDX-License-Identifier: GPL-2.0-only
"""Loading: bad parameters leave nothing, and machines can read the metrics."""

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from rig.guest import CommandError, Guest

BAD = {
    "common": [
        {"enable": "2"},
        {"max_sockets": "63"},
        {"max_sockets": "many"},
        {"batch_us": "1001"},
        {"rank_depth": "9"},
    ],
    "filter": [
        {"mode": "off"},
        {"floor": "-1"},
        {"floor_share": "101"},
        {"exempt": "0"},
        {"exempt": "1," * 600},
    ],
    "sched": [{"mode": "off"}, {"lever": "fifo"}, {"cap": "0"}, {"exempt": "a,"}],
    "mm": [{"mode": "off"}, {"budget": "-1"}, {"scale": "9"}, {"exempt": "0"}],
    "flow": [{"memory": "0"}, {"scheduler": "fifo"}, {"server": "task"}, {"exempt": "0"}],
}


@pytest.mark.parametrize("module", list(BAD))
def test_a_bad_parameter_refuses_to_load_and_leaves_nothing(guest: Guest, module: str) -> None:
    if module != "common":
        guest.load("pf_common")
    before = guest.run("ls -R /proc/packetflow; cut -d' ' -f1 /proc/modules", check=False).out
    for bad in BAD[module]:
        with pytest.raises(CommandError, match=r"Invalid (parameters|argument)"):
            guest.load(f"pf_{module}", **{module: bad})
        after = guest.run("ls -R /proc/packetflow; cut -d' ' -f1 /proc/modules", check=False).out
        assert after == before


def test_the_metrics_are_openmetrics(guest: Guest) -> None:
    guest.load("pf_filter", "pf_sched", "pf_mm", "pf_flow")
    families = {
        f.name: f for f in text_string_to_metric_families(guest.read("/proc/packetflow/metrics"))
    }
    assert len(families) >= 8
    for name, family in families.items():
        assert name.startswith("packetflow_")
        assert family.documentation
        assert family.type in ("counter", "gauge")

    def values_of(name: str) -> set[str]:
        return {value for sample in families[name].samples for value in sample.labels.values()}

    assert values_of("packetflow_filter_dropped") == {"overload", "harm", "socket_full"}
    assert values_of("packetflow_sched_boosted") == {"nice", "group", "deadline", "rr"}
    assert values_of("packetflow_sched_refused") >= set(
        ("class", "top", "exempt", "place", "cap", "lever", "apart")
    )
    assert values_of("packetflow_sched_restored") >= set(
        ("expired", "closed", "exited", "exec", "displaced", "stopped", "changed", "cap")
    )
    assert values_of("packetflow_mm_refused") == {"budget", "memory", "clamp", "pool", "standing"}
    assert values_of("packetflow_mm_given_back") == set(
        (
            *("unused", "closed", "changed", "limit", "memory"),
            *("standing", "reclaimed", "exempt", "stopped"),
        )
    )


def test_nothing_is_left_after_unloading(guest: Guest) -> None:
    def left() -> str:
        return guest.run(
            "ls -d /proc/packetflow /sys/module/pf_*;"
            "cat /sys/kernel/debug/kprobes/list /sys/kernel/tracing/enabled_functions;"
            "grep pf_ /proc/modules; grep pflow /proc/kallsyms;"
            "nft list hooks 2>/dev/null | grep -i pf_",
            check=False,
        ).out

    before = left()
    assert "/proc/packetflow" not in before
    guest.load("pf_filter", "pf_sched", "pf_mm")
    assert "/proc/packetflow" in left()
    assert "inet_release" in left()
    guest.unload()
    assert left() == before
