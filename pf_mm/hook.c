// SPDX-License-Identifier: GPL-2.0-only
/*
 * The hooks: where a socket's buffer is seen to fill.
 *
 * UDP: a tracepoint that sock_def_readable() passes with the packet just queued. Before 6.3
 * there is no such tracepoint. A probe on the function that queues a UDP packet takes its place.
 * It runs before that function checks for room. ftrace calls it, or else a kprobe. They are
 * always there, as growth has to come before the first overflow: a load and a comparison, behind
 * a patched call. Whoever is full already queues nothing, so a second tracepoint tells of what
 * is dropped; it costs nothing while nobody drops.
 *
 * TCP: a tracepoint that a receive call passes with the socket's lock held, once for each
 * piece it copies. A sender whose window is shut sends nothing, so nothing is lost by
 * waiting until the receiver comes.
 *
 * Context: of UDP softirq, or process with softirqs off; of TCP process or softirq.
 * Preemption may be on (tracepoints of newer kernels, ftrace, and softirqs of real-time ones),
 * and nothing here relies on it. The socket cannot go while they run, but may be on its way: UDP
 * is looked up under RCU alone.
 */
#include <linux/in.h>
#include <linux/kprobes.h>
#include <net/inet_sock.h>
#include <net/tcp.h>

#include "../common/compat/compat.h"
#include "../common/sample.h"
#include "mm.h"

#define MANY	16	/* packets that wait */

static DEFINE_PER_CPU(u32, queued);
static DEFINE_PER_CPU(u32, refused);

/* Whether it is a UDP socket at all (a raw one may carry the number) the table knows. */
static __always_inline bool sock_may_grow(const struct sock *sk)
{
	return sk->sk_protocol == IPPROTO_UDP && !size_locked(sk);
}

/* No threshold is below a quarter. */
static __always_inline bool sock_may_fill(const struct sock *sk)
{
	return (u32)atomic_read(&sk->sk_rmem_alloc) > (u32)READ_ONCE(sk->sk_rcvbuf) / 4;
}

/* Where many packets wait, one in a few is looked at. Returned is for how many this one stands. */
static __always_inline unsigned int hook_stands_for(const struct sock *sk)
{
	/* Others, which may bear the number of UDP, have no second queue. */
	if (sk->sk_type != SOCK_DGRAM || (sk->sk_family != AF_INET && sk->sk_family != AF_INET6) ||
	    READ_ONCE(sk->sk_receive_queue.qlen) + READ_ONCE(udp_sk(sk)->reader_queue.qlen) < MANY)
		return 1;
	return pflow_sample_takes(&queued) ? PFLOW_SAMPLE_EVERY : 0;
}

/* The tracepoint promises not to change the socket; growing is our business. */
static void on_data_ready(void *unused, const struct sock *sk)
{
	unsigned int packets;

	if (!sock_may_fill(sk) || sk->sk_protocol != IPPROTO_UDP)
		return;
	packets = hook_stands_for(sk);
	if (packets && sock_may_grow(sk))
		grant_fills((struct sock *)sk, packets);
}

static __always_inline bool sock_is_full(const struct sock *sk)
{
	return atomic_read(&sk->sk_rmem_alloc) > READ_ONCE(sk->sk_rcvbuf);
}

/* What finds the buffer full will be refused, unless it grows now. */
static __always_inline void hook_look_before(struct sock *sk)
{
	if (sock_may_fill(sk) && sock_may_grow(sk))
		grant_fills(sk, !sock_is_full(sk));
}

/* __udp_enqueue_schedule_skb(struct sock *sk, struct sk_buff *skb) */
static int on_enqueue(struct kprobe *kp, struct pt_regs *regs)
{
	hook_look_before((struct sock *)regs_get_kernel_argument(regs, 0));
	return 0;
}

/* The same. Nothing that it does queues a packet before it returns, so it cannot recur. */
static void notrace on_enqueue_hot(unsigned long ip, unsigned long parent_ip,
				   struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	hook_look_before(pflow_ftrace_argument(fregs, 0));
}

/*
 * From 6.18 on a packet that does not fit is refused, however little there is before it. One in a
 * few is looked at: mostly nothing can be done for them, and each look takes time from receivers.
 */
static void on_full(PFLOW_UDP_FAIL_ARGS)
{
	if (rc == -ENOMEM && pflow_sample_takes(&refused) && sock_may_grow(sk))
		grant_fills(sk, 0);
}

/* Autotuning raises the size by itself up to its limit, if it is on. */
static void on_tcp_read(void *unused, struct sock *sk)
{
	const struct net *net = sock_net(sk);

	if (sk->sk_rcvbuf < READ_ONCE(net->ipv4.sysctl_tcp_rmem[2]) || !size_tcp_may_grow(net) ||
	    !READ_ONCE(net->ipv4.sysctl_tcp_moderate_rcvbuf) || size_locked(sk) || tcp_ended(sk))
		return;
	grant_fills(sk, 1);
}

static struct pflow_trace data_ready = { "sk_data_ready", on_data_ready };
static struct pflow_trace full = { "udp_fail_queue_rcv_skb", on_full,
			     "a UDP buffer that was full once stays as it is until it drains" };
static struct pflow_trace tcp_read = { "tcp_rcv_space_adjust", on_tcp_read,
				 "TCP buffers stay as autotuning leaves them" };
static struct pflow_trace * const traces[] = { &data_ready, &full, &tcp_read };

static struct pflow_probe rows[] = {
	/* Only where there is no tracepoint for it. */
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
