# SPDX-License-Identifier: GPL-2.0-only
"""Real programs of nice 0 beside floods of iperf3 to servers of nice 10.

R1: rsyslog (imudp), which writes what it is sent to a file: of the lines sent, how many were
lost.
R2: sipp as a call server: of the calls how many failed, how often a message had to be sent
again, and how long an answer took.

Who floods is paced by its own means; who asks the programs for their work is on another
CPU. The accounts are of all datagrams between them, as the kernel at either end counts
them.

JSON:

    experiment, kernel, version, clock, cpus, dilation, date
    what              what the program is asked for
    nices             [receiver], the program's first
    noise             the spread (maximum - minimum) of the losses of both stock arms
    arms              by name, each with
      asked, served     [repeat]
      lost              [repeat], share of what was asked
      again             [repeat], messages that were sent again (R2)
      answer_ms         [repeat], mean time to the answer of a call (R2)
      offered_pps       [repeat][flood]
      received_pps      likewise
      idle              [repeat], share of the guest's CPUs
      accounts          [repeat], see result.py
"""

from __future__ import annotations

import csv
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from experiments import counters, runner
from experiments.arms import OFF, Arm, arms
from experiments.measure import Closing, await_quiet, close, cpu_time, lost, rates
from experiments.result import Json, closing_json, columns, heading, largest_gap, spread, subject
from rig.guest import Guest, Process
from rig.link import GUEST4, SENDER4
from rig.programs import programs
from rig.traffic import IPERF3, Flow, await_bound, sender

PORT, FLOODED = 5060, (5001, 5002)
LOW = 10  # the nice level of who is flooded
PPS = 18_000.0  # to each; asked for more, iperf3 sends now this and now that
SIZE = 256
WARM_UP = 1.0
TAIL = 1.0
SECONDS = 8.0
ARMS = "stock,filter,sched,both,all"
LINES_PPS = 7000.0
LINE = "<30>Nov 22 12:00:00 gateway app[4711]: request served in 12 ms, 200, 5120 bytes"
RULES = """\
module(load="imudp")
input(type="imudp" address="{address}" port="{port}")
action(type="omfile" file="{lines}")
"""
CALLS = 300  # a second
SNMP = "/proc/net/snmp"


@dataclass(frozen=True)
class Served:
    """What was asked of a program, and what it did."""

    asked: int
    served: int
    again: int | None = None
    answer_ms: float | None = None

    @property
    def lost(self) -> float:
        return 1 - self.served / self.asked


class Program(Protocol):
    """A program in the guest."""

    process: Process

    def ask(self, seconds: float) -> None:
        """Have it asked for its work for so long."""

    def finish(self) -> Served:
        """End it."""


class Syslog:
    """rsyslog, and who sends it lines."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self._sent = 0
        guest.run("rm -f /run/lines")
        rules = RULES.format(address=GUEST4, port=PORT, lines="/run/lines")
        guest.write("/run/rsyslog.conf", rules)
        self.process = guest.spawn(
            ["rsyslogd", "-n", "-f", "/run/rsyslog.conf", "-i", "/run/rsyslog.pid"],
            new_session=True,
        )
        await_bound(guest, "udp", PORT)

    def ask(self, seconds: float) -> None:
        to = sender(self._guest, apart=True)
        command = [str(programs() / "udp_send"), "-m", LINE, "-t", str(seconds * to.dilation)]
        command += [GUEST4, f"{PORT}:{LINES_PPS / to.dilation}"]
        done = to.start(command).wait(seconds * to.dilation + 60)
        self._sent = json.loads(done.out)["flows"][0]["sent"]

    def finish(self) -> Served:
        await_quiet(self._guest, [PORT])
        self.process.signal()
        self.process.wait()
        return Served(self._sent, int(self._guest.run("wc -l < /run/lines").out))


class Calls:
    """sipp, and who calls it."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        command = ["sipp", "-sn", "uas", "-i", GUEST4, "-p", str(PORT), "-nostdin"]
        self.process = guest.spawn(f"TERM=dumb exec {' '.join(command)} > /dev/null")
        await_bound(guest, "udp", PORT)

    def ask(self, seconds: float) -> None:
        command = f"sipp -sn uac {GUEST4}:{PORT} -i {SENDER4} -r {CALLS}"
        command += f" -m {CALLS * seconds:.0f} -timeout {3 * seconds:.0f}s -nostdin -d 0"
        command += " -trace_stat -stf /run/calls.csv -fd 1 > /dev/null"
        # Its exit status tells of calls that failed, which are counted.
        to = sender(self._guest, apart=True)
        to.start(["sh", "-c", f"TERM=dumb {command} || true"]).wait(6 * seconds + 60)

    def finish(self) -> Served:
        self.process.signal()
        self.process.wait()
        return answered(self._guest.read("/run/calls.csv"))


def answered(text: str) -> Served:
    """A caller's own statistics: the last line is of the whole run."""
    last = list(csv.DictReader(text.splitlines(), delimiter=";"))[-1]
    hours, minutes, seconds, *rest = last["ResponseTime1(C)"].split(":")
    fraction = float(f"0.{rest[0]}") if rest else 0.0
    answer = int(hours) * 3600 + int(minutes) * 60 + float(seconds) + fraction
    return Served(
        int(last["OutgoingCall(C)"]),
        int(last["SuccessfulCall(C)"]),
        int(last["Retransmissions(C)"]),
        1e3 * answer,
    )


@dataclass(frozen=True)
class Experiment:
    about: str
    program: Callable[[Guest], Program]
    what: str


