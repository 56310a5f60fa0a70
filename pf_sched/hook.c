// SPDX-License-Identifier: GPL-2.0-only
/*
 * The hook: a socket tells its process that there is something to read.
 *
 * A probe on sock_def_readable(), which the protocols call with the packet already
 * queued and the process not yet woken: a boost that is made here is in time for
 * the very wakeup it is for. No run-queue lock is held, so the scheduler may be
 * called. The function serves sockets of all families; ours are looked for first.
 *
 * It runs for each packet that is delivered, so it is armed only while a CPU is under
 * pressure or has no time to spare, and for a while after, as arming has its price. Who
 * fills meanwhile is found where its first packet is dropped, by a tracepoint that costs
 * nothing while nobody drops; and so is a thread that runs too little to let another
 * packet in.
 *
 * Context: softirq, or process with softirqs off; preemption off. The caller holds
 * the socket.
 */
#include <linux/in.h>
#include <linux/tracepoint.h>
#include <net/inet_sock.h>
#include <net/tcp.h>

#include "../common/compat/compat.h"
#include "sched.h"

#define LATELY	(10 * HZ)

static DEFINE_PER_CPU(u64, below);
static u32 last_on;	/* jiffies */

/*
 * Not all that a UDP socket is charged waits for the process. What TCP lets its peer
 * send is less than its buffer, and when that is used up the peer has to stop: so of TCP
 * the bytes in order are held against these and what may still come.
 */
static u32 waiting(const struct sock *sk, u32 *size)
{
	u32 bytes;

	if (sk->sk_protocol == IPPROTO_UDP) {
		*size = READ_ONCE(sk->sk_rcvbuf);
		return pflow_udp_waiting(sk);
	}
	/* Read while others work on it, what was taken may seem more than what came. */
	bytes = max_t(s32, READ_ONCE(tcp_sk(sk)->rcv_nxt) - READ_ONCE(tcp_sk(sk)->copied_seq), 0);
	*size = bytes + tcp_receive_window(tcp_sk(sk));
	return bytes;
}

/**
 * boost_fills() - is a socket's buffer fuller than the threshold?
 * @sk: UDP or TCP; the caller holds it
 *
 * Context: any. Return: whether it is.
 */
bool boost_fills(const struct sock *sk)
{
	u32 size, bytes = waiting(sk, &size);

	return pflow_fills(bytes, size, sched_knob(SCHED_KNOB_THRESHOLD));
}

/* By type too: a raw socket bears the protocol and is no UDP socket. */
static bool ours(const struct sock *sk)
{
	if (sk->sk_family != AF_INET && sk->sk_family != AF_INET6)
		return false;
	return (sk->sk_type == SOCK_DGRAM && sk->sk_protocol == IPPROTO_UDP) ||
	       (sk->sk_type == SOCK_STREAM && sk->sk_protocol == IPPROTO_TCP);
}

/* sock_def_readable(struct sock *sk) */
static int on_data_ready(struct kprobe *kp, struct pt_regs *regs)
{
	struct sock *sk = (struct sock *)regs_get_kernel_argument(regs, 0);

	if (!ours(sk))
		return 0;
	if (!boost_fills(sk)) {
		this_cpu_inc(below);
		return 0;
	}
	boost_consider(sk);
	return 0;
}

/* Of UDP-Lite too; on 6.1 of IPv4 alone. */
static void on_full(PFLOW_UDP_FAIL_ARGS)
{
	if (rc == -ENOMEM && ours(sk) && boost_fills(sk))
		boost_consider(sk);
}

static struct tracepoint *full;

static struct pflow_probe rows[] = {
	{ "sock_def_readable", on_data_ready, PFLOW_PROBE_WATCHED, true,
	  "nobody whose buffer fills can be found" },
};

static struct pflow_probes probes = {
	.owner = THIS_MODULE, .rows = rows, .nr_rows = ARRAY_SIZE(rows),
};

/**
 * hook_pressure() - arm the hook, or not
 * @on: a CPU is under pressure or has no time to spare
 *
 * Context: process, may sleep; told every now and then.
 */
void hook_pressure(bool on)
{
	if (on)
		last_on = jiffies;
	pflow_probes_arm(&probes, on || (u32)jiffies - last_on < LATELY);
}

static void unwatch_full(void)
{
	if (!full)
		return;
	tracepoint_probe_unregister(full, on_full, NULL);
	tracepoint_synchronize_unregister();
}

/**
 * hook_setup() - register the hook, not armed yet
 *
 * Context: process, may sleep. Return: 0 or a negative error.
 */
int hook_setup(void)
{
	int err;

	last_on = (u32)jiffies - LATELY;
	full = pflow_tracepoint_find("udp_fail_queue_rcv_skb");
	if (!full)
		pr_warn("no tracepoint udp_fail_queue_rcv_skb: who fills is found a little later\n");
	err = full ? tracepoint_probe_register(full, on_full, NULL) : 0;
	if (err)
		return err;
	err = pflow_probes_add(&probes);
	if (err)
		unwatch_full();
	return err;
}

/**
 * hook_teardown() - unregister it
 *
 * Context: process, may sleep. It runs nowhere any more on return.
 */
void hook_teardown(void)
{
	pflow_probes_remove(&probes);
	unwatch_full();
}

/**
 * hook_metrics() - what passed the hook, for machines
 * @m: where to
 *
 * Context: process.
 */
void hook_metrics(struct seq_file *m)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += per_cpu(below, cpu);
	seq_printf(m, "# TYPE packetflow_sched_below counter\n"
		   "# HELP packetflow_sched_below Packets that found their buffer no fuller than the threshold.\n"
		   "packetflow_sched_below_total %llu\n", sum);
}
