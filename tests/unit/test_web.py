# SPDX-License-Identifier: GPL-2.0-only
"""W1: a web server beside floods."""

from pathlib import Path

import pytest
from experiments import flat, report, result, services, show, web
from experiments.measure import Closing
from rig.guest import Guest
from rig.kernels import Kernel

GUEST = Guest(Kernel("6.1", "6.1.0", *[Path("/")] * 2), cpus=2)
# As wrk 4.1.0 writes it.
PRINTED = """\
Running 2s test @ http://10.77.0.2:8080/
  1 threads and 4 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   833.44us    0.90ms   5.61ms   83.12%
    Req/Sec     6.90k   140.78     7.25k    80.00%
  Latency Distribution
     50%  312.00us
     75%    1.23ms
     90%    2.19ms
     99%    4.09ms
  13771 requests in 2.00s, 2.02MB read
Requests/sec:   6873.64
Transfer/sec:      1.01MB
"""
SILENT = """\
  Latency Distribution
     50%    0.00us
     99%    0.00us
  0 requests in 3.00s, 0.00B read
  Socket errors: connect 0, read 1, write 0, timeout 2
Requests/sec:      0.00
"""


def test_wrks_answers_are_read_in_its_units() -> None:
    assert services.answers(PRINTED, 2) == services.Answers(6873.64, 0.312, 4.09, 0)
    slow = PRINTED.replace("4.09ms", "1.20s").replace("312.00us", "1.50m")
    found = services.answers(slow, 2)
    assert (found.p50_ms, found.p99_ms) == pytest.approx((90e3, 1200))


def test_errors_are_those_of_sockets_and_other_answers() -> None:
    more = "  Socket errors: connect 1, read 2, write 3, timeout 4\n"
    more += "  Non-2xx or 3xx responses: 50\n"
    assert services.answers(PRINTED.replace("Requests/sec", more + "Requests/sec"), 2).errors == 60


@pytest.mark.parametrize(
    "printed",
    [
        "unable to connect to 10.77.0.2:8080 Connection timed out\nended with 1\n",
        "ended with 124\n",
        SILENT.replace("read 1", "read 0").replace("timeout 2", "timeout 0"),
    ],
)
def test_without_an_answer_the_time_is_that_of_the_run(printed: str) -> None:
    assert services.answers(printed, 3) == services.Answers(0, 3000, 3000, 0)


def test_errors_count_without_an_answer() -> None:
    assert services.answers(SILENT, 3).errors == 3


def test_a_wrk_that_could_not_try_is_no_server_without_answers() -> None:
    with pytest.raises(ValueError, match="not found"):
        services.answers("sh: 1: wrk: not found\nended with 127\n", 3)


def ran(part: services.Part, per_s: float, p99_ms: float) -> web.Run:
    seen = services.Answers(per_s, p99_ms / 2, p99_ms, 0)
    floods = [22e3 if part.floods else 0.0] * 2
    closing = Closing(1.0, 1000, 980, 10, 5, 3) if part.floods else Closing(1.0, 0, 0, 0, 0, 4)
    return web.Run(seen, floods, [pps / 2 for pps in floods], closing, 0.25)


def shown(**arms: tuple[float, float]) -> result.Json:
    """A result of these arms in every part: answers a second, and p99."""
    named = {name.replace("_", "-"): figures for name, figures in arms.items()}
    parts = [
        (part, {name: [ran(part, *figures)] for name, figures in named.items()})
        for part in services.W1.parts
    ]
    return web.result_json(GUEST, services.W1, parts)


def test_the_filter_is_compared_with_the_better_by_hand() -> None:
    stock = {"stock": (500, 20), "stock2": (530, 20)}
    found = shown(**stock, shed_all=(2000, 4), fifo_by_hand=(1000, 2), filter=(1500, 3))
    assert [(part["part"], part["floods"]) for part in found["parts"]] == [
        ("kept alive", True),
        ("new connections", True),
        ("kept alive", False),
        ("new connections", False),
    ]
    assert [part["noise"] for part in found["parts"]] == [30] * 4
    said = show.table(found).splitlines()
    assert "2 CPUs" in said[0] and len(said) == 2 + 4 * (1 + 5) + 4
    assert said[-4] == (
        "kept alive, beside floods: filter: answers 75% of the better of shed-all and "
        "fifo-by-hand, p99 150%"
    )
    words = said[7].split()
    assert words[:4] == ["filter", "1500", "(1500-1500)", "1.50"]
    assert words[-4:] == ["11.0", "(11.0-11.0)", "25%", "+0.20%"]
    assert said[-5].split()[-4:] == ["-", "-", "25%", "-"]


def test_nothing_is_compared_where_an_arm_is_missing_or_has_no_answer() -> None:
    stock = {"stock": (500, 20), "stock2": (530, 20)}
    none = (0, 3000)
    for arms in ({"filter": (1, 1)}, {"shed_all": none, "fifo_by_hand": none, "filter": none}):
        assert "better" not in show.table(shown(**stock, **arms))


def test_the_page_has_a_panel_and_the_list_a_name_for_each_part() -> None:
    found = shown(stock=(500, 20), stock2=(530, 20))
    assert report.section(found).count("<svg") == 1
    listed = flat.text(found)
    assert '"kept alive, beside floods.stock.answers_per_s",0,,500' in listed
    assert '"new connections, no floods.stock2.p99_ms",0,,20' in listed


QUERIED = """\
> NOERROR www.example.test A 0.000400
> NOERROR www.example.test A 0.000100
> NOERROR www.example.test A 0.000200
> T www.example.test A 1.000000
Statistics:

  Queries sent:         4
  Queries completed:    3 (75.00%)
  Queries lost:         1 (25.00%)
"""


def test_answers_of_a_name_server() -> None:
    assert services.dns_answers(QUERIED, 2) == services.Answers(1.5, 0.2, 0.4, 1)
    silent = "\n".join(line for line in QUERIED.splitlines() if "NOERROR" not in line)
    assert services.dns_answers(silent, 2) == services.Answers(0, 2000, 2000, 1)
    with pytest.raises(ValueError, match="cannot"):
        services.dns_answers("Error: cannot listen", 2)


STORED = """\
"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
"GET","3968.25","0.921","0.312","0.863","1.543","2.015","4.031"
"""


def test_answers_of_a_store() -> None:
    assert services.store_answers(STORED) == services.Answers(3968.25, 0.863, 2.015, 0)
    with pytest.raises(ValueError, match="refused"):
        services.store_answers("Could not connect: Connection refused")


ECHOED = """\
sockperf: Test ended
sockperf: [Total Run] RunTime=2.000 sec; SentMessages=2557; ReceivedMessages=2556
sockperf: [Valid Duration] RunTime=1.600 sec; SentMessages=2000; ReceivedMessages=2000
\x1b[2;35m sockperf: ---> percentile 99.000 = 2423.674\x1b[0m
sockperf: ---> percentile 50.000 =  177.885
"""


def test_answers_of_an_echo_server() -> None:
    found = services.echo_answers(ECHOED, 2)
    assert found == services.Answers(1250, 0.177885, 2.423674, 0)
    silent = "sockperf: Test ended\nsockperf: No messages were received from the server."
    assert services.echo_answers(silent, 2) == services.Answers(0, 2000, 2000, 1)
    with pytest.raises(ValueError, match="refused"):
        services.echo_answers("sockperf: ERROR: connection refused", 2)
