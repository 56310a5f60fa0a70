# SPDX-License-Identifier: GPL-2.0-only
"""pf_flow: a flow's packets come by several devices and CPUs, or have been encrypted."""

import os
import subprocess
import time
from contextlib import ExitStack

from inside import Skip, inside, mark
from inside.cpus import sending_on
from inside.flows import FLOW, IP_UDP, change, flow, flows, real_time, server_threads
from inside.net import Peer, datagram, drain, ip, port_of, udp
from inside.suite import setting, wait_for

pytestmark = mark.ends

RATE, BURST, SIZE = 800_000, 10_000, 100  # bits a second, bytes; sending_on() sends so long ones
SECONDS = 4
MANY = 80

STATE = (
    "xfrm state add src {} dst {} proto esp spi {} mode transport"
    " auth 'hmac(sha256)' 0x{} enc 'cbc(aes)' 0x{}\n"
)


def gone() -> int:
    found = flow("a")
    return found["direct_bytes"] + found["deferred_bytes"]


@mark.cpus(4)
@mark.oldest
@inside(modules=FLOW, timeout=60)
def test_one_rate_holds_over_all_devices_and_cpus() -> None:
    """Two devices, and on each CPU somebody who sends far more than the flow may."""
    peers = Peer(1), Peer(2)
    receiver = udp("0.0.0.0", rcvbuf=1 << 20)
    port = receiver.getsockname()[1]
    with (
        flows(f"a dport={port} proto=udp rate={RATE} burst={BURST} queue=20000"),
        ExitStack() as stack,
    ):
        for cpu in range(4):
            peer = peers[cpu % 2]
            worker = sending_on(peer, cpu, [(peer.ours4, port)] * 20, 0.005)
            stack.callback(worker.end)
        time.sleep(0.5)
        began, before = time.monotonic(), gone()
        time.sleep(SECONDS)
        counted, ended = gone() - before, time.monotonic()
        from_each = {peer.theirs4: 0 for peer in peers}
        end = time.monotonic() + 1
        while time.monotonic() < end:
            _, (address, _) = receiver.recvfrom(2000)
            from_each[address] += 1
    rate = RATE / 8 * (ended - began)
    assert 0.9 * rate < counted < rate + BURST + SIZE + IP_UDP, (counted, rate)
    assert min(from_each.values()) > 0.1 * sum(from_each.values()), from_each


@mark.cpus(4)
@mark.oldest
@inside(modules=FLOW, pinned=False)
def test_weights_hold_over_devices_and_cpus() -> None:
    """Both wait for tokens, and then have enough before their server can run."""
    light, heavy = Peer(1), Peer(2)
    receiver = udp("0.0.0.0", rcvbuf=4 << 20)
    port = port_of(receiver)
    rows = [f"a dev={light.device} dport={port}", f"b dev={heavy.device} dport={port} weight=3"]
    with setting("flow/server", "thread", "softirq"):
        (thread,) = server_threads()
        os.sched_setaffinity(thread, {0})
        with flows(*(f"{row} rate=8 burst=1 queue=200000" for row in rows)):
            for cpu, peer in (1, light), (2, heavy):
                os.sched_setaffinity(0, {cpu})
                sender = peer.udp()
                for number in range(MANY):
                    sender.sendto(datagram(number, 100), (peer.ours4, port))
            wait_for(lambda: [flow(name)["waiting"] for name in "ab"] == [MANY - 1] * 2)
            assert len(drain(receiver)) == 2
            os.sched_setaffinity(0, {0})
            with real_time(0, 50):
                change("replace", *(f"add {row} rate=100g queue=200000" for row in rows))
            wait_for(lambda: sum(flow(name)["waiting"] for name in "ab") == 0)
            came = [receiver.recvfrom(2000)[1][0] for _ in range(40)]
    assert 28 <= came.count(heavy.theirs4) <= 32, came


def encrypt(peer: Peer) -> None:
    """Between this machine and the peer, so that nothing is received here that was not."""
    keys = "11" * 32, "22" * 16
    states = STATE.format(peer.theirs4, peer.ours4, "0x100", *keys)
    states += STATE.format(peer.ours4, peer.theirs4, "0x200", *keys)
    policy = "xfrm policy add src {} dst {} dir {} tmpl proto esp mode transport\n"
    there, back = (peer.theirs4, peer.ours4), (peer.ours4, peer.theirs4)
    ip(states + policy.format(*there, "in") + policy.format(*back, "out"))
    with peer:
        ip(states + policy.format(*there, "out") + policy.format(*back, "in"))


@mark.parametrize("which", ["proto=esp", "proto=udp"])
@inside(modules=FLOW)
def test_what_was_encrypted_is_still_known_to_have_been(which: str) -> None:
    """Held back before it is decrypted, or after: then its socket must accept it as such."""
    peer = Peer()
    try:
        encrypt(peer)
    except subprocess.CalledProcessError:
        raise Skip("this kernel has no IPsec") from None
    receiver, sender = udp(peer.ours4), peer.udp()
    with flows(f"a {which} dst={peer.ours4} rate=80k burst=500 queue=20000"):
        for number in range(20):
            sender.sendto(datagram(number, 100), receiver.getsockname())
        wait_for(lambda: flow("a")["waiting"] == 0)
        assert flow("a")["deferred"] > 10
    assert drain(receiver) == [datagram(number, 100) for number in range(20)]
