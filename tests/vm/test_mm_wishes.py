# SPDX-License-Identifier: GPL-2.0-only
"""pf_mm: sizes that programs and administrators wish for are respected."""

import os
import random
import socket
import subprocess
import time
from contextlib import suppress

from inside import inside, mark
from inside.growing import FULL, MM, await_size, given_back, granted, knobs, limit, owner
from inside.net import sysctl
from inside.suite import insmod, metric, rmmod, wait_for

pytestmark = mark.ends


@inside(modules=MM)
def test_a_size_that_the_program_set_before_stays() -> None:
    with owner() as one:
        size = one.ask("set", 30_000)
        assert size == 60_000
        one.flood(FULL)
        time.sleep(0.5)
        assert one.size() == size
        assert granted() == 0


@mark.parametrize("wish", [5_000, 30_000, 200_000])
@inside(modules=MM)
def test_a_size_that_the_program_sets_later_stays(wish: int) -> None:
    with owner() as one:
        one.flood(FULL)
        await_size(one, limit(0))
        before = given_back()["changed"]
        size = one.ask("set", wish)
        assert size == 2 * wish
        wait_for(lambda: granted() == 0, 2)
        assert given_back()["changed"] == before + 1
        one.flood(FULL)
        rmmod("pf_mm")
        assert one.size() == size
        insmod("pf_mm")
        one.flood(FULL)
        time.sleep(0.3)
        assert one.size() == size


@inside(modules=MM)
def test_the_very_size_that_it_has_grown_to_is_the_programs_when_it_sets_it() -> None:
    with owner() as one:
        own = one.size()
        one.flood(own * 3 // 4 // one.truesize())
        assert one.size() == 2 * own
        assert one.ask("set", own) == 2 * own
        wait_for(lambda: granted() == 0, 2)
        rmmod("pf_mm")
        assert one.size() == 2 * own
        insmod("pf_mm")


@inside(modules=MM)
def test_a_size_is_not_kept_by_locking_it() -> None:
    """Not beyond what the program could have set; that it may keep."""
    with owner() as one:
        own = one.size()
        with sysctl("net.core.rmem_max", str(own // 2)):
            one.flood(FULL)
            await_size(one, limit(0))
            before = given_back()
            assert one.ask("lock", 2) == limit(0)
            await_size(one, own, 2)
            wait_for(lambda: granted() == 0, 2)
            assert given_back()["exempt"] == before["exempt"] + 1
            assert given_back()["changed"] == before["changed"]
        one.ask("lock", 0)
        one.numbers()
        one.flood(FULL)
        await_size(one, limit(0))
        with sysctl("net.core.rmem_max", str(limit(0) // 2)):
            one.ask("lock", 2)
            wait_for(lambda: granted() == 0, 2)
            assert given_back()["changed"] == before["changed"] + 1
            assert one.size() == limit(0)


@mark.cpus(2)
@inside(timeout=120, modules=MM, pinned=False)
def test_a_size_that_the_program_sets_meanwhile_stays() -> None:
    chance = random.Random(1)
    for _ in range(60):
        with owner() as one:
            child = os.fork()
            if not child:
                with suppress(OSError):
                    one.flood(FULL)
                os._exit(0)
            time.sleep(chance.random() / 100)
            size = one.ask("set", chance.randrange(5_000, 100_000))
            os.waitpid(child, 0)
            time.sleep(0.25)
            assert one.size() == size
    wait_for(lambda: granted() == 0)


@inside(modules=MM)
def test_a_locked_size_can_be_overridden_and_is_given_back() -> None:
    with owner() as one:
        size = one.ask("set", 30_000)
        with knobs(override_locked=1):
            one.flood(FULL)
            await_size(one, limit(0))
            assert granted() == limit(0) - size
        await_size(one, size, 2)
        assert granted() == 0
        one.numbers()
        with knobs(override_locked=1):
            one.flood(FULL)
            await_size(one, limit(0))
            rmmod("pf_mm")
            assert one.size() == size
            insmod("pf_mm", override_locked=1)


@inside(modules=MM)
def test_without_a_budget_rmem_max_is_obeyed() -> None:
    with sysctl("net.core.rmem_max", "150000"), knobs(budget=0), owner(-20) as one:
        one.flood(FULL)
        await_size(one, 300_000)
        one.flood(FULL)
        assert one.size() == 300_000
        with sysctl("net.core.rmem_max", "130000"):
            await_size(one, 260_000, 2)
        one.numbers()
        with sysctl("net.core.rmem_max", "4000000"):
            one.flood(FULL)
            await_size(one, limit(-20))


@inside(modules=MM)
def test_an_exempt_port_is_left_alone() -> None:
    with owner() as one:
        own = one.size()
        with knobs(exempt=f"1-5,{one.to[1]}"):
            one.flood(FULL)
            assert one.size() == own
        one.numbers()
        one.flood(FULL)
        await_size(one, limit(0))
        before = given_back()["exempt"]
        with knobs(exempt=one.to[1]):
            await_size(one, own, 2)
            assert given_back()["exempt"] == before + 1
            assert granted() == 0


@inside(modules=MM)
def test_sockets_of_the_kernel_are_left_alone() -> None:
    """A tunnel's, say, that nobody decapsulates fast enough; it has no file and no owner."""
    before = metric("packetflow_mm_grown_total")
    subprocess.run(
        ["ip", "link", "add", "vx", "type", "vxlan", "id", "7", "dstport", "4789", "dev", "lo"],
        check=True,
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(FULL):
            sender.sendto(bytes(200), ("127.0.0.1", 4789))
    assert metric("packetflow_mm_grown_total") == before
