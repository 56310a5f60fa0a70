# SPDX-License-Identifier: GPL-2.0-only
"""Servers that answer requests, and the programs that ask them.

nginx asked by wrk (W1): one worker and a short fixed answer, by CONNECTIONS connections at a time;
each asks again as soon as it is answered. Its connections are kept alive, or there is a new one for
each request. In C2 it is in a container, and the floods go to another one. Redis asked by
redis-benchmark (K1) in the same way, over connections that are kept.
nsd asked by dnsperf (D1): over UDP, and so many queries a second, whether answered or not.
sockperf's server asked by its ping-pong (E1): over UDP, and again as soon as it has answered.

All times are the guest's. The time to an answer is that of who asks. wrk's begins when the request
is written, so it holds no time to connect, and it is corrected for requests that were not made
because an answer was late (wrk takes each connection's mean time between requests for what was
intended). What is unanswered at the end wrk does not count. Of a run without any answer the times
are those of the whole run, as the least that they can have been.

Who asks shares its CPU with the task that is always busy, and autogroup, which Debian has on,
would give both sessions the same share, whatever the nice level: without floods it were who asks
that is the limit. So it has a real-time class, and there the kernel has no server that takes it
away again for 50 ms of a second (from 6.12 on), see spare().
"""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from experiments import containers
from experiments.latency import CLOCK, SIZE
from rig.guest import Guest
from rig.link import GUEST4
from rig.traffic import LIGHT, Light, await_bound, sender

CONNECTIONS = 4
PATIENCE = 10.0  # to connect first, of wrk
WEB_PORT, DNS_PORT, STORE_PORT, ECHO_PORT = 8080, 5353, 6379, 11111
QUERIES = 6000.0  # a second, of dnsperf
UNANSWERED = 1  # seconds, after which a query is lost
FEW = 400  # requests of redis-benchmark that tell how many it can make
FAIR_SERVERS = "/sys/kernel/debug/sched/fair_server"
COLOURS = re.compile(r"\x1b\[[\d;]*m")
UNIT_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 60e3, "h": 3600e3}
NGINX = f"""\
user root;
daemon off;
worker_processes 1;
pid /run/nginx.pid;
error_log /run/nginx.log;
events {{ worker_connections 64; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  server {{ listen {WEB_PORT}; location / {{ return 200 "served\\n"; }} }}
}}
"""
NSD = f"""\
server:
  ip-address: {GUEST4}@{DNS_PORT}
  server-count: 1
  username: ""
  chroot: ""
  zonesdir: /run
  pidfile: /run/nsd.pid
  xfrdfile: ""
  zonelistfile: /run/nsd.zones
  rrl-ratelimit: 0
remote-control:
  control-enable: no
zone:
  name: example.test
  zonefile: /run/example.test.zone
"""
ZONE = """\
$ORIGIN example.test.
$TTL 3600
@ SOA ns admin 1 3600 900 86400 3600
@ NS ns
ns A 192.0.2.1
www A 192.0.2.2
"""


@dataclass(frozen=True)
class Answers:
    """What was seen by who asked."""

    per_s: float
    p50_ms: float
    p99_ms: float
    errors: int


@dataclass(frozen=True)
class Part:
    """A way to ask, and whether there are floods beside it."""

    name: str
    floods: bool
    kept: bool = True  # the connections


class Server(Protocol):
    """A program that answers."""

    worker: int  # who receives requests

    def finish(self) -> None: ...


@dataclass(frozen=True)
class Service:
    """An experiment: a server, who asks it, and the parts."""

    name: str
    about: str
    port: int
    parts: Sequence[Part]
    start: Callable[[Guest], Server]
    ask: Callable[[Guest, Part, int], Answers]
    # Where the receivers are that are flooded.
    place: Callable[[Guest], AbstractContextManager[Light]] = lambda guest: nullcontext(LIGHT)


def spare(guest: Guest) -> None:
    """Once for all runs: nobody takes its CPU from who asks."""
    guest.spare_sender()
    server = f"{FAIR_SERVERS}/cpu{guest.busy}/runtime"
    if guest.wired:
        # Linux 6.12 warns if this server is not active just then: docs/decisions/lever.md
        with guest.expecting(r"task_non_contending|\bCall Trace:"):
            guest.run(f"[ ! -e {server} ] || echo 0 > {server}")


