# SPDX-License-Identifier: GPL-2.0-only
"""pf_flow's table: what may be written, what it says of the rest, and whose a packet is."""

import os
import socket
import subprocess
import time
from functools import partial
from pathlib import Path

from inside import inside, mark
from inside.cgroups import TOP, cgroup, entered, nested
from inside.flows import (
    ERROR,
    FLOW,
    FLOWS,
    TABLE,
    change,
    flow,
    flows,
    quiet_peer,
    table,
    wrong,
)
from inside.net import Namespace, Peer, nft, port_of, udp
from inside.suite import error_of, is_real_time, metric, set_knob, settle, wait_for, write

pytestmark = mark.ends

ROWS = [
    "add a family=4 src=10.0.0.0/8 dst=10.1.0.1/32 proto=17 sport=5 dport=53 rate=1000 weight=7",
    "add b family=6 dst=fd01::/64 proto=6 rate=1000000 peak=2000000 burst=5000 queue=70000",
    "add c dev=lo mark=0x10/0xff rank=20 rate=1000000000000",
    "add d default rate=8",
    "add e family=4",
]


@inside(modules=FLOW)
def test_what_is_shown_can_be_written_again() -> None:
    change("replace", *ROWS)
    assert table() == ROWS
    change("replace", *table())
    assert table() == ROWS
    change("replace", "# nothing", "", "   ")
    assert table() == []


@inside(modules=FLOW)
def test_what_people_write_is_understood() -> None:
    with flows(
        "a src=10.0.0.0/8 proto=udp rate=5mbit queue=64k",
        "b proto=icmpv6 rate=2K",
        "c dst=::/0 rate=1gbit",
        "d mark=16 peak=3MBIT",
    ):
        assert table() == [
            "add a family=4 src=10.0.0.0/8 proto=17 rate=5000000 queue=65536",
            "add b proto=58 rate=2000",
            "add c family=6 rate=1000000000",
            "add d mark=0x10/0xffffffff peak=3000000",
        ]


@inside(modules=FLOW)
def test_a_write_is_done_whole_or_not_at_all() -> None:
    change("replace", *ROWS)
    good = "add new dport=1 rate=1m"
    bad = {
        "add": "a name is missing",
        "add a dport=2": "another flow has this name",
        "add x dport=1": "another flow matches the same",
        "add x default": "another flow is the default",
        "add x rate=1m": "it says neither",
        "add x default dport=1": "the default flow matches all",
        "add x/y dport=1": "a name is made of",
        f"add {'x' * 32} dport=2": "the name is too long",
        "add x dport=0": "dport is no port",
        "add x dport=65536": "dport is no port",
        "add x sport=-1": "sport is no port",
        "add x src=10.0.0.1/8": "src is no prefix",
        "add x src=10.0.0.0/33": "src is no prefix",
        "add x src=10.0.0": "src is no prefix",
        "add x src=10.0.0.1 dst=::1": "dst is no prefix",
        "add x family=5": "family is not",
        "add x family=4 dst=::1": "dst is no prefix",
        "add x proto=udpp": "proto is no protocol",
        "add x mark=0x10/0xf": "mark is no value",
        "add x dev=nosuch": "there is no such device",
        "add x rank=141": "rank is not of",
        "add x dport=2 rate=0": "rate is not of",
        "add x dport=2 rate=1x": "rate is not of",
        "add x dport=2 rate=1001g": "rate is not of",
        "add x dport=2 peak=5mbits": "peak is not of",
        "add x dport=2 burst=2g": "burst is not of",
        "add x dport=2 queue=k": "queue is not of",
        "add x dport=2 weight=1001": "weight is not of",
        "add x dport=2 colour=red": "a word that is not known",
        "add x dport=2 colour": "a word that is not known",
        "change z rate=1": "there is no flow",
        "change a dport=7": "a word that is not known",
        "change a rate=-1": "rate is not of",
        "delete z": "there is no flow",
        "delete a b": "behind the name",
        "remove a": "a line begins with",
        "check": "a line begins with",
    }
    for line, said in bad.items():
        assert wrong(good, "change a rate=2000", "delete b", "", line, good).startswith(
            f"line 5: {said}"
        ), (line, ERROR.read_text())
        assert table() == ROWS
    assert wrong("check", "replace", good, "delete b") == "line 4: there is no flow of this name"
    assert wrong("check", good) == "" == ERROR.read_text()
    assert table() == ROWS
    change("change a rate=2000", "delete b", good)
    assert [row.split()[1] for row in table()] == ["a", "c", "d", "e", "new"]
    assert "rate=2000" in table()[0]
    change("delete new", good, "change new rate=5m", "delete new", good)
    assert table()[-1] == good.replace("1m", "1000000")
    change("replace")


