# SPDX-License-Identifier: GPL-2.0-only
"""Batches: under overload a device's interrupts are put off, unless somebody minds."""

import os
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from inside import TESTS, inside, mark
from inside.napi import Values, own_sysfs, put_off, values
from inside.net import SMALL, Namespace, Peer, Worker, ip, port_of, udp
from inside.suite import ROOT, set_knob, setting
from rig.guest import Guest
from rig.traffic import LIGHT, Flood, Flow, sender

pytestmark = mark.ends

BATCHED, ALONE = (250_000, 2), (0, 0)
SOON = 15.0  # seconds; on time it is one or two
LONG = 2.5  # it would have begun long ago
SEEN = 0.5  # it may begin before it is known who minds, and then ends
SO_BUSY_POLL = 46
FLOOD, TIMES = 0.03, 8  # seconds, from look to look; a look leaves the CPU idle for a moment
SIZE = 256
# A receiver of nice 19 that takes far too long for each packet, whatever the host.
PORT, PPS, LOOPS, LOWEST, EVER = 5001, 500, 20_000_000, 19, 600.0


class Stream:
    """A flood from another machine to a socket that nobody reads, which keeps this CPU busy and
    under pressure, and what else is done again and again meanwhile."""

    def __init__(self, also: Callable[["Stream"], object] = lambda _: None) -> None:
        own_sysfs()
        self.peer = Peer()
        # Only so packets of a pair of devices come by NAPI.
        with self.peer:
            subprocess.run(["ethtool", "-K", "eth0", "tso", "off"], check=True)
        subprocess.run(["ethtool", "-K", self.peer.device, "gro", "on"], check=True)
        self.full = udp(self.peer.ours4, rcvbuf=SMALL)
        self.out = self.peer.udp()
        self._to = self.peer.ours4, port_of(self.full)
        self._also = partial(also, self)
        # What was known before of who receives here is forgotten.
        set_knob("enable", 0)
        set_knob("enable", 1)

    def again(self) -> None:
        for _ in range(TIMES):
            end = time.monotonic() + FLOOD
            while time.monotonic() < end:
                with suppress(OSError):  # the device may be gone
                    self.out.sendto(b"x" * SIZE, self._to)
            self._also()

    def values(self) -> Values:
        (found,) = values(self.peer.device)
        return found

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SOON
        while not condition():
            assert time.monotonic() < deadline, (self.values(), (ROOT / "status").read_text())
            self.again()

    def until_batched(self) -> None:
        self.until(lambda: self.values() == BATCHED)

    def during(self, seconds: float) -> set[Values]:
        """All values that were seen meanwhile."""
        end, found = time.monotonic() + seconds, set()
        while time.monotonic() < end:
            self.again()
            found.add(self.values())
        return found


def told() -> str:
    """Whose interrupts are put off, by status."""
    lines = (ROOT / "status").read_text().splitlines()
    return "\n".join(line for line in lines if line.startswith("batches"))


@inside()
def test_a_value_of_the_administrators_is_left_as_it_is() -> None:
    stream = Stream()
    for own in ((20_000, 1), (20_000, 0), (0, 3)):
        put_off(stream.peer.device, *own)
        assert stream.during(LONG) == {own}
        assert told() == ""
    put_off(stream.peer.device, *ALONE)
    stream.until_batched()


@inside()
def test_what_an_administrator_sets_meanwhile_stays() -> None:
    stream = Stream()
    for own, then in {(20_000, 1): (20_000, 1), (20_000, 2): (20_000, 2), (0, 2): ALONE}.items():
        stream.until_batched()
        put_off(stream.peer.device, *own)
        with setting("batch_us", "0", "250"):
            stream.until(lambda: told() == "")
            assert stream.values() == then
        put_off(stream.peer.device, *ALONE)


@inside()
def test_status_tells_of_the_readers_own_devices() -> None:
    stream = Stream()
    stream.until_batched()
    assert told() == f"batches: {stream.peer.device} every 250 us"
    with stream.peer:
        assert told() == ""
    set_knob("batch_us", 100)
    stream.until(lambda: stream.values() == (100_000, 2))
    assert told() == f"batches: {stream.peer.device} every 100 us"
    set_knob("batch_us", 250)


