// SPDX-License-Identifier: GPL-2.0-only
/*
 * The hook: a socket tells its process that there is something to read.
 *
 * A probe on sock_def_readable(), which the protocols call with the packet already
 * queued and the process not yet woken: a boost that is made here is in time for
 * the very wakeup it is for. No run-queue lock is held, so the scheduler may be
 * called. The function serves sockets of all families; ours are looked for first.
 *
 * From 6.3 on that function has a tracepoint. Before, ftrace calls us at its entry, or a kprobe
 * does. Each packet that is delivered passes it, so the hook stays attached. While no CPU is under
 * pressure or busy it only reads a flag. A second tracepoint runs where a full socket drops a
 * packet. It finds a thread, too, that runs so little that no packet can be queued any more. It
 * costs nothing while no packet is dropped.
 *
 * Context: softirq, or process, with softirqs off or, of TCP, on; preemption may be on. The
 * caller holds the socket, or has it under RCU.
 */
#include <linux/hash.h>
#include <linux/in.h>
#include <net/inet_sock.h>
#include <net/tcp.h>

#include "../common/compat/compat.h"
#include "../common/sample.h"
#include "sched.h"

#define PLACES_BITS	5
#define PLACE		2	/* sockets; one more, and each would ask for every packet */

#define REFUSED_FOR	max(msecs_to_jiffies(16), 1)	/* so long nobody asks again */

/* A socket that a boost was asked for: compared, never followed. */
struct asked {
	const struct sock *sk;
	u32 until;	/* jiffies; before, it is not asked for again */
};

/* By the sockets' hashes; small, as all modules share a few KiB for such data. */
static DEFINE_PER_CPU(struct asked [1 << PLACES_BITS][PLACE], asked);
static DEFINE_PER_CPU(u32, delivered);
static DEFINE_PER_CPU(u32, refused);
static DEFINE_PER_CPU(u64, below);
static bool wanted __read_mostly;

/*
 * How much waits for the process, and of how much. Not all that a UDP socket is charged waits. TCP
 * lets its peer send less than its buffer, and the peer has to stop when that is used up. So of TCP
 * the bytes in order wait, and its size is those bytes and what may still come.
 */
static u32 sock_waiting(const struct sock *sk, u32 *size)
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

static bool sock_fills(const struct sock *sk)
{
	u32 size, bytes = sock_waiting(sk, &size);

	return pflow_fills(bytes, size, sched_knob(SCHED_KNOB_THRESHOLD));
}

/* Where pf_filter looks at packets it finds a queue that stands long before the buffer is full. */
static bool sock_is_late(const struct sock *sk)
{
	const struct pflow_sock *entry;
	bool found;

	if (sk->sk_protocol != IPPROTO_UDP)
		return false;
	rcu_read_lock();
	entry = pflow_sock_find(sk);
	found = entry && pflow_sock_late(entry);
	rcu_read_unlock();
	return found;
}

/**
 * boost_wanted() - should this socket's receiver run sooner?
 * @sk: UDP or TCP; the caller holds it
 *
 * The paper's condition (b), a buffer fuller than the threshold; or its packets wait long.
 *
 * Context: any. Return: whether it should.
 */
bool boost_wanted(const struct sock *sk)
{
	return sock_fills(sk) || sock_is_late(sk);
}

/* By type too: a raw socket bears the protocol and is no UDP socket. */
static bool sock_is_ours(const struct sock *sk)
{
	if (sk->sk_family != AF_INET && sk->sk_family != AF_INET6)
		return false;
	return (sk->sk_type == SOCK_DGRAM && sk->sk_protocol == IPPROTO_UDP) ||
	       (sk->sk_type == SOCK_STREAM && sk->sk_protocol == IPPROTO_TCP);
}

static struct asked *hook_asked_at(const struct sock *sk)
{
	return *raw_cpu_ptr(&asked[hash_ptr(sk, PLACES_BITS)]);
}

/*
 * One packet of a socket in each jiffy speaks for all that one CPU delivers to it, and fewer where
 * a boost was refused: under overload the time for each look is taken from the receivers. Whoever
 * is migrated between two of these words asks once too often, or a little late. A word of weeks
 * ago, when jiffies were about the same, says nothing.
 */
static bool hook_asked_lately(const struct sock *sk)
{
	const struct asked *last = hook_asked_at(sk);
	unsigned int i;

	for (i = 0; i < PLACE; i++)
		if (READ_ONCE(last[i].sk) == sk)
			return READ_ONCE(last[i].until) - (u32)jiffies - 1 < REFUSED_FOR;
	return false;
}

