# SPDX-License-Identifier: GPL-2.0-only
"""Overload belongs to a CPU: what arrives elsewhere is innocent.

Receive packet steering sends everything from one neighbour to one CPU, which
has no time to spare and a backlog that overflows; another neighbour's packets
go to another CPU.
"""

import os

from inside import inside, mark
from inside.cpus import backlog, own_sysfs, receiving_on, sending_on, steer
from inside.net import Peer, drain, port_of, pressure, udp
from inside.suite import dropped, entry, metric, passed, pressed, wait_for

pytestmark = mark.full


def lost_at(cpu: str) -> float:
    return metric("packetflow_cpu_lost_packets_total")[cpu]


@mark.cpus(4)
@mark.steers()
@inside(pinned=False)
def test_a_backlog_that_overflows_sheds_the_lowest_and_only_there() -> None:
    own_sysfs()
    crowded, calm = Peer(1), Peer(2)
    steer(crowded, 2)
    steer(calm, 3)
    top, top_worker = receiving_on(crowded.ours4, 2, 0)
    low, low_worker = receiving_on(crowded.ours4, 2, 10)
    innocent, innocent_worker = receiving_on(calm.ours4, 3, 19)
    workers = [top_worker, low_worker, innocent_worker]
    before = lost_at("3")
    try:
        backlog(300)
        there = [(crowded.ours4, port_of(top)), (crowded.ours4, port_of(low))]
        workers += [sending_on(crowded, cpu, there, 0) for cpu in (0, 1)]
        workers += [sending_on(calm, 3, [(calm.ours4, port_of(innocent))], 0.005)]
        wait_for(lambda: pressed(2))
        wait_for(lambda: int(entry(low)["early_overload"]) > 100)
        lost = {name: entry(sock) for name, sock in (("top", top), ("innocent", innocent))}
        assert lost_at("2") > 0
        assert lost["top"]["early_overload"] == lost["top"]["early_harm"] == "0"
        assert lost["innocent"]["early_overload"] == lost["innocent"]["early_harm"] == "0"
        # It may be pressed: on a slow host its rounds are cut short, which is worth a look.
        assert lost_at("3") == before
    finally:
        backlog(1000)
        for worker in workers:
            worker.end()


@mark.cpus(4)
@mark.steers()
@inside()
def test_a_cpu_without_pressure_looks_at_nothing() -> None:
    wait_for(lambda: not pressed(2))  # the test before had it so
    os.sched_setaffinity(0, {1})
    with pressure() as pressing:
        assert pressed(1)
        os.sched_setaffinity(0, {2})
        full, sender = udp(rcvbuf=1), udp()
        sender.sendto(b"x" * 100, full.getsockname())
        assert not pressed(2)
        assert dropped()["socket_full"] > 0
        receiver = udp()

        def unseen() -> bool:
            os.sched_setaffinity(0, {1})
            pressing.raise_()
            os.sched_setaffinity(0, {2})
            looked_at = sum(passed().values())
            for _ in range(200):
                sender.sendto(b"x", receiver.getsockname())
            assert len(drain(receiver)) == 200
            return sum(passed().values()) == looked_at and pressed(1)

        # At peace packets are counted for 60 ms of every ten seconds, and never judged.
        wait_for(unseen)
        assert int(entry(receiver)["drops"]) == 0
