# SPDX-License-Identifier: GPL-2.0-only
"""W1: nginx of nice 0 beside floods of datagrams to receivers of nice 10.

wrk asks one worker of nginx for a short fixed answer, by CONNECTIONS connections at a time; each
asks again as soon as it is answered. The parts: connections that are kept alive, or a new one for
each request; beside the floods, or beside receivers that nobody floods.

Who asks is on another processor than who floods. All times are the guest's. The time to an
answer is wrk's: it begins when the request is written, so it holds no time to connect, and it
is corrected for requests that were not made because an answer was late (wrk takes each
connection's mean time between requests for what was intended). What is unanswered at the end
wrk does not count. Of a run without any answer the times are those of the whole run, as the
least that they can have been.

wrk shares its processor with the task that is always busy, and autogroup, which Debian has on,
would give both sessions the same share, whatever wrk's nice level: without floods it were wrk that
is the limit. So wrk has a real-time class, and there the kernel has no server that takes it away
again for 50 ms of a second (from 6.12 on).

The accounts are of the datagrams, but what was lost in front of the protocol stack may have been
wrk's, or an answer to it.

JSON:

    experiment, kernel, version, clock, cpus, dilation, date
    nices             [receiver], nginx first
    pps               datagrams a second to each that is flooded
    connections       at a time
    parts             in their order, each with
      part              "kept alive" or "new connections"
      floods            are there any?
      noise             the spread (maximum - minimum) of answers_per_s of both stock arms
      arms              by name, each with
        answers_per_s     [repeat]
        p50_ms, p99_ms    [repeat], time to an answer
        errors            [repeat], wrk's: of sockets, and answers of another status
        offered_pps       [repeat][flood]
        received_pps      likewise
        idle              [repeat], share of the guest's processors while wrk ran
        accounts          [repeat], see result.py
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from experiments import counters, runner
from experiments.arms import OFF, Arm, arms
from experiments.measure import Closing, cpu_time, lost, rates
from experiments.mixed import datagrams
from experiments.result import Json, closing_json, columns, heading, largest_gap, spread, subject
from rig.guest import OTHERS, Guest
from rig.link import GUEST4
from rig.traffic import LIGHT, Flood, Flow, Received, Sent, await_bound, sender

ABOUT = "nginx of nice 0, asked by wrk, with and without floods to nice 10"
PORT, FLOODED = 8080, (5001, 5002)
LOW = 10  # the nice level of who is flooded
PPS = 22_000.0  # to each
FLOWS = [Flow(port, PPS) for port in FLOODED]
SIZE = 256
CONNECTIONS = 4
WARM_UP = 0.5
ASKED_BEFORE = 1  # seconds, so that what is measured is no onset; that is told by "onset"
SECONDS = 3
PATIENCE = 10.0  # to connect first, of wrk
ARMS = "stock,shed-all,fifo-by-hand,filter,all"
BY_HAND = ("shed-all", "fifo-by-hand")  # what ours are compared with
RULES = f"""\
user root;
daemon off;
worker_processes 1;
pid /run/nginx.pid;
error_log /run/nginx.log;
events {{ worker_connections 64; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  server {{ listen {GUEST4}:{PORT}; location / {{ return 200 "served\\n"; }} }}
}}
"""
FAIR_SERVERS = "/sys/kernel/debug/sched/fair_server"
UNIT_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 60e3, "h": 3600e3}


@dataclass(frozen=True)
class Answers:
    """What wrk saw."""

    per_s: float
    p50_ms: float
    p99_ms: float
    errors: int


def answers(text: str, seconds: float) -> Answers:
    """From what wrk printed, which was to ask for so long; ValueError if it could not even try.

    The shell has added what code it ended with, where that is not 0.
    """
    summary = re.search(r"^ *(\d+) requests in ", text, re.M)
    if summary is None and not re.search(r"^unable to connect |^ended with 124$", text, re.M):
        raise ValueError(f"wrk: {text}")
    errors = re.search(r"^ *Socket errors: (.*)$", text, re.M)
    other = re.search(r"^ *Non-2xx or 3xx responses: (\d+)$", text, re.M)
    failed = sum(map(int, re.findall(r"\d+", errors[1]))) if errors else 0
    failed += int(other[1]) if other else 0
    if summary is None or not int(summary[1]):
        return Answers(0.0, 1e3 * seconds, 1e3 * seconds, failed)
    rate = re.search(r"^Requests/sec: *([\d.]+)$", text, re.M)
    assert rate, text
    return Answers(float(rate[1]), percentile(text, 50), percentile(text, 99), failed)


def percentile(text: str, share: int) -> float:
    """One of wrk's, ms."""
    found = re.search(rf"^ *{share}% +([\d.]+)(us|ms|s|m|h) *$", text, re.M)
    assert found, text
    return float(found[1]) * UNIT_MS[found[2]]