@inside(modules=FLOW)
def test_texts_that_are_none() -> None:
    for text in ("add a dport=1\0add b dport=2", "\0"):
        assert error_of(partial(write, TABLE, text)) == "Invalid argument"
    file = os.open(TABLE, os.O_WRONLY)
    assert os.write(file, b"add a dport=1") == 13
    assert os.write(file, b"add b dport=2") == 13
    os.close(file)
    change("replace")


@inside(modules=FLOW)
def test_others_may_neither_read_nor_write() -> None:
    child = os.fork()
    if not child:
        os.setuid(65534)
        refused = 0
        for path, how in ((TABLE, os.O_WRONLY), (TABLE, os.O_RDONLY), (FLOWS, os.O_RDONLY)):
            try:
                os.open(path, how)
            except PermissionError:
                refused += 1
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    # User id 0 alone is not enough, as root of a container may have no more.
    for path in (TABLE, FLOWS, ERROR):
        command = ["setpriv", "--bounding-set=-net_admin", "cat", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.stdout, "not permitted" in done.stderr) == ("", True), done
    # Root in a namespace of its own is nobody here.
    child = os.fork()
    if not child:
        os.unshare(os.CLONE_NEWUSER)
        try:
            write(TABLE, "add a dport=1")
        except OSError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert table() == []


@inside(modules=FLOW)
def test_each_namespace_has_its_own_table() -> None:
    with flows("a dport=1"):
        with Namespace():
            assert table() == []
            change("add b dport=2")
        assert [row.split()[1] for row in table()] == ["a"]
        assert metric("packetflow_flow_flows")[""] == 2


@inside(modules=FLOW)
def test_a_flow_that_stays_keeps_its_counters() -> None:
    peer = Peer()
    receiver, sender = udp(peer.ours4), peer.udp()
    port = port_of(receiver)
    change(f"add a dport={port} rate=1m")
    sender.sendto(b"x", receiver.getsockname())
    change("replace", f"add a dport={port} rate=2m", "add b dport=1")
    assert flow("a")["direct"] == 1
    assert flow("a")["rate"] == 2_000_000
    change("replace", f"add a dport={port} proto=udp rate=2m")
    assert flow("a")["direct"] == 0
    change("replace")


@mark.parametrize("kind", ["v4", "v6"])
@inside(modules=FLOW)
def test_the_most_exact_flow_has_the_packet(kind: str) -> None:
    peer = quiet_peer()
    v6 = kind == "v6"
    own, theirs = (peer.ours6, peer.theirs6) if v6 else (peer.ours4, peer.theirs4)
    short, long, whole = (16, 64, 128) if v6 else (8, 24, 32)
    net = "fd01::" if v6 else "10.1.0.0"
    receiver, sender = udp(own), peer.udp(theirs)
    port = port_of(receiver)
    nft(MARKING)
    least_first = [
        "default",
        f"family={6 if v6 else 4}",
        "proto=udp",
        f"dport={port}",
        f"dst={'fd01::' if v6 else '10.0.0.0'}/{short}",
        f"dev={peer.device}",
        f"dst={net}/{long}",
        f"dst={own}/{whole}",
        f"src={theirs} dst={own}",
        f"src={theirs} dst={own} dport={port}",
        f"src={theirs} dst={own} sport={port_of(sender)} dport={port}",
        f"src={theirs} dst={own} sport={port_of(sender)} dport={port} mark=0x7",
    ]
    rows = [f"add f{number} {words}" for number, words in enumerate(least_first)]
    nowhere = [f"add n{n} dst={'fd80::' if v6 else '172.16.0.0'}/{13 + n}" for n in range(9)]
    for turn in range(len(rows)):
        there = rows[: turn + 1]
        change("replace", *(there if turn % 2 else there[::-1]), *nowhere)
        for _ in range(3):
            sender.sendto(b"x", receiver.getsockname()[:2])
        found = [flow(f"f{number}")["direct"] for number in range(turn + 1)]
        assert found[turn] == 3, (turn, found)
    change("replace")


