# SPDX-License-Identifier: GPL-2.0-only
"""The experiments' arithmetic: parsers, rates, and accounts that close."""

from collections import Counter
from pathlib import Path

import pytest
from experiments import chart, cost, cost_driver, counters, h1, main, profile, report, result, t1
from experiments.arms import SETTINGS, Arm, arms
from experiments.measure import Account, Closing, Load, Run, account, rates
from experiments.settings import Modules
from hypothesis import given
from hypothesis import strategies as st
from rig.guest import Guest
from rig.kernels import Kernel
from rig.streams import StreamReceived
from rig.traffic import Received, parse_iperf3_server

METRICS = """\
# TYPE packetflow_filter_dropped counter
packetflow_filter_dropped_total{reason="overload"} 12
packetflow_filter_dropped_total{reason="harm"} 3
packetflow_filter_dropped_total_bytes{reason="harm"} 99
packetflow_missed_total{probe="a b",reason="odd \\"one\\""} 4
# EOF
"""

SOCKETS = """\
proto local remote comm drops early_overload early_harm early_full
udp 0.0.0.0:5000 *:0 udp_recv 9 1 2 3
udp6 [::]:5001 *:0 udp_recv 9 0 0 7
tcp 0.0.0.0:5002 *:0 sshd 9 8 8 8
"""

UDP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt uid ... pointer drops
   80: 00000000:1388 00000000:0000 07 00000000:00000300 00:00000000 00000000     0        0 1 2 0 17
   81: 00000000:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0 5
