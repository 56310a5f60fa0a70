# SPDX-License-Identifier: GPL-2.0-only
"""trace: the events as they are read, and what is shown of them."""

import pytest
from experiments import show, trace, trace_picture, trace_table
from experiments.measure import Load
from experiments.result import Json
from rig.traffic import Flow

# As tracefs writes it.
TEXT = """\
# tracer: nop
#
# entries-in-buffer/entries-written: 4/7   #P:3
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
#              | |         |   |||||     |         |
          <idle>-0       [000] ..s1.   12.500000: receiver: pid=71 rank=20 cpu=0 run=6553 wait=13107
     my task-2-345       [000] b.s1.   12.508000: control: cpu=0 idle=32768 softirq=6553 \
queue=0.00000 harm=30.32768 share=1263 why=lost more=-3 asking=80000
 packetflow-5-9          [001] ..s..   13.000000: boost: pid=71 comm=udp_recv levels=5
          <idle>-0       [000] ..s1.   13.150000: receiver: pid=71 rank=20 cpu=1 run=0 wait=65536
"""


def test_events_are_read_by_the_names_of_their_fields() -> None:
    receiver, control, boost, last = trace.events(TEXT)
    assert (receiver.name, receiver.at) == ("receiver", 12.5)
    assert receiver.fields == {"pid": 71, "rank": 20, "cpu": 0, "run": 6553, "wait": 13107}
    assert not receiver.cuts
    assert control.fields["harm"] == 30.5 and control.fields["queue"] == 0
    assert control.cuts == {"harm", "queue"}
    assert "why" not in control.fields and "more" not in control.fields
    assert control.fields["asking"] == 80000
    assert boost.fields == {"pid": 71, "levels": 5}
    assert last.at == 13.15


def test_what_was_overwritten_is_told() -> None:
    assert trace.overwritten(TEXT) == 3
    assert trace.overwritten("") == 0


def test_a_cuts_reach_counts_receivers_from_the_last() -> None:
    ranks = [20, 15, 10]
    assert trace_table.reach(0, ranks) == 0
    assert trace_table.reach(20.25, ranks) == 0.25
    assert trace_table.reach(21.25, ranks) == 0.25  # elected
    assert trace_table.reach(30.5, ranks) == 1.5
    assert trace_table.reach(35, ranks) == 2
    assert trace_table.reach(50, ranks) == 3


def result() -> Json:
    made: dict[str, list[dict[str, float]]] = {"control": [], "receiver": []}
    for one in trace.events(TEXT):
        if one.name in made:
            made[one.name].append({"at": one.at - 12.5, **one.fields})
    return {
        "experiment": "trace",
        "kernel": "6.1",
        "version": "6.1.0",
        "load": "U1",
        "arm": "filter",
        "set": {"filter/floor": "5"},
        "nices": [0, 5],
        "pids": [71, 72],
        "pps": 18e3,
        "on": 0.2,
        "off": 0.3,
        "together": False,
        "seconds": 0.7,
        "overwritten": 3,
        "control": made["control"],
        "cuts": ["harm", "queue"],
        "receivers": made["receiver"],
        "received": [[[0, 0], [0.1, 1000], [0.3, 2000]], [[0, 0], [0.7, 0]]],
        "received_pps": [17e3, 0.0],
        "idle": 0.1,
    }


def test_every_line_is_of_a_step_of_time() -> None:
    title, _, *lines = show.table(result()).splitlines()
    assert "floor=5" in title and "on for 0.2 s and off for 0.3 s" in title
    assert "3 events are missing" in title
    assert len(lines) == 4
    assert lines[0].startswith("  0.0 |  7.50  0.00 | c0 idle 50 sirq 10 harm 30.32768 (0.00)")
    assert "share 1263 asking 80000" in lines[0]
    assert lines[0].endswith("nice 0 r 10 w 20 s 70 @0.0")
    assert lines[1].split("|")[1:] == ["  2.50  0.00"]
    assert lines[3].endswith("nice 0 r  0 w100 s  0 @1.0")


def test_a_rate_takes_of_each_gap_what_is_its_share() -> None:
    samples = [[0.0, 0], [1.0, 10], [2.0, 40]]
    assert trace_table.between(samples, 0.5, 1.5) == pytest.approx(20)
    assert trace_table.between(samples, 2.0, 3.0) == 0


def test_signals_are_shares_and_no_cuts_nor_times() -> None:
    assert trace_table.signals(result()) == ["share"]


def test_a_picture_can_be_drawn_with_and_without_events() -> None:
    made = result()
    assert len(trace_picture.compose(made).axes) == 4 + 2
    assert trace_picture.compose({**made, "control": [], "receivers": [], "cuts": []})


def test_the_first_may_be_sent_steadily_beside_floods_that_go_on_and_off() -> None:
    load = Load(ports=(1, 2), nices=(0, 5), pps=100, on=0.5, off=1, steady=1)
    assert load.flows() == [Flow(1, 100), Flow(2, 100, 0.5, 1)]
    assert [one.dilated(2) for one in load.flows()] == ["1:50.0", "2:50.0:1.0:2"]