@mark.parametrize("how", ["removed", "moved", "its namespace ends"])
@inside()
def test_a_device_that_goes_is_let_go(how: str) -> None:
    """Whoever removes one waits for all that hold it."""
    stream = Stream()
    stream.until_batched()
    device, other = stream.peer.device, Namespace()
    if how == "removed":
        ip(f"link del {device}")
    else:
        ip(f"link set {device} netns {other.path}")
    if how == "moved":
        with other:
            own_sysfs()
            ip(f"link set {device} up")
            deadline = time.monotonic() + SOON
            while values(device) != {ALONE}:
                assert time.monotonic() < deadline, values(device)
                time.sleep(0.1)
            ip(f"link del {device}")
    other.close()
    stream.peer.close()
    # Another of the same name, and at the same place of memory perhaps.
    again = Stream()
    again.until_batched()


def real_time() -> None:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def polling(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, SO_BUSY_POLL, 1)


@mark.parametrize("who", ["real-time", "polls", "TCP"])
@inside()
def test_nobody_who_wants_each_packet_at_once_waits_for_it(who: str) -> None:
    def ask(stream: Stream) -> None:
        if who == "TCP":
            asks.send(b"?")
            assert asks.recv(1) == b"!"
        else:
            stream.out.sendto(b"x", answers.getsockname())
            worker.finished()
            worker.begin()

    stream = Stream(ask)
    address = (stream.peer.ours4, 5400)
    if who == "TCP":
        listener = socket.create_server(address)
        with stream.peer:
            asks = socket.create_connection(address)
        connection, _ = listener.accept()

        def answer() -> None:
            while connection.recv(1):
                connection.send(b"!")

        worker = Worker(answer)
        worker.begin()
    else:
        answers = udp(*address)
        if who == "polls":
            polling(answers)

        def receive() -> None:
            if who == "real-time":
                real_time()
            answers.recv(1)

        worker = Worker(receive)
        worker.begin()
    stream.during(SEEN)
    assert stream.during(LONG) == {ALONE}
    assert "under pressure" in (ROOT / "status").read_text()
    assert told() == ""
    worker.end()


@inside()
def test_who_polls_ends_no_batches_but_of_what_he_is_sent_by() -> None:
    """Anybody may poll."""
    polls, out = udp(), udp()
    polling(polls)

    def receive(_: Stream) -> None:
        out.sendto(b"x", polls.getsockname())
        polls.recv(1)

    stream = Stream(receive)
    stream.until_batched()
    assert stream.during(LONG) == {BATCHED}


def await_eth0(guest: Guest, wanted: Values, within: float = SOON) -> None:
    wait = ["python3", "-m", "inside.napi", "eth0", *map(str, wanted), str(within)]
    guest.run(["env", "-C", str(TESTS), *wait])


def test_it_lasts_as_long_as_the_overload_and_the_suite(guest: Guest) -> None:
    """A real device with a real sender at its other end."""
    receiver, flows = LIGHT.receiver(guest, PORT, LOWEST, LOOPS), [Flow(PORT, PPS)]
    guest.load("pf_filter")
    await_eth0(guest, ALONE, 0)
    flood = Flood(flows, SIZE, EVER, sender(guest))
    for knob, off, on in (("batch_us", "0", "250"), ("enable", "0", "1")):
        await_eth0(guest, BATCHED)
        guest.write(f"/proc/packetflow/{knob}", off)
        await_eth0(guest, ALONE)
        guest.write(f"/proc/packetflow/{knob}", on)
    await_eth0(guest, BATCHED)
    flood.stop()
    await_eth0(guest, ALONE)

    flood = Flood(flows, SIZE, EVER, sender(guest))
    await_eth0(guest, BATCHED)
    guest.unload()
    await_eth0(guest, ALONE, 0)

    guest.load("pf_filter")
    await_eth0(guest, BATCHED)
    guest.run("ip link set eth0 down")  # its values are kept somewhere else meanwhile
    guest.unload()
    flood.stop()
    guest.run("ip address flush dev eth0 && ip -batch /run/link")
    await_eth0(guest, ALONE, 0)
    receiver.finish()
