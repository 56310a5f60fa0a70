// SPDX-License-Identifier: GPL-2.0-only
/*
 * The hooks: where a socket's buffer is seen to fill.
 *
 * UDP: sock_def_readable() has a tracepoint, which is passed when the packet has just been queued.
 * Before 6.3 there is no such tracepoint, so the function that queues a UDP packet is looked into
 * instead, before it checks for room. ftrace calls us there, or else a kprobe does. These hooks
 * are always there, since a buffer has to grow before it first overflows. At rest they cost a load
 * and a comparison, behind a patched call. A socket that is full queues nothing. So a second
 * tracepoint tells of packets that are dropped. It costs nothing while none is.
 *
 * TCP: a receive call passes a tracepoint with the socket's lock held, once for each piece that it
 * copies. A sender whose window is shut sends nothing, so nothing is lost by waiting until the
 * receiver comes.
 *
 * Context: UDP: softirq, or process with softirqs off. TCP: process or softirq. Preemption may be
 * on (in tracepoints of newer kernels, in ftrace, and in softirqs of real-time kernels), and
 * nothing here relies on its being off. The socket does not go while a hook runs, but its last
 * reference may be gone already, as UDP is looked up under RCU alone.
 */
#include <linux/in.h>
#include <linux/kprobes.h>
#include <net/inet_sock.h>
#include <net/tcp.h>

#include "../common/compat/compat.h"
#include "../common/sample.h"
#include "mm.h"

#define MANY	16	/* packets; if so many wait, one in PFLOW_SAMPLE_EVERY is looked at */

static DEFINE_PER_CPU(u32, queued);
static DEFINE_PER_CPU(u32, refused);

/* A raw socket may have the number of UDP. The table tells them apart, later. */
static __always_inline bool sock_may_grow(const struct sock *sk)
{
	return sk->sk_protocol == IPPROTO_UDP && !size_locked(sk);
}

/* Is more than a quarter full? No threshold is below that. */
static __always_inline bool sock_may_fill(const struct sock *sk)
{
	return (u32)atomic_read(&sk->sk_rmem_alloc) > (u32)READ_ONCE(sk->sk_rcvbuf) / 4;
}

/*
 * If many packets wait, one in a few is looked at. Return: how many packets this one stands for, or
 * 0 if it is not to be looked at.
 */
static __always_inline unsigned int hook_stands_for(const struct sock *sk)
{
	/* Sockets of other types may have the number of UDP, and have no second queue. */
	if (sk->sk_type != SOCK_DGRAM || (sk->sk_family != AF_INET && sk->sk_family != AF_INET6) ||
	    READ_ONCE(sk->sk_receive_queue.qlen) + READ_ONCE(udp_sk(sk)->reader_queue.qlen) < MANY)
		return 1;
	return pflow_sample_takes(&queued) ? PFLOW_SAMPLE_EVERY : 0;
}

/* The tracepoint's socket is const, since it changes nothing. We do: its size. */
static void on_data_ready(void *unused, const struct sock *sk)
{
	unsigned int packets;

	if (!sock_may_fill(sk) || sk->sk_protocol != IPPROTO_UDP)
		return;
	packets = hook_stands_for(sk);
	if (packets && sock_may_grow(sk))
		grant_check_fill((struct sock *)sk, packets);
}

static __always_inline bool sock_is_full(const struct sock *sk)
{
	return atomic_read(&sk->sk_rmem_alloc) > READ_ONCE(sk->sk_rcvbuf);
}

/* A packet that finds the buffer full will be refused, unless the buffer grows now. */
static __always_inline void hook_look_before(struct sock *sk)
{
	if (sock_may_fill(sk) && sock_may_grow(sk))
		grant_check_fill(sk, !sock_is_full(sk));
}

/* __udp_enqueue_schedule_skb(struct sock *sk, struct sk_buff *skb) */
static int on_enqueue(struct kprobe *kp, struct pt_regs *regs)
{
	hook_look_before((struct sock *)regs_get_kernel_argument(regs, 0));
	return 0;
}

/* The same, called by ftrace. Nothing that it does queues a packet, so it cannot recur. */
static void notrace on_enqueue_hot(unsigned long ip, unsigned long parent_ip,
				   struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	hook_look_before(pflow_ftrace_argument(fregs, 0));
}

/*
 * A packet is refused for want of room. From 6.18 on that happens however little waits before it.
 * One in a few is looked at: mostly nothing can be done, and each look takes time from receivers.
 */
static void on_full(PFLOW_UDP_FAIL_ARGS)
{
	if (rc == -ENOMEM && pflow_sample_takes(&refused) && sock_may_grow(sk))
		grant_check_fill(sk, 0);
}

/* Up to its limit autotuning, if it is on, raises the size by itself. */
static void on_tcp_read(void *unused, struct sock *sk)
{
	const struct net *net = sock_net(sk);

	if (sk->sk_rcvbuf < READ_ONCE(net->ipv4.sysctl_tcp_rmem[2]) || !size_tcp_may_grow(net) ||
	    !READ_ONCE(net->ipv4.sysctl_tcp_moderate_rcvbuf) || size_locked(sk) || tcp_ended(sk))
		return;
	grant_check_fill(sk, 1);
}

static struct pflow_trace data_ready = { "sk_data_ready", on_data_ready };
static struct pflow_trace full = { "udp_fail_queue_rcv_skb", on_full,
			     "a UDP buffer that was full once stays as it is until it drains" };
static struct pflow_trace tcp_read = { "tcp_rcv_space_adjust", on_tcp_read,
				 "TCP buffers stay as autotuning leaves them" };
static struct pflow_trace * const traces[] = { &data_ready, &full, &tcp_read };

static struct pflow_probe rows[] = {
	/* It is used only if the kernel has no tracepoint there. */
	{ "__udp_enqueue_schedule_skb", on_enqueue, PFLOW_PROBE_ALWAYS, true,
	  "no UDP buffer that fills can be found", on_enqueue_hot },
};

static struct pflow_probes probes = { .owner = THIS_MODULE, .rows = rows };

static void hook_detach_all(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(traces); i++)
		pflow_trace_detach(traces[i]);
}

/**
 * hook_setup() - attach the hooks
 *
 * Context: process, may sleep. Return: 0 or a negative error, and then nothing
 * is attached.
 */
int hook_setup(void)
{
	unsigned int i;
	int err = 0;

	for (i = 0; i < ARRAY_SIZE(traces) && !err; i++)
		err = pflow_trace_attach(traces[i]);
	probes.nr_rows = data_ready.point ? 0 : ARRAY_SIZE(rows);
	if (!err)
		err = pflow_probes_add(&probes);
	if (err)
		hook_detach_all();
	return err;
}

/**
 * hook_teardown() - detach them
 *
 * Context: process, may sleep. None runs any more on return.
 */
void hook_teardown(void)
{
	pflow_probes_remove(&probes);
	hook_detach_all();
}