class Program:
    """A server, or the last one of its children and theirs."""

    def __init__(
        self, guest: Guest, command: list[str], proto: str, port: int, children: int
    ) -> None:
        """children: processes that it makes of itself, which must be there."""
        self._first = guest.spawn(command, new_session=True)
        await_bound(guest, proto, port, pid=self._first.pid)
        self.worker = self._wait(guest, 1 + children)

    def _wait(self, guest: Guest, number: int, timeout: float = 20.0) -> int:
        """The last pid, once there are so many. A port may be bound before the children are."""
        deadline = time.monotonic() + timeout * guest.patience
        while time.monotonic() < deadline:
            found = guest.run(["pgrep", "-s", str(self._first.pid)], check=False).out.split()
            if len(found) >= number:
                return max(map(int, found))
        raise TimeoutError("the server has no children")

    def finish(self) -> None:
        self._first.signal()
        self._first.wait()


def nginx(guest: Guest, *inside: str) -> Server:
    guest.write("/run/nginx.conf", NGINX)
    command = [*inside, "nginx", "-e", "/run/nginx.log", "-c", "/run/nginx.conf"]
    return Program(guest, command, "tcp", WEB_PORT, 1)


def contained_nginx(guest: Guest) -> Server:
    return nginx(guest, "nsenter", f"--net=/run/netns/{containers.PODS[0]}")


def nsd(guest: Guest) -> Server:
    guest.write("/run/nsd.conf", NSD)
    guest.write("/run/example.test.zone", ZONE)
    return Program(guest, ["nsd", "-d", "-c", "/run/nsd.conf"], "udp", DNS_PORT, 2)


def redis(guest: Guest) -> Server:
    command = ["redis-server", "--bind", GUEST4, "--port", str(STORE_PORT)]
    command += ["--protected-mode", "no", "--save", "", "--appendonly", "no", "--dir", "/run"]
    return Program(guest, command, "tcp", STORE_PORT, 0)


def echo(guest: Guest) -> Server:
    command = ["sockperf", "server", CLOCK, "-i", GUEST4, "-p", str(ECHO_PORT)]
    return Program(guest, command, "udp", ECHO_PORT, 0)


def by_wrk(guest: Guest, part: Part, seconds: int) -> Answers:
    """Have wrk ask for so long."""
    to = sender(guest, apart=True)
    lasts = round(seconds * to.dilation)
    # Late answers are to be counted as late, not as none.
    command = f"chrt --rr 1 timeout {lasts + PATIENCE * to.dilation:g} wrk --latency --threads 1"
    command += f" --connections {CONNECTIONS} --duration {lasts}s --timeout {2 * lasts}s"
    command += "" if part.kept else " --header 'Connection: close'"
    command += f" http://{GUEST4}:{WEB_PORT}/ 2>&1 || echo ended with $?"
    out = to.start(["sh", "-c", command]).wait(lasts + (PATIENCE + 60) * to.dilation).out
    return in_guest_time(answers(out, lasts), to.dilation)


def in_guest_time(found: Answers, by: float) -> Answers:
    return Answers(found.per_s * by, found.p50_ms / by, found.p99_ms / by, found.errors)


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


def by_dnsperf(guest: Guest, _part: Part, seconds: int) -> Answers:
    """Have dnsperf ask for so long."""
    to = sender(guest, apart=True)
    lasts = round(seconds * to.dilation)
    command = "printf 'www.example.test A\\n' > /run/queries && "
    command += f"chrt --rr 1 dnsperf -v -s {GUEST4} -p {DNS_PORT} -d /run/queries -l {lasts}"
    command += f" -Q {QUERIES / to.dilation:g} -q 10000 -t {UNANSWERED * to.dilation:g} 2>&1"
    out = to.start(["sh", "-c", command]).wait(lasts + 60 * to.dilation).out
    return in_guest_time(dns_answers(out, lasts), to.dilation)


