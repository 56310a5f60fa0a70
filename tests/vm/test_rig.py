# SPDX-License-Identifier: GPL-2.0-only
"""The rig itself: without these, a pass elsewhere would mean little."""

import json
import signal
import subprocess

import pytest
from experiments.arms import Arm
from experiments.measure import Load, Run, measure
from rig.complaints import complaints
from rig.guest import CommandError, Guest, GuestError
from rig.kernels import REPO, kernel
from rig.link import GUEST4, GUEST6, TAP
from rig.programs import programs
from rig.shared import Machines
from rig.traffic import LIGHT

pytestmark = pytest.mark.oldest

A_WARNING = """\
[   12.345678] WARNING: CPU: 0 PID: 1 at net/core/dev.c:1 dev_open+0x1/0x2
[   12.345679] Call Trace:
"""


@pytest.mark.cpus(1, 4)
def test_boots_the_kernel_asked_for(guest: Guest) -> None:
    assert guest.run("uname -r").out.strip() == guest.kernel.version
    assert int(guest.run("nproc").out) == guest.cpus


@pytest.mark.cpus(4)
def test_no_cpu_executes_what_another_one_has_overwritten(guest: Guest) -> None:
    """Or kernels that are probed while their CPUs are busy die of it now and then."""
    told = json.loads(guest.run([str(programs() / "rewrite"), "10"]).out)
    assert told["changes"] > 100
    assert told["stale"] == 0


@pytest.mark.parametrize("address", [GUEST4, GUEST6])
def test_the_network_reaches_the_guest(guest: Guest, address: str) -> None:
    subprocess.run(["ping", "-c", "3", "-i", "0.1", "-W", "5", address], check=True)


@pytest.mark.cpus(4)
def test_packets_come_by_several_queues(guest: Guest) -> None:
    queues = guest.run("ls /sys/class/net/eth0/queues").out.split()
    assert len([q for q in queues if q.startswith("rx-")]) == guest.queues == 4


def test_a_program_runs_as_told(guest: Guest) -> None:
    script = "nice; ps -o sid= $$; echo $$; echo to-err >&2; exit 3"
    process = guest.spawn(script, nice=7)
    result = process.wait()
    nice, session, own = result.out.split()
    assert (result.rc, result.err, nice, session) == (3, "to-err\n", "7", own)
    assert int(own) == process.pid


def test_a_program_is_signalled_with_its_children(guest: Guest) -> None:
    process = guest.spawn("sleep 987 & sleep 987")
    assert process.alive()
    process.signal(signal.SIGKILL)
    assert process.wait().rc == -signal.SIGKILL
    assert not process.alive()
    assert guest.run("pgrep -xf 'sleep 987'", check=False).rc == 1


def test_a_program_that_fails_is_an_error(guest: Guest) -> None:
    with pytest.raises(CommandError, match="no-such-program"):
        guest.run(["no-such-program"])


def test_a_program_that_does_not_end_is_an_error(guest: Guest) -> None:
    with pytest.raises(GuestError, match="no end after"):
        guest.run("sleep 60", timeout=0.5)


def test_long_output_arrives_whole(guest: Guest) -> None:
    assert len(guest.run("head -c 3000000 /dev/zero | tr '\\0' x").out) == 3_000_000


def test_files_are_read_and_written(guest: Guest) -> None:
    guest.write("/tmp/file", "text\n")
    assert guest.read("/tmp/file") == "text\n"
    with pytest.raises(FileNotFoundError):
        guest.read("/no/such/file")
    with pytest.raises(OSError, match="Invalid argument"):
        guest.write("/proc/sys/net/core/rmem_max", "words")


def test_the_guest_cannot_write_to_what_it_shares(guest: Guest) -> None:
    guest.run("echo changed > /etc/hostname")
    assert guest.run("cat /etc/hostname").out == "changed\n"
    with open("/etc/hostname") as host:
        assert host.read() != "changed\n"
    assert guest.run(["touch", str(REPO / "touched")], check=False).rc != 0


def test_a_complaint_of_the_kernel_is_found(guest: Guest) -> None:
    with guest.expecting(""):
        with guest.expecting("made by a test"):
            guest.write("/dev/kmsg", "<4>WARNING: CPU: 0 not expected\n")
            guest.write("/dev/kmsg", "<4>WARNING: CPU: 0 made by a test\n")
        guest.write("/dev/kmsg", "<4>WARNING: CPU: 0 made by a test later\n")
        found = guest.complaints()
    assert [line.split("CPU: 0 ")[1] for line in found] == ["not expected", "made by a test later"]
    assert not guest.complaints()


def test_leaving_a_guest_that_complained_is_an_error() -> None:
    with pytest.raises(GuestError, match="complained"), Guest(kernel("6.1"), link=False) as guest:
        guest.write("/dev/kmsg", "<4>BUG: made by a test\n")
        guest.run("sleep 0.2")