"""


def test_metric_is_found_by_name_and_label() -> None:
    found = counters.metric(METRICS, "packetflow_filter_dropped_total", "reason")
    assert found == {"overload": 12, "harm": 3}
    assert counters.metric(METRICS, "packetflow_missed_total", "probe") == {"a b": 4}
    assert counters.metric(METRICS, "absent", "reason") == {}


def test_early_drops_are_read_by_column_name_and_for_udp_only() -> None:
    found = counters.early_drops(SOCKETS, [5000, 5001, 5002])
    assert found[5000] == {"overload": 1, "harm": 2, "full": 3}
    assert sum(found[5001].values()) == 7
    assert sum(found[5002].values()) == 0


def test_instructions_belong_to_the_function_before_them() -> None:
    kallsyms = (
        "ffffffff81000100 T second\n"
        "ffffffff81000000 t first\n"
        "ffffffff81000180 D data\n"
        "ffffffffc0000000 t ours\t[pf_mm]\n"
    )
    executed = Counter(
        {
            0xFFFFFFFF81000000: 1,
            0xFFFFFFFF810000FF: 2,
            0xFFFFFFFF81000190: 4,
            0xFFFFFFFFC0000010: 8,
            0x401000: 16,
        }
    )
    found = profile.by_function(executed, kallsyms)
    assert found == {"first": 3, "second": 4, "ours[pf_mm]": 8, profile.USER: 16}


def test_udp_queues() -> None:
    assert counters.udp_queues(UDP, [5000]) == [(0x300, 17)]


def test_snmp_pairs_names_with_values() -> None:
    text = "Ip: A B\nIp: 1 2\nUdp: InDatagrams InErrors\nUdp: 5 6\nUdpLite: InErrors\nUdpLite: 9\n"
    assert counters.snmp(text, "Udp") == {"InDatagrams": 5, "InErrors": 6}


def test_backlog_drops_are_hexadecimal_and_summed() -> None:
    assert counters.backlog_drops("00000001 0000000a 0\n00000001 00000001 0\n") == 11


def test_idle_share() -> None:
    rest = "cpu1 7 7 7 7 7 7 7 7 7 7\n"
    before = counters.cpu_time(f"cpu 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n{rest}", 1)
    after = counters.cpu_time(f"cpu 0 0 0 0\ncpu0 10 10 10 40 10 10 5 5 99 99\n{rest}", 1)
    assert counters.idle_share(before, after) == 0.5
    assert counters.idle_share(before, before) == 0


def test_share_of_some_tasks_is_of_all_cpus() -> None:
    second = 1_000_000_000
    before = counters.spent([f"{second} 7 1\n", "0 0 0\n"], "100.00 50.00\n", 2)
    after = counters.spent([f"{2 * second} 9 9\n", f"{second} 0 0\n"], "104.00 50.00\n", 2)
    assert counters.share(before, after) == 0.25
    nobody = counters.spent([], "100.00 0.00\n", 1), counters.spent([], "101.00 0.00\n", 1)
    assert counters.share(*nobody) == 0


def test_rates_ignore_the_filling_and_the_draining() -> None:
    """10 packets in the warm-up, 1000 a second then, and a burst at the end."""
    second = 1_000_000_000
    steady = [(round((0.5 + t) * second), 10 + round(1000 * t)) for t in (0, 1, 2)]
    samples = [*steady, (3 * second, 9000)]
    one = Received(9000, 0, 0, samples)
    starved = Received(0, 0, 0, [(second, 0)])
    assert rates([one, starved], 2) == [pytest.approx(1000), 0]


def test_period_starts_with_the_first_packet_of_any_receiver() -> None:
    second = 1_000_000_000
    early = Received(100, 0, 5 * second, [(6 * second, 100), (7 * second, 100)])
    late = Received(100, 0, 6 * second, [(6 * second, 0), (7 * second, 100)])
    # The period is 5.5 to 6.5: half of the early one's packets, half of the late one's.
    assert rates([early, late], 1) == [pytest.approx(50), pytest.approx(50)]


@given(
    received=st.integers(0, 1000),
    drops=st.integers(0, 1000),
    early=st.integers(0, 1000),
    lost=st.integers(0, 1000),
    counted=st.booleans(),
)
def test_account_closes(received: int, drops: int, early: int, lost: int, counted: bool) -> None:
    """Early drops that the socket counts too are told apart from its own."""
    seen = Received(received, drops + early if counted else drops, 0, [])
    sent = received + drops + early + lost
    (one,) = account([sent], [seen], [0.0], [{"overload": early}], counted)
    assert (one.socket_drops, one.early_drops, one.missing) == (drops, early, lost)


def run(pps: list[float], receive_drops: int = 0) -> Run:
    accounts = [Account(1000, 600, rate, 100, {"harm": 200}) for rate in pps]
    n = len(pps)
    closing = Closing(2.0, 1000 * n, 600 * n, 100 * n, 200 * n, receive_drops)
    return Run(accounts, closing, 0.25, 0.5, {}, [])


def example() -> result.Json:
    runs = {
        "stock": [run([10, 20, 30]), run([12, 20, 30])],
        "stock2": [run([11, 20, 30]), run([14, 21, 30])],
        "all": [run([36, 1, 1], 300), run([37, 1, 1], 290)],
    }
    load = Load(ports=(1, 2, 3), nices=(0, 5, 10), pps=500)
    kernel = Kernel("6.1", "6.1.0", *[result.Path("/")] * 2)
    guest = Guest(kernel)
    return result.result_json("U1", guest, "light", load, runs, ["autogroup-on"])


def test_result_has_what_is_promised() -> None:
    found = example()
    ours = found["arms"]["all"]
    assert ours["offered_pps"] == [500, 500, 500]
    assert ours["received_pps"] == [[36, 1, 1], [37, 1, 1]]
    assert ours["sum_pps"] == [38, 39]
    assert ours["competitors_cpu_share"] == [0.5, 0.5]
    assert (found["competitors"], found["beneath"]) == (0, ["autogroup-on"])
    assert ours["socket_drops_pps"][0] == [50, 50, 50]
    assert ours["early_drops_pps"][0] == [100, 100, 100]
    assert ours["receive_drops_pps"][0] == [50, 50, 50]
    assert [one["unaccounted"] for one in ours["accounts"]] == [0, 10]


def test_noise_is_the_largest_spread_of_both_stock_arms() -> None:
    assert example()["noise"] == 4


def test_noise_does_not_mix_what_ran_under_other_settings() -> None:
    figures = {"stock": 10, "stock2": 11, "stock+off": 50, "stock2+off": 53, "filter+off": 90}
    found = {name: {"pps": [[value]]} for name, value in figures.items()}
    assert result.noise(found, "pps") == 3
    assert result.noise({}, "pps") == 0


def test_table_and_text_show_every_arm_and_receiver() -> None:
    found = example()
    table = result.table(found)
    assert all(arm in table for arm in found["arms"])
    drops = result.drop_table(found).splitlines()
    assert len(drops) == 2 + 3 * 3
    rates = "0.50 0.00 0.05 0.00 0.10 0.00 0.00 0.05"
    assert drops[-1].split() == ["all", "nice", "10", *rates.split()]
    text = chart.text(found)
    assert all(f"nice {nice}" in text for nice in (0, 5, 10))


def test_picture_is_written(tmp_path: result.Path) -> None:
    paths = [tmp_path / "a.png", tmp_path / "a.svg"]
    chart.picture([example()], paths)
    assert all(path.stat().st_size > 1000 for path in paths)


def test_no_bar_of_a_picture_is_cut_off() -> None:
    """Whatever else is beside it, and sent less."""
    less = example()
    for arm in less["arms"].values():
        arm["offered_pps"] = [10] * 3
    first, second = chart.compose([example(), less]).axes
    assert first.get_ylim()[1] > 0.5 > second.get_ylim()[1]


def test_both_stock_arms_are_always_there() -> None:
    assert [arm.name for arm in arms(["filter", "stock"])] == ["stock", "stock2", "filter"]


def test_arms_are_run_once_more_with_a_further_setting() -> None:
    found = arms(["filter", "shed-all+rmem4m"], ["autogroup-on"], ["rmem4m"])
    once = ["stock", "stock2", "filter", "shed-all+rmem4m"]
    assert [arm.name for arm in found] == [*once, "stock+rmem4m", "stock2+rmem4m", "filter+rmem4m"]
    assert [len(arm.settings) for arm in found] == [2, 2, 2, 3, 3, 3, 3]


@pytest.mark.parametrize("lever", ["nice", "deadline", "rr"])
def test_there_is_an_arm_for_each_lever(lever: str) -> None:
    setting = SETTINGS[f"sched-{lever}"]()
    assert isinstance(setting, Modules)
    assert (setting.names, setting.parameters) == (("pf_sched",), {"sched": {"lever": lever}})


def test_what_is_only_observed_is_not_taken_from_the_sockets_drops() -> None:
    counted = {name: Arm(name).counted_by_socket for name in ("both", "observe", "stock")}
    assert counted == {"both": True, "observe": False, "stock": False}


@given(without=st.floats(0, 0.5), slope=st.floats(1e-6, 1e-4), at=st.integers(1, 100_000))
def test_loops_are_found_by_what_others_took(without: float, slope: float, at: int) -> None:
    shares = {loops: without + slope * loops for loops in (0, at)}
    assert h1.loops_for(0.54, shares) == pytest.approx((0.54 - without) / slope, rel=1e-3, abs=1)
    assert h1.loops_for(without / 2, shares) == 0


@given(without=st.floats(0, 0.4), slope=st.floats(1e-6, 1e-4), guess=st.floats(0.3, 5))
def test_who_could_use_more_tells_nothing_of_the_loops(
    without: float, slope: float, guess: float
) -> None:
    """Whatever a loop seemed to take, the need is found: no share is above it for long."""
    shares = h1.fitted(
        0.8, guess / slope, lambda loops: min(without + slope * loops, 0.95), lambda _: None
    )
    assert all(share <= h1.SATURATED for share in shares.values())
    assert h1.loops_for(0.8, shares) == pytest.approx((0.8 - without) / slope, rel=1e-2, abs=1)


def stream_runs(*seconds: list[float]) -> list[t1.Run]:
    return [t1.Run(one, 0.0, 0.5, 7) for one in seconds]


def streams() -> result.Json:
    runs = {
        "stock": stream_runs([1.0, 1.1, 1.2], [1.0, 1.1, 1.3]),
        "stock2": stream_runs([1.0, 1.1, 1.2]),
        "sched": stream_runs([0.75, 1.1, 1.5]),
        "stock+autogroup-off": stream_runs([0.5, 1.0, 2.0]),
        "sched+autogroup-off": stream_runs([0.25, 1.0, 2.0]),
    }
    guest = Guest(Kernel("6.1", "6.1.0", *[result.Path("/")] * 2))
    return t1.result_json("T1c", guest, 100_000, runs)


def test_seconds_count_from_the_first_packet_of_any_receiver() -> None:
    second = 1_000_000_000
    received = [StreamReceived(3 * second, 4 * second), StreamReceived(2 * second, 5 * second)]
    assert t1.seconds(received) == [2, 3]


def test_stream_result_has_what_is_promised() -> None:
    found = streams()
    assert (found["packets"], found["bytes"], found["competitors"]) == (100_000, 256, 4)
    assert found["noise"] == pytest.approx(0.1)
    stock = found["arms"]["stock"]
    assert stock["seconds"] == [[1.0, 1.1, 1.2], [1.0, 1.1, 1.3]]
    assert (stock["competitors_cpu_share"], stock["retransmitted"]) == ([0.5, 0.5], [7, 7])


def test_streams_are_compared_with_stock_in_the_same_state() -> None:
    rows = {line.split()[0]: line.split() for line in t1.table(streams()).splitlines()}
    assert rows["sched"][3] == "-25.0%"
    assert rows["sched+autogroup-off"][3] == "-50.0%"


def counted(**more: object) -> result.Json:
    by_arm = {"stock": 1000.0, "filter_idle": 1010.0, "stock_100k": 2000.0, "filter_100k": 2010.0}
    judged = {"judged": 1100.0}
    return {
        "version": "6.1.0",
        "instructions_per_packet": by_arm,
        "receive_instructions_per_packet": by_arm | judged,
        "forwarded_instructions_per_packet": {"stock": 2000.0, "filter_idle": 2010.0} | judged,
        "ping_pong_us": {"stock": 10.0, "filter_idle": 10.1},
        "spread": 0.001,
        "dropped": {"early_drop": 0.991},
        **more,
    }


def test_cost_is_compared_with_stock_with_as_many_sockets() -> None:
    found = counted(ping_pong_range_us={"stock": [9.5, 10.5]}, tracked=100_001)
    text = cost.table(found)
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines()}
    by_path = ["1000", "+0.00%", "1000", "+0.00%", "2000", "+0.00%"]
    assert rows["stock"] == [*by_path, "10.00", "(9.50-10.50)", "+0.00%"]
    by_path = ["1010", "+1.00%", "1010", "+1.00%", "2010", "+0.50%"]
    assert rows["filter_idle"] == [*by_path, "10.10", "+1.00%"]
    assert rows["filter_100k"] == ["2010", "+0.50%", "2010", "+0.50%"]
    assert rows["judged"] == ["1100", "+10.00%", "1100", "-45.00%"]
    assert "100001 sockets were tracked" in text


def test_a_result_that_is_older_than_a_figure_is_shown_without() -> None:
    text = cost.table(counted())
    assert "(" not in text
    assert "tracked" not in text


def test_arms_with_many_sockets_are_there_with_the_filter() -> None:
    arms = cost.cost_arms(["pf_filter"])
    assert [name for name, arm in arms.items() if arm.sockets] == ["stock_100k", "filter_100k"]
    assert not any(arm.at_peace for arm in arms.values() if arm.sockets)
    elsewhere = ["nft_raw_drop", "nft_ingress_drop", "tc_drop", "xdp_drop"]
    assert list(cost.cost_arms([])) == ["stock", "full_socket", *elsewhere, "stock_100k"]


def test_drops_in_the_driver_are_compared_with_what_is_written_by_hand() -> None:
    costs = {"tap": 4000.0, "xdp_pass": 4200.0, "xdp_police_drop": 1000.0}
    costs |= {"xdp_judged": 4284.0, "xdp_early_drop": 1100.0}
    found = {"version": "6.12", "spread": 0.001, "dropped": {"xdp_early_drop": 0.995}}
    text = cost_driver.table({**found, "receive_instructions_per_packet": costs})
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines()}
    assert rows["tap"] == ["4000"]
    assert rows["xdp_judged"] == ["4284", "102.0%", "of", "xdp_pass"]
    assert rows["xdp_early_drop"] == ["1100", "110.0%", "of", "xdp_police_drop"]


def test_arms_join_and_an_unknown_one_is_refused() -> None:
    assert len(Arm("shed-all+rmem4m").settings) == 2
    with pytest.raises(ValueError, match="no such arm: nothing"):
        Arm("stock+nothing")


def test_iperf3_server_report() -> None:
    intervals = [
        {"sum": {"packets": 10, "lost_packets": 4, "end": 0.1}},
        {"sum": {"packets": 10, "lost_packets": 0, "end": 0.2}},
    ]
    one = parse_iperf3_server({"intervals": intervals})
    assert one.packets == 16
    assert one.samples == [(100_000_000, 6), (200_000_000, 16)]
    with pytest.raises(RuntimeError, match="busy"):
        parse_iperf3_server({"error": "busy"})


def test_more_than_one_cpu_is_told_in_the_heading_and_the_title() -> None:
    kernel = Kernel("6.1", "6.1.0", *[Path("/")] * 2)
    one, two = (result.heading("U1", Guest(kernel, cpus=cpus)) for cpus in (1, 2))
    assert (one["cpus"], two["cpus"]) == (1, 2)
    assert result.subject(one) == "U1, kernel 6.1.0"
    assert result.subject(two) == "U1, kernel 6.1.0, 2 CPUs"
    assert (report.title(two), report.anchor(two)) == ("U1, 6.1, 2 CPUs", "U1-6.1-2-CPUs")


def test_the_hosts_clock_is_for_one_cpu() -> None:
    with pytest.raises(SystemExit, match="one CPU"):
        main.run(["U1", "--cpus", "2", "--clock", "host"])