def dns_answers(text: str, seconds: float) -> Answers:
    """From what dnsperf printed: a line for each query, and a summary; ValueError without one."""
    lost = re.search(r"^ *Queries lost: +(\d+)", text, re.M)
    if lost is None:
        raise ValueError(f"dnsperf: {text[-2000:]}")
    took = sorted(float(one) * 1e3 for one in re.findall(r"^> NOERROR .* ([\d.]+)$", text, re.M))
    if not took:
        return Answers(0.0, 1e3 * seconds, 1e3 * seconds, int(lost[1]))
    p50, p99 = (took[int(len(took) * share)] for share in (0.5, 0.99))
    return Answers(len(took) / seconds, p50, p99, int(lost[1]))


def by_redis_benchmark(guest: Guest, _part: Part, seconds: int) -> Answers:
    """Have redis-benchmark ask for so long. It is told how often, not how long, so a few requests
    first tell how many that are."""
    to = sender(guest, apart=True)

    def ask(number: int) -> Answers:
        command = f"chrt --rr 1 redis-benchmark -h {GUEST4} -p {STORE_PORT} -c {CONNECTIONS}"
        command += f" -n {number} -t get --csv"
        return store_answers(to.start(["sh", "-c", command]).wait(900 * to.dilation).out)

    found = ask(max(FEW, round(seconds * to.dilation * ask(FEW).per_s)))
    return in_guest_time(found, to.dilation)


def store_answers(text: str) -> Answers:
    """From the table that redis-benchmark printed."""
    rows = csv.DictReader(line for line in text.splitlines() if line.startswith('"'))
    row = next(iter(rows), None)
    if row is None:
        raise ValueError(f"redis-benchmark: {text}")
    return Answers(float(row["rps"]), float(row["p50_latency_ms"]), float(row["p99_latency_ms"]), 0)


def by_sockperf(guest: Guest, _part: Part, seconds: int) -> Answers:
    """Have sockperf ask for so long, each time when it is answered."""
    to = sender(guest, apart=True)
    lasts = round(seconds * to.dilation)
    command = f"chrt --rr 1 sockperf ping-pong {CLOCK} --full-rtt -i {GUEST4} -p {ECHO_PORT}"
    command += f" -t {lasts} -m {SIZE} 2>&1"
    out = to.start(["sh", "-c", command]).wait(lasts + 60 * to.dilation).out
    return in_guest_time(echo_answers(out, lasts), to.dilation)


def echo_answers(text: str, seconds: float) -> Answers:
    """From what sockperf printed; ValueError if it did not even try."""
    plain = COLOURS.sub("", text)
    tried = re.search(r"\[Valid Duration\] RunTime=([\d.]+) sec;.* ReceivedMessages=(\d+)", plain)
    took = dict(re.findall(r"percentile ([\d.]+) = +([\d.]+)", plain))
    if not tried and "Test ended" not in plain:
        raise ValueError(f"sockperf: {plain[-2000:]}")
    if not tried or not took:
        return Answers(0.0, 1e3 * seconds, 1e3 * seconds, 1)
    p50, p99 = (float(took[share]) / 1e3 for share in ("50.000", "99.000"))
    return Answers(int(tried[2]) / float(tried[1]), p50, p99, 0)


W1 = Service(
    "W1",
    "nginx of nice 0, asked by wrk",
    WEB_PORT,
    [
        Part("kept alive" if kept else "new connections", floods, kept)
        for floods in (True, False)
        for kept in (True, False)
    ],
    nginx,
    by_wrk,
)
D1 = Service(
    "D1",
    f"nsd of nice 0, asked {QUERIES:g} times a second by dnsperf",
    DNS_PORT,
    [Part("queries", floods) for floods in (True, False)],
    nsd,
    by_dnsperf,
)
K1 = Service(
    "K1",
    "Redis of nice 0, asked by redis-benchmark",
    STORE_PORT,
    [Part("kept alive", floods) for floods in (True, False)],
    redis,
    by_redis_benchmark,
)
E1 = Service(
    "E1",
    "an echo server of nice 0, asked by sockperf over UDP",
    ECHO_PORT,
    [Part("one at a time", floods) for floods in (True, False)],
    echo,
    by_sockperf,
)
C2 = Service(
    "C2",
    "nginx of nice 0 in a container, asked by wrk",
    WEB_PORT,
    [Part("kept alive", floods) for floods in (True, False)],
    contained_nginx,
    by_wrk,
    partial(containers.neighbours, port=WEB_PORT),
)
SERVICES = {service.name: service for service in (W1, D1, K1, E1, C2)}