EXPERIMENTS = {
    "R1": Experiment("rsyslog of nice 0 beside iperf3 floods to nice 10", Syslog, "lines"),
    "R2": Experiment("a SIP server of nice 0 beside iperf3 floods to nice 10", Calls, "calls"),
}


@dataclass(frozen=True)
class Run:
    """One arm, once."""

    served: Served
    offered_pps: list[float]
    received_pps: list[float]
    closing: Closing
    idle: float


def measure(guest: Guest, arm: Arm, start: Callable[[Guest], Program], seconds: float) -> Run:
    """Have a program asked for its work beside the floods; the guest is left as it was."""
    lasts = WARM_UP + seconds + TAIL
    with arm(guest, (PORT, *FLOODED)), ThreadPoolExecutor(1) as pool:
        program = start(guest)
        receivers = [IPERF3.receiver(guest, port, LOW) for port in FLOODED]
        arm.started(guest, [program.process.pid, *(one.process.pid for one in receivers)])
        flows = [Flow(port, PPS) for port in FLOODED]
        before, sent_before, got_before = lost(guest), datagrams_sent(guest), datagrams(guest)
        cpu = cpu_time(guest)
        flood = pool.submit(IPERF3.send, flows, SIZE, lasts, sender(guest))
        guest.run(f"sleep {WARM_UP * guest.dilation}")
        program.ask(seconds)
        idle = counters.idle_share(cpu, cpu_time(guest))
        sent = flood.result()
        received = [one.finish() for one in receivers]
        served = program.finish()
        closing = close(
            sent.seconds,
            datagrams_sent(guest) - sent_before,
            datagrams(guest) - got_before,
            before,
            lost(guest),
            arm.decided(guest) if arm.counted_by_socket else {},
        )
    offered = [count / sent.seconds for count in sent.packets.values()]
    return Run(served, offered, rates(received, seconds, WARM_UP), closing, idle)


def datagrams_sent(guest: Guest) -> int:
    """To the guest until now."""
    text = sender(guest).start(["cat", SNMP]).wait(10).out
    return counters.snmp(text, "Udp")["OutDatagrams"]


def datagrams(guest: Guest) -> int:
    """That the guest's programs received until now."""
    return counters.snmp(guest.read(SNMP), "Udp")["InDatagrams"]


def run(
    experiment: str,
    guest: Guest,
    names: Sequence[str],
    repeats: int,
    seconds: float,
    say: Callable[[str], None],
) -> Json:
    """Run every arm so often, and give the result."""
    plan = EXPERIMENTS[experiment]
    guest.spare_sender()
    runs = runner.interleaved(
        arms(names), repeats, lambda arm: measure(guest, arm, plan.program, seconds), told, say
    )
    return result_json(experiment, guest, runs)


def told(one: Run) -> str:
    got = "/".join(f"{pps / 1e3:.1f}" for pps in one.received_pps)
    offered = "/".join(f"{pps / 1e3:.1f}" for pps in one.offered_pps)
    return f"{one.served.served} of {one.served.asked}, floods {got} of {offered} kpps"


def result_json(experiment: str, guest: Guest, runs: Mapping[str, Sequence[Run]]) -> Json:
    found = {name: arm_json(done) for name, done in runs.items()}
    stock = [value for name in OFF for value in found[name]["lost"]]
    return {
        **heading(experiment, guest),
        "what": EXPERIMENTS[experiment].what,
        "nices": [0] + [LOW] * len(FLOODED),
        "noise": max(stock) - min(stock),
        "arms": found,
    }


def arm_json(runs: Sequence[Run]) -> Json:
    """One arm's runs."""
    served = [run.served for run in runs]
    calls = {
        "again": [one.again for one in served],
        "answer_ms": [one.answer_ms for one in served],
    }
    return {
        "asked": [one.asked for one in served],
        "served": [one.served for one in served],
        "lost": [round(one.lost, 5) for one in served],
        **(calls if served[0].again is not None else {}),
        "offered_pps": [[round(pps, 1) for pps in run.offered_pps] for run in runs],
        "received_pps": [[round(pps, 1) for pps in run.received_pps] for run in runs],
        "idle": [round(run.idle, 3) for run in runs],
        "accounts": [closing_json(run.closing) for run in runs],
    }


def table(result: Json) -> str:
    """Medians of the repeats, spread in brackets."""
    found = result["arms"]
    calls = "again" in found["stock"]
    heads = [
        "arm",
        f"{result['what']} asked",
        "lost",
        *(["sent again", "answer ms"] if calls else []),
    ]
    heads += [f"nice {nice} kpps" for nice in result["nices"][1:]]
    rows = [[*heads, "idle", "unaccounted"]]
    for name, arm in found.items():
        lost = arm["lost"]
        row = [name, f"{statistics.median(arm['asked']):.0f}"]
        row.append(f"{statistics.median(lost):.2%} ({min(lost):.2%}-{max(lost):.2%})")
        if calls:
            row.append(f"{statistics.median(arm['again']):.0f}")
            row.append(f"{statistics.median(arm['answer_ms']):.1f}")
        row += map(spread, zip(*arm["received_pps"], strict=True))
        rows.append([*row, f"{statistics.median(arm['idle']):.0%}", f"{largest_gap(arm):+.2%}"])
    title = f"{subject(result)}: {EXPERIMENTS[result['experiment']].about}; "
    title += "median (minimum-maximum) of the repeats"
    foot = f"noise (spread of what the stock arms lost): {result['noise']:.2%}"
    return "\n".join([title, *columns(rows), foot])