static void hook_consider(struct sock *sk)
{
	struct asked *last = hook_asked_at(sk);
	enum considered considered = boost_consider(sk);

	if (considered == CONSIDERED_NOT)
		return;
	/* The one before gives way, unless it is this one. */
	if (READ_ONCE(last[0].sk) != sk) {
		WRITE_ONCE(last[1].sk, READ_ONCE(last[0].sk));
		WRITE_ONCE(last[1].until, READ_ONCE(last[0].until));
	}
	WRITE_ONCE(last[0].sk, sk);
	WRITE_ONCE(last[0].until,
		   (u32)jiffies + (considered == CONSIDERED_REFUSED ? REFUSED_FOR : 1));
}

/* One packet in a few is looked at: a buffer that fills is filled by many. */
static void hook_look_at(struct sock *sk)
{
	if (!pflow_sample_takes(&delivered) || !sock_is_ours(sk) || hook_asked_lately(sk))
		return;
	if (boost_wanted(sk))
		hook_consider(sk);
	else
		this_cpu_inc(below);
}

/* The tracepoint promises not to change the socket; that it fills is noted in the table. */
static void on_data_ready(void *unused, const struct sock *sk)
{
	if (READ_ONCE(wanted))
		hook_look_at((struct sock *)sk);
}

/* sock_def_readable(struct sock *sk) */
static int on_readable(struct kprobe *kp, struct pt_regs *regs)
{
	if (READ_ONCE(wanted))
		hook_look_at((struct sock *)regs_get_kernel_argument(regs, 0));
	return 0;
}

/* The same. Nothing that it does delivers a packet, so it cannot recur. */
static void notrace on_readable_hot(unsigned long ip, unsigned long parent_ip,
				    struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	if (READ_ONCE(wanted))
		hook_look_at(pflow_ftrace_argument(fregs, 0));
}

/* Of UDP-Lite too; on 6.1 of IPv4 alone. */
static void on_full(PFLOW_UDP_FAIL_ARGS)
{
	if (rc == -ENOMEM && pflow_sample_takes(&refused) && sock_is_ours(sk) &&
	    !hook_asked_lately(sk) && sock_fills(sk))
		hook_consider(sk);
}

static struct pflow_trace data_ready = { "sk_data_ready", on_data_ready };
static struct pflow_trace full = { "udp_fail_queue_rcv_skb", on_full,
				   "who fills is found a little later" };

/* Only where there is no tracepoint for it. */
static struct pflow_probe rows[] = {
	{ "sock_def_readable", on_readable, PFLOW_PROBE_ALWAYS, true,
	  "nobody whose buffer fills can be found", on_readable_hot },
};

static struct pflow_probes probes = { .owner = THIS_MODULE, .rows = rows };

/**
 * hook_note_pressure() - look for who fills, or not
 * @on: a CPU is under pressure or has no time to spare
 *
 * Context: any; told every now and then.
 */
void hook_note_pressure(bool on)
{
	WRITE_ONCE(wanted, on);
}

static void hook_detach_all(void)
{
	pflow_trace_detach(&full);
	pflow_trace_detach(&data_ready);
}

/**
 * hook_setup() - attach the hook; it looks at nothing yet
 *
 * Context: process, may sleep. Return: 0 or a negative error, and then nothing is attached.
 */
int hook_setup(void)
{
	int err;

	WRITE_ONCE(wanted, false);
	err = pflow_trace_attach(&full);
	if (!err)
		err = pflow_trace_attach(&data_ready);
	probes.nr_rows = data_ready.point ? 0 : ARRAY_SIZE(rows);
	if (!err)
		err = pflow_probes_add(&probes);
	if (err)
		hook_detach_all();
	return err;
}

/**
 * hook_teardown() - detach it
 *
 * Context: process, may sleep. It runs nowhere any more on return.
 */
void hook_teardown(void)
{
	pflow_probes_remove(&probes);
	hook_detach_all();
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
		sum += READ_ONCE(per_cpu(below, cpu));
	seq_printf(m, "# TYPE packetflow_sched_below counter\n"
		   "# HELP packetflow_sched_below Packets looked at that found their buffer no fuller than the threshold.\n"
		   "packetflow_sched_below_total %llu\n", sum);
}