class Nginx:
    """nginx with one worker, which is who receives."""

    def __init__(self, guest: Guest) -> None:
        guest.write("/run/nginx.conf", RULES)
        command = ["nginx", "-e", "/run/nginx.log", "-c", "/run/nginx.conf"]
        self._master = guest.spawn(command, new_session=True)
        await_bound(guest, "tcp", PORT)
        self.worker = self._worker(guest)

    def _worker(self, guest: Guest, timeout: float = 20.0) -> int:
        """Its pid. The master has bound the port before there is one."""
        deadline = time.monotonic() + timeout * guest.patience
        while time.monotonic() < deadline:
            found = guest.run(["pgrep", "-P", str(self._master.pid)], check=False).out.split()
            if found:
                return int(found[0])
        raise TimeoutError("nginx has no worker")

    def finish(self) -> None:
        self._master.signal()
        self._master.wait()


def prepare(guest: Guest) -> None:
    """Once for all runs: nobody takes its processor from who asks."""
    guest.spare_sender()
    server = f"{FAIR_SERVERS}/cpu{guest.cpus + OTHERS - 1}/runtime"
    if guest.wired:
        guest.run(f"[ ! -e {server} ] || echo 0 > {server}")


def ask(guest: Guest, kept: bool, seconds: int) -> Answers:
    """Have wrk ask for so long."""
    to = sender(guest, apart=True)
    lasts = round(seconds * to.dilation)
    # Late answers are to be counted as late, not as none.
    command = f"chrt --rr 1 timeout {lasts + PATIENCE * to.dilation:g} wrk --latency --threads 1"
    command += f" --connections {CONNECTIONS} --duration {lasts}s --timeout {2 * lasts}s"
    command += "" if kept else " --header 'Connection: close'"
    command += f" http://{GUEST4}:{PORT}/ 2>&1 || echo ended with $?"
    out = to.start(["sh", "-c", command]).wait(lasts + (PATIENCE + 60) * to.dilation).out
    found = answers(out, lasts)
    by = to.dilation
    return Answers(found.per_s * by, found.p50_ms / by, found.p99_ms / by, found.errors)


@dataclass(frozen=True)
class Part:
    kept: bool  # the connections
    floods: bool

    @property
    def name(self) -> str:
        return "kept alive" if self.kept else "new connections"


PARTS = [Part(kept, floods) for floods in (True, False) for kept in (True, False)]


@dataclass(frozen=True)
class Run:
    """One arm, once."""

    answers: Answers
    offered_pps: list[float]
    received_pps: list[float]
    closing: Closing
    idle: float
    sent: Sent | None = None
    received: Sequence[Received] = field(default_factory=list)


def measure(guest: Guest, arm: Arm, part: Part, seconds: int, flows: Sequence[Flow] = FLOWS) -> Run:
    """Have nginx asked beside the floods; the guest is left as it was."""
    with arm(guest, (PORT, *FLOODED)):
        nginx = Nginx(guest)
        receivers = [LIGHT.receiver(guest, port, nice=LOW) for port in FLOODED]
        arm.started(guest, [nginx.worker, *(one.process.pid for one in receivers)])
        before = lost(guest)
        lasts = WARM_UP + ASKED_BEFORE + seconds + 2 * PATIENCE  # it is stopped before
        flood = Flood(flows, SIZE, lasts, sender(guest)) if part.floods else None
        guest.run(f"sleep {WARM_UP * guest.dilation}")
        ask(guest, part.kept, ASKED_BEFORE)
        cpu = cpu_time(guest)
        answered = ask(guest, part.kept, seconds)
        idle = counters.idle_share(cpu, cpu_time(guest))
        sent = flood.stop() if flood else Sent(dict.fromkeys(FLOODED, 0), seconds)
        found = datagrams(guest, arm, FLOODED, sent, receivers, before)
        nginx.finish()
    offered = [count / sent.seconds for count in sent.packets.values()]
    got = rates(found.received, seconds, WARM_UP + ASKED_BEFORE)
    return Run(answered, offered, got, found.closing, idle, sent, found.received)


def run(
    guest: Guest,
    names: Sequence[str],
    repeats: int,
    seconds: int,
    say: Callable[[str], None],
    wanted: Sequence[Part] = tuple(PARTS),
) -> Json:
    """Run every arm so often in each part, and give the result."""
    prepare(guest)
    parts = []
    for part in wanted:
        say(f"W1: {described(part.name, part.floods)}")

        def measured(arm: Arm, part: Part = part) -> Run:
            return measure(guest, arm, part, seconds)

        parts.append((part, runner.interleaved(arms(names), repeats, measured, told, say)))
    return result_json(guest, parts)