MARKING = """table inet t {
    chain c {
        type filter hook prerouting priority -150
        meta mark set 7
    }
}
"""


@mark.parametrize("kind", ["v4", "v6"])
@inside(modules=FLOW)
def test_flows_by_the_rank_of_the_receiver(kind: str) -> None:
    peer = quiet_peer()
    own, theirs = (peer.ours6, peer.theirs6) if kind == "v6" else (peer.ours4, peer.theirs4)
    receiver, sender = udp(own), peer.udp(theirs)

    def send() -> tuple[int, int]:
        settle()
        time.sleep(0.02)
        before = flow("a")["direct"], flow("b")["direct"]
        for _ in range(5):
            sender.sendto(b"x", receiver.getsockname()[:2])
            sender.sendto(b"x", (own, port_of(receiver) ^ 1))
        return flow("a")["direct"] - before[0], flow("b")["direct"] - before[1]

    with flows("a rank=20 proto=udp", "b rank=13"):
        assert send() == (5, 0)
        os.nice(7)
        assert send() == (0, 5)
        change("delete a", "delete b", "add a dport=1", "add b default")
        assert send() == (0, 10)


@mark.parametrize("kind", ["v4", "v6"])
@inside(modules=FLOW)
def test_flows_by_the_control_group_of_the_receiver(kind: str) -> None:
    """The deepest that a flow names, of the one in which the socket was made and those above."""
    peer = quiet_peer()
    own, theirs = (peer.ours6, peer.theirs6) if kind == "v6" else (peer.ours4, peer.theirs4)
    sender, receivers = peer.udp(theirs), []
    with nested("out", "in", "most", controller="") as groups:
        for group in (TOP, *groups):
            with entered(group):
                receivers.append(udp(own))
        rows = ["a cgroup=/out rate=1000000", "b proto=17 cgroup=/out/in", "c default"]
        with flows(*rows):
            assert table() == [f"add {row}" for row in rows]
            for receiver in receivers:
                sender.sendto(b"x", receiver.getsockname()[:2])
            sender.sendto(b"x", (own, port_of(receivers[0]) ^ 1))
            assert [flow(name)["direct"] for name in "abc"] == [1, 2, 2]
            change("delete b")
            sender.sendto(b"x", receivers[-1].getsockname()[:2])
            assert [flow(name)["direct"] for name in "ac"] == [2, 2]
    with flows("c default"):
        assert "line 1: cgroup is no control group" in wrong("add a cgroup=/out")


@inside(modules=FLOW)
def test_a_connection_is_of_the_control_group_of_who_listens() -> None:
    peer = Peer()
    with cgroup("one", controller="") as one, entered(one):
        server = socket.create_server((peer.ours4, 0))
    with flows("a cgroup=/"):
        before = flow("a")["direct"]
        with peer:
            client = socket.create_connection(server.getsockname())
        connection, _ = server.accept()

        def received() -> bool:
            client.send(b"x" * 1000)
            assert len(connection.recv(1000)) == 1000
            return flow("a")["direct"] > before

        # What began the connection had no receiver yet, which is remembered for a jiffy.
        wait_for(received)
    with cgroup("one", controller="") as one, entered(one):
        later = udp(peer.ours4)
        change("add a cgroup=/one")
    # A group that is gone is no other one's of the same name.
    assert table() == ["add a cgroup=(gone)"]
    with cgroup("one", controller=""):
        peer.udp().sendto(b"x", later.getsockname())
        assert flow("a")["direct"] == 1
    change("replace")