def test_a_guest_that_dies_is_an_error_with_its_log() -> None:
    with (
        pytest.raises(GuestError, match=r"(?s)guest died.*sysrq triggered crash"),
        Guest(kernel("6.1"), link=False) as dying,
    ):
        dying.spawn("echo c > /proc/sysrq-trigger").wait()


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: CPU: 0 PID: 1 at net/core/dev.c:1 dev_open+0x1/0x2",
        "BUG: kernel NULL pointer dereference, address: 0000000000000000",
        "Oops: 0002 [#1] PREEMPT SMP NOPTI",
        "kernel BUG at net/core/skbuff.c:113!",
        "invalid opcode: 0000 [#1] PREEMPT SMP KASAN",
        "general protection fault, probably for non-canonical address 0xdead000000000100",
        "Kernel panic - not syncing: Fatal exception",
        "BUG: KASAN: slab-use-after-free in pflow_table_find+0x1/0x2",
        "BUG pflow_sock (Not tainted): Objects remaining in pflow_sock on __kmem_cache_shutdown()",
        "UBSAN: shift-out-of-bounds in common/policy/policy.c:1:2",
        "kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
        "kmemleak: Kernel memory leak detector disabled",
        "ODEBUG: Out of memory. ODEBUG disabled",
        "ODEBUG: free active (active state 0) object: 00 object type: timer_list hint: tick",
        "list_add corruption. prev->next should be next, but was 0.",
        "BUG: KCSAN: data-race in pflow_sock_get [pf_common] / udp_recvmsg",
        "BUG: KCSAN: data-race in grant_refill+0x1/0x2 [pf_mm]",
        "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
        "rcu: rcu_preempt kthread starved for 5252 jiffies! g1 f0x0 RCU_GP_WAIT_FQS(5)",
        "BUG: workqueue lockup - pool cpus=0 node=0 flags=0x0 nice=0 stuck for 31s!",
        "Watchdog detected hard LOCKUP on cpu 0",
        "INFO: trying to register non-static key.",
        "INFO: lockdep is turned off.",
        "BUG: MAX_LOCKDEP_ENTRIES too low!",
        "WARNING: possible recursive locking detected",
        "rcu: INFO: rcu_preempt self-detected stall on CPU",
        "INFO: task rmmod:123 blocked for more than 120 seconds.",
        "watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [rmmod:123]",
        "WARNING: possible circular locking dependency detected",
        "WARNING: suspicious RCU usage",
        "BUG: sleeping function called from invalid context at mm/slab.h:1",
        "refcount_t: underflow; use-after-free.",
        "unregister_netdevice: waiting for lo to become free. Usage count = 2",
    ],
)
def test_the_scanner_knows(line: str) -> None:
    assert complaints(f"[    1.000000] {line}\n") != []


def test_the_scanner_passes_what_is_harmless() -> None:
    log = """\
[    0.100000] Kernel command line: console=ttyS0 panic_on_oops=1 oops=panic
[    0.200000] rcu: Preemptible hierarchical RCU implementation.
[    0.300000] Warning: unsafe to use, see Documentation
[    0.400000] ODEBUG: selftest passed
[    0.500000] kcsan: enabled early
[    8.000000] BUG: KCSAN: data-race in tick_nohz_stop_tick / tick_sched_do_timer
[    9.000000] pf_common: loading out-of-tree module taints kernel.
"""
    assert complaints(log) == []
    assert complaints(A_WARNING) == A_WARNING.splitlines()
    assert complaints(A_WARNING, {0}) == A_WARNING.splitlines()[1:]


def test_the_link_is_gone_with_its_guest(machines: Machines) -> None:
    machines.drop()
    with Guest(kernel("6.1")):
        pass
    links = subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    assert TAP not in links


@pytest.mark.full
@pytest.mark.timeout(600)
def test_counted_time_repeats_itself() -> None:
    """An overload whose clock is the guest's own: the first and all together get the same again.

    The second gets what is left over, so it differs by more than either.
    """
    load = Load(ports=(5001, 5002), nices=(0, 10), pps=28_000)

    def flood(guest: Guest) -> Run:
        return measure(guest, Arm("stock"), load, LIGHT, 1)

    with Guest(kernel("6.1"), icount=True) as guest:
        one, other = flood(guest), flood(guest)
    got = [[account.received_pps for account in run.accounts] for run in (one, other)]
    assert one.closing.socket_drops > 1000, "no overload"
    # The sender's kernel may say something of its own (multicast) that nobody takes.
    assert all(-3 < run.closing.unaccounted <= 0 for run in (one, other))
    assert got[0][0] == pytest.approx(got[1][0], rel=0.05)
    assert sum(got[0]) == pytest.approx(sum(got[1]), rel=0.05)
    assert got[0][0] > 1.5 * got[0][1]