def told(one: Run) -> str:
    got = "/".join(f"{pps / 1e3:.1f}" for pps in one.received_pps)
    said = f"{one.answers.per_s:.0f} answers/s, p99 {one.answers.p99_ms:.1f} ms"
    return f"{said}, floods {got} kpps"


def described(part: str, floods: bool) -> str:
    return f"{part}, {'beside floods' if floods else 'no floods'}"


def result_json(guest: Guest, parts: Sequence[tuple[Part, Mapping[str, Sequence[Run]]]]) -> Json:
    return {
        **heading("W1", guest),
        "nices": [0] + [LOW] * len(FLOODED),
        "pps": PPS,
        "connections": CONNECTIONS,
        "parts": [part_json(part, runs) for part, runs in parts],
    }


def part_json(part: Part, runs: Mapping[str, Sequence[Run]]) -> Json:
    found = {name: arm_json(done) for name, done in runs.items()}
    stock = [value for name in OFF for value in found[name]["answers_per_s"]]
    noise = round(max(stock) - min(stock), 1)
    return {"part": part.name, "floods": part.floods, "noise": noise, "arms": found}


def arm_json(runs: Sequence[Run]) -> Json:
    """One arm's runs."""
    return {
        "answers_per_s": [round(run.answers.per_s, 1) for run in runs],
        "p50_ms": [round(run.answers.p50_ms, 3) for run in runs],
        "p99_ms": [round(run.answers.p99_ms, 3) for run in runs],
        "errors": [run.answers.errors for run in runs],
        "offered_pps": [[round(pps, 1) for pps in run.offered_pps] for run in runs],
        "received_pps": [[round(pps, 1) for pps in run.received_pps] for run in runs],
        "idle": [round(run.idle, 3) for run in runs],
        "accounts": [closing_json(run.closing) for run in runs],
    }


def within(values: Sequence[float], digits: int) -> str:
    """The median, and the least and the greatest in brackets."""
    middle = statistics.median(values)
    return f"{middle:.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def verdict(part: Json, name: str = "filter") -> str:
    """An arm against the better of those by hand, in answers and in time apart; nothing where
    one of them was not run, or had no answer."""
    found = part["arms"]
    if not {name, *BY_HAND} <= set(found):
        return ""

    def middle(arm: str, figure: str) -> float:
        return statistics.median(found[arm][figure])

    most = max(middle(arm, "answers_per_s") for arm in BY_HAND)
    soonest = min(middle(arm, "p99_ms") for arm in BY_HAND)
    if not most:
        return ""
    return (
        f"{described(part['part'], part['floods'])}: {name}: answers "
        f"{middle(name, 'answers_per_s') / most:.0%} of the better of {' and '.join(BY_HAND)}, "
        f"p99 {middle(name, 'p99_ms') / soonest:.0%}"
    )


def rows(part: Json, nices: Sequence[int]) -> Iterator[list[str]]:
    for name, arm in part["arms"].items():
        floods = map(spread, zip(*arm["received_pps"], strict=True))
        yield [
            name,
            within(arm["answers_per_s"], 0),
            within(arm["p50_ms"], 2),
            within(arm["p99_ms"], 2),
            f"{statistics.median(arm['errors']):.0f}",
            *(floods if part["floods"] else ["-"] * len(nices)),
            f"{statistics.median(arm['idle']):.0%}",
            f"{largest_gap(arm):+.2%}" if part["floods"] else "-",
        ]


def table(result: Json) -> str:
    """Every part, and what is said of it."""
    low = result["nices"][1:]
    heads = ["arm", "answers/s", "p50 ms", "p99 ms", "errors"]
    heads += [*(f"nice {nice} kpps" for nice in low), "idle", "unaccounted"]
    title = f"{subject(result)}: nginx of nice 0, asked by {result['connections']} connections; "
    title += f"floods of {result['pps'] / 1e3:g} kpps each; median (minimum-maximum) of the repeats"
    lines = columns([heads, *(row for part in result["parts"] for row in rows(part, low))])
    made = [title, lines.pop(0)]
    for part in result["parts"]:
        noise = f"noise (spread of the stock arms): {part['noise']:.0f} answers/s"
        made.append(f"{described(part['part'], part['floods'])}; {noise}")
        made += [lines.pop(0) for _ in part["arms"]]
    return "\n".join([*made, *filter(None, map(verdict, result["parts"]))])
