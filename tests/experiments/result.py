# SPDX-License-Identifier: GPL-2.0-only
"""Results of an experiment: the JSON that is kept and the table that is shown.

JSON, every rate in packets a second and every list of receivers in their order
of priority:

    experiment, kernel, version, date, tool
    clock             what the guest's time is: "instructions" of its own, or of the "host"
    host              the machine that the guest ran on
    command           what to type for the same again
    cpus              CPUs of the guest, beside the sender's; 1 where it is not told
    dilation          how much slower than the host's the guest's time ran; every rate
                      and second here is in the guest's time
    nices             [receiver]
    work              busy loops a packet
    competitors       tasks that only compute, beside the receivers
    beneath           settings that every arm has
    noise             the largest spread (maximum - minimum) of any receiver over all
                      repeats of both stock arms, joined with the same settings
    arms              by name, each with
      offered_pps       [receiver], median of the repeats
      received_pps      [repeat][receiver], in the measured period
      the next three are null where a tool lets only the sums be known (iperf3):
      socket_drops_pps  [repeat][receiver], socket-level drops proper
      early_drops_pps   [repeat][receiver], dropped before the socket on purpose
      receive_drops_pps [repeat][receiver], lost in front of the protocol stack
      sum_pps           [repeat], received by all
      idle              [repeat], share of the guest's CPUs over the sending
      competitors_cpu_share  [repeat], likewise what the competitors got together
      early_by_reason   [repeat][receiver] {reason: packets}
      decided           [repeat] {reason: packets}, the filter's own totals
      accounts          [repeat], packets of the whole run: seconds, sent, received,
                        socket_drops, early_drops, receive_drops (by the counters of
                        the tap, the device and the backlog), unaccounted
      age_ms            [repeat][receiver], how old a datagram was when it was received, the
                        median over samples; null for who received next to nothing. Not where
                        the sender has another clock or no constant gaps
      and where the buffers were watched (B1, S1, S1-5, S1-10), in bytes as the kernel counts
      them:
      rcvbuf_bytes        [repeat][receiver], the largest size while the load lasted
      queued_bytes_peak   [repeat], in the buffers of all receivers at one time
      queued_bytes_mean   [repeat], likewise (not in results from before 2026-11-27)
      granted_bytes_peak  [repeat], by pf_mm; this and what follows 0 without it
      budget_bytes        [repeat], what pf_mm may grant
      given_back          [repeat], bytes still granted some seconds after the load
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from experiments import buffers
from experiments.arms import OFF
from experiments.measure import Account, Closing, Load, Run
from rig.guest import Guest

Json = dict[str, Any]
# Early drops by cause, as the table of drops heads them.
REASONS = {"overload": "B1", "harm": "B1 (harm)", "full": "B2", "shed": "by rule"}


def arm_json(runs: Sequence[Run]) -> Json:
    """One arm's runs."""

    def per_second(count: Callable[[Account], int]) -> list[list[float]]:
        return [
            [round(count(one) / run.closing.seconds, 1) for one in run.accounts] for run in runs
        ]

    apart = all(one.socket_drops is not None for run in runs for one in run.accounts)

    offered = per_second(lambda one: one.sent)
    received = [[round(one.received_pps, 1) for one in run.accounts] for run in runs]
    watched = [run.buffers for run in runs if run.buffers]
    return {
        "offered_pps": [statistics.median(column) for column in zip(*offered, strict=True)],
        "received_pps": received,
        "socket_drops_pps": per_second(lambda one: one.socket_drops or 0) if apart else None,
        "early_drops_pps": per_second(lambda one: one.early_drops) if apart else None,
        "receive_drops_pps": per_second(lambda one: one.missing) if apart else None,
        "sum_pps": [round(sum(row), 1) for row in received],
        "idle": [round(run.idle, 3) for run in runs],
        "competitors_cpu_share": [round(run.competitors, 3) for run in runs],
        "early_by_reason": [[one.early for one in run.accounts] for run in runs],
        "decided": [run.decided for run in runs],
        "accounts": [closing_json(run.closing) for run in runs],
        **(buffers.arm_json(watched) if watched else {}),
        **ages_json(runs),
    }


def ages_json(runs: Sequence[Run]) -> Json:
    """How old what they received was, where that is known."""
    ages = [run.ages_ms for run in runs]
    if None in ages:
        return {}
    return {"age_ms": [[age and round(age, 2) for age in row or ()] for row in ages]}


def closing_json(one: Closing) -> Json:
    """The sum that must close: sent = all that follows."""
    return {**asdict(one), "seconds": round(one.seconds, 3), "unaccounted": one.unaccounted}