@inside(modules=FLOW)
def test_translated_addresses_count() -> None:
    peer = Peer()
    receiver, sender = udp(peer.ours4), peer.udp()
    port = port_of(receiver)
    nft(f"""table ip t {{
    chain c {{
        type nat hook prerouting priority -100
        udp dport 99 redirect to :{port}
    }}
}}
""")
    with flows(f"a dport={port} rate=8k burst=200 queue=1000", "b dport=99"):
        for _ in range(300):
            sender.sendto(b"x" * 100, (peer.ours4, 99))
        found = flow("a")
        assert flow("b")["direct"] == 0
        assert found["full" if is_real_time() else "early"] > 100
        assert found["direct"] + found["waiting"] + found["full"] + found["early"] >= 299


@inside(modules=FLOW)
def test_exempt_ports_are_no_flows() -> None:
    peer = Peer()
    receiver, sender = udp(peer.ours4), peer.udp()
    with flows("a proto=udp rate=1k burst=100 queue=100"):
        set_knob("flow/exempt", port_of(receiver))
        for _ in range(20):
            sender.sendto(b"x" * 100, receiver.getsockname())
        assert flow("a")["direct"] + flow("a")["waiting"] + flow("a")["full"] == 0
        set_knob("flow/exempt", "68,546")
        for _ in range(20):
            sender.sendto(b"x" * 100, receiver.getsockname())
        wait_for(lambda: flow("a")["full"] + flow("a")["early"] > 10)


@inside(modules=FLOW)
def test_memory_is_bounded_over_all_flows() -> None:
    peer = Peer()
    receiver, sender = udp(peer.ours4), peer.udp()
    set_knob("flow/memory", 1)
    with flows(*(f"a{n} sport={2000 + n} rate=1k burst=100 queue=1m" for n in range(4))):
        for n in range(4):
            sock = peer.udp(port=2000 + n)
            for _ in range(1000):
                sock.sendto(b"x" * 1000, receiver.getsockname())
        assert sum(flow(f"a{n}")["memory"] for n in range(4)) > 100
        assert metric("packetflow_flow_waiting_bytes")[""] <= 1 << 20
    set_knob("flow/memory", 64)
    sender.close()


@inside(modules=FLOW)
def test_who_fills_the_memory_leaves_some_to_others() -> None:
    peer = Peer()
    receiver, sender = udp(peer.ours4), peer.udp()
    set_knob("flow/memory", 1)
    with flows("a sport=2000 rate=1k burst=100 queue=1m", "b default rate=1k burst=100 queue=1m"):
        sock = peer.udp(port=2000)
        for _ in range(2000):
            sock.sendto(b"x" * 1000, receiver.getsockname())
        assert flow("a")["memory"] > 100
        for _ in range(50):
            sender.sendto(b"x" * 1000, receiver.getsockname())
        assert flow("b")["memory"] == 0
        assert flow("b")["waiting"] >= 49
    set_knob("flow/memory", 64)


@inside(modules=FLOW, timeout=120)
def test_very_many_flows_of_which_each_has_its_packets() -> None:
    peer = Peer()
    receiver, sender = udp(peer.ours4), peer.udp()
    number = 20_000
    began = time.monotonic()
    change(
        "replace",
        *(f"add f{n} src=10.{n >> 8}.{n & 255}.0/24 dport=7 rate=1m" for n in range(number // 2)),
        *(f"add g{n} dport={n + 1} rate=1m" for n in range(number // 2)),
    )
    assert metric("packetflow_flow_flows")[""] == number
    assert time.monotonic() - began < 30
    sender.sendto(b"x", receiver.getsockname())
    for port in (1, 77, 9999):
        sender.sendto(b"x", (peer.ours4, port))
    found = {line.split()[0]: line.split()[5] for line in FLOWS.read_text().splitlines()[1:]}
    assert all(found[f"g{port - 1}"] == "1" for port in (1, 77, 9999))
    assert sum(int(direct) for direct in found.values()) - (port_of(receiver) <= 10_000) == 3
    assert Path(TABLE).read_text().count("\n") == number
    change("replace")
