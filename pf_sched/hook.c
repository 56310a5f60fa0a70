// SPDX-License-Identifier: GPL-2.0-only
/*
 * The hook: a socket tells its process that there is something to read.
 *
 * The protocols call sock_def_readable() for that, when the packet is queued and the process not
 * woken yet. So a boost that is made here is in time for that very wakeup. No run-queue lock is
 * held, so the scheduler may be called. The function serves sockets of all families, so the hook
 * asks first whether the socket is one of ours.
 *
 * From 6.3 on that function has a tracepoint. Before, ftrace calls us at its entry, or a kprobe
 * does. Each packet that is delivered passes it, so the hook stays attached. While no CPU is under
 * pressure or busy it only reads a flag. A second tracepoint runs where a full socket drops a
 * packet. That one also finds a thread that runs so little that no packet can be queued any more.
 * It costs nothing while no packet is dropped.
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

#define PLACES_BITS	5	/* 32 places on each CPU, for sockets by their hash */
#define PLACE		2	/* sockets in a place; with a third one, each asks at each packet */

/* Jiffies for which nobody asks again after a refusal that lasts; docs/performance/steering.md */
#define REFUSED_FOR	max(msecs_to_jiffies(16), 1)

/* A socket that a boost was asked for: compared, never followed. */
struct asked {
	const struct sock *sk;
	u32 until;	/* jiffies; before, it is not asked for again */
};

/* Small, since all modules together have a few KiB for data of each CPU. */
static DEFINE_PER_CPU(struct asked [1 << PLACES_BITS][PLACE], asked);
static DEFINE_PER_CPU(u32, delivered);
static DEFINE_PER_CPU(u32, refused);
static DEFINE_PER_CPU(u64, below);
static bool wanted __read_mostly;

/*
 * How many bytes wait for the process, and how many may. A UDP socket is charged for more than
 * waits (pflow_udp_waiting()). TCP lets its peer send less than its buffer would hold, and the peer
 * has to stop when it has sent that. So of TCP the bytes that are in order count as waiting. Its
 * size is these bytes, and the window for what may still come.
 */
static u32 sock_waiting(const struct sock *sk, u32 *size)
{
	u32 bytes;

	if (sk->sk_protocol == IPPROTO_UDP) {
		*size = READ_ONCE(sk->sk_rcvbuf);
		return pflow_udp_waiting(sk);
	}
	/* Others change both meanwhile, so more may seem to be read than has come. */
	bytes = max_t(s32, READ_ONCE(tcp_sk(sk)->rcv_nxt) - READ_ONCE(tcp_sk(sk)->copied_seq), 0);
	*size = bytes + tcp_receive_window(tcp_sk(sk));
	return bytes;
}

static bool sock_fills(const struct sock *sk)
{
	u32 size, bytes = sock_waiting(sk, &size);

	return pflow_fills(bytes, size, sched_knob(SCHED_KNOB_THRESHOLD));
}

/* Are its datagrams read late? pf_filter notes that long before the buffer is full. */
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
 * hook_wants_boost() - should this socket's receiver run sooner?
 * @sk: UDP or TCP; the caller holds it
 *
 * It should if the buffer is fuller than the threshold (the paper's condition (b)), or if its
 * packets are read late.
 *
 * Context: any. Return: whether it should.
 */
bool hook_wants_boost(const struct sock *sk)
{
	return sock_fills(sk) || sock_is_late(sk);
}

/* The type is asked, too: a raw socket may have the protocol of UDP. */
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
 * A boost is asked for once in a jiffy for each socket and CPU, and more seldom after a refusal:
 * under overload the time for each look is taken from the receivers. A caller that is migrated
 * between two of these reads asks once too often, or a little late. An @until of weeks ago, when
 * jiffies were about the same, says nothing.
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
	enum considered considered = elect_consider(sk);

	if (considered == CONSIDERED_NOT)
		return;
	/* The latest socket comes first, and moves the one before it to the second place. */
	if (READ_ONCE(last[0].sk) != sk) {
		WRITE_ONCE(last[1].sk, READ_ONCE(last[0].sk));
		WRITE_ONCE(last[1].until, READ_ONCE(last[0].until));
	}
	WRITE_ONCE(last[0].sk, sk);
	WRITE_ONCE(last[0].until,
		   (u32)jiffies + (considered == CONSIDERED_REFUSED ? REFUSED_FOR : 1));
}

/* One packet in a few is looked at. That is enough, as many packets fill a buffer. */
static void hook_look_at(struct sock *sk)
{
	if (!pflow_sample_takes(&delivered) || !sock_is_ours(sk) || hook_asked_lately(sk))
		return;
	if (hook_wants_boost(sk))
		hook_consider(sk);
	else
		this_cpu_inc(below);
}

/* Its socket is const. Only a reference is taken of it; that it fills is noted in the table. */
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

/* The same, called by ftrace. Nothing that it does delivers a packet, so it cannot recur. */
static void notrace on_readable_hot(unsigned long ip, unsigned long parent_ip,
				    struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	if (READ_ONCE(wanted))
		hook_look_at(pflow_ftrace_argument(fregs, 0));
}

/* A full UDP socket drops a packet. UDP-Lite calls it, too; on 6.1 only IPv4 does. */
static void on_full(PFLOW_UDP_FAIL_ARGS)
{
	if (rc == -ENOMEM && pflow_sample_takes(&refused) && sock_is_ours(sk) &&
	    !hook_asked_lately(sk) && sock_fills(sk))
		hook_consider(sk);
}

static struct pflow_trace data_ready = { "sk_data_ready", on_data_ready };
static struct pflow_trace full = { "udp_fail_queue_rcv_skb", on_full,
				   "who fills is found a little later" };

/* It is used only if the kernel has no tracepoint there. */
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