def heading(experiment: str, guest: Guest) -> Json:
    """What every result begins with."""
    return {
        "experiment": experiment,
        "kernel": guest.kernel.name,
        "version": guest.kernel.version,
        "clock": "instructions" if guest.wired else "host",
        "cpus": guest.cpus,
        "dilation": guest.dilation,
        "host": host(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def result_json(
    experiment: str,
    guest: Guest,
    tool: str,
    load: Load,
    runs: Mapping[str, Sequence[Run]],
    beneath: Sequence[str] = (),
) -> Json:
    arms = {name: arm_json(done) for name, done in runs.items()}
    return {
        **heading(experiment, guest),
        "tool": tool,
        "nices": list(load.nices),
        "work": load.work,
        "competitors": load.competitors,
        "beneath": list(beneath),
        "noise": noise(arms, "received_pps"),
        "arms": arms,
    }


def subject(result: Json) -> str:
    """What was measured, on what, as a title begins."""
    return f"{result['experiment']}, kernel {result['version']}{told_cpus(result)}"


def told_cpus(result: Json) -> str:
    """How many, for a title, where it is not one."""
    cpus = result.get("cpus", 1)
    return f", {cpus} CPUs" if cpus != 1 else ""


def noise(arms: Mapping[str, Json], figure: str) -> float:
    """The largest spread of any receiver over all repeats of the stock arms.

    Those that share their further settings are compared.
    """
    rows: dict[tuple[str, ...], list[list[float]]] = {}
    for name, arm in arms.items():
        first, *further = name.split("+")
        if first in OFF:
            rows.setdefault(tuple(further), []).extend(arm[figure])
    spreads = (
        max(column) - min(column) for same in rows.values() for column in zip(*same, strict=True)
    )
    return max(spreads, default=0.0)


def command(arguments: Sequence[str]) -> str:
    """What to type for the same again; where the result is kept is left out."""
    kept = list(arguments)
    if "--json" in kept:
        at = kept.index("--json")
        del kept[at : at + 2]
    return shlex.join(["tests/experiments/run", *kept])


def host() -> str:
    """The machine that the guest runs on."""
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    return f"{os.cpu_count()} x {model[1] if model else platform.machine()}"


def write(path: Path, result: Json) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


def table(result: Json) -> str:
    """The result for people: medians of the repeats, spread in brackets."""
    nices = result["nices"]
    heads = ["arm", *(f"nice {nice}" for nice in nices), "sum", "top"]
    heads += ["socket drops", "early drops", "ring drops", "idle", "competitors", "unaccounted"]
    rows = [heads]
    for name, arm in result["arms"].items():
        received = list(zip(*arm["received_pps"], strict=True))
        top = statistics.median(received[0]) / arm["offered_pps"][0]
        rows.append(
            [
                name,
                *map(spread, received),
                spread(arm["sum_pps"]),
                f"{top:.1%}",
                *(drops(arm, kind) for kind in ("socket_drops", "early_drops", "receive_drops")),
                f"{statistics.median(arm['idle']):.0%}",
                f"{statistics.median(arm['competitors_cpu_share']):.0%}",
                f"{largest_gap(arm):+.2%}",
            ]
        )
    title = f"{subject(result)}, {result['tool']}: "
    title += "received kpps, median (minimum-maximum) of the repeats; drops in k/s"
    foot = f"noise (spread of the stock arms): {result['noise'] / 1e3:.1f} kpps; "
    foot += "top: share of what was sent to the first; unaccounted: of what was sent, the worst run"
    return "\n".join([title, *columns(rows), foot])


def buffer_table(result: Json) -> str:
    """The result, and what the buffers were."""
    title = "buffers in KiB, median for each receiver, otherwise the most of the repeats"
    return "\n".join([table(result), "", title, *columns(buffers.rows(result))])


def drop_table(result: Json) -> str:
    """Where each receiver's packets died: the papers' table of drops."""
    heads = ["arm", "receiver", "sent", "received", "receive-time", *REASONS.values(), "socket"]
    rows = [heads]
    for name, arm in result["arms"].items():
        seconds = [one["seconds"] for one in arm["accounts"]]
        for i, nice in enumerate(result["nices"]):
            early = [
                [
                    one[i].get(reason, 0) / s
                    for one, s in zip(arm["early_by_reason"], seconds, strict=True)
                ]
                for reason in REASONS
            ]
            rates = [
                [arm["offered_pps"][i]],
                *([row[i] for row in arm[kind]] for kind in ("received_pps", "receive_drops_pps")),
                *early,
                [row[i] for row in arm["socket_drops_pps"]],
            ]
            medians = [f"{statistics.median(values) / 1e3:.2f}" for values in rates]
            rows.append([name, f"nice {nice}", *medians])
    title = f"{subject(result)}: k/s, median of the repeats"
    return "\n".join([title, *columns(rows)])


def largest_gap(arm: Json) -> float:
    """The unaccounted share of the worst run."""
    shares = [one["unaccounted"] / one["sent"] for one in arm["accounts"]]
    return max(shares, key=abs)


def spread(values: Sequence[float]) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle / 1e3:.1f} ({low / 1e3:.1f}-{high / 1e3:.1f})"


def drops(arm: Json, kind: str) -> str:
    """Medians of every receiver's rate in thousands, or of the sum if only that is known."""
    rows = arm[f"{kind}_pps"]
    if rows is None:
        return (
            f"{statistics.median(one[kind] / one['seconds'] for one in arm['accounts']) / 1e3:.1f}"
        )
    medians = (statistics.median(column) / 1e3 for column in zip(*rows, strict=True))
    return "/".join(f"{median:.1f}" for median in medians)


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of text with the columns aligned, the first to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
