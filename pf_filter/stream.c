// SPDX-License-Identifier: GPL-2.0-only
/*
 * Harm to a TCP receiver. Its stream loses nothing: what does not fit is not sent. What
 * it loses is the time during which its window is shut and it waits for the CPU, of which
 * the packets of less important receivers take more than their share. That it is
 * itself slow to take what has come does not count, nor does a window that is open.
 *
 * A receive call passes a tracepoint for each piece it copies, before it opens the window
 * again: whether it was shut is still to be seen there, and how long the thread has waited
 * in all is known to the scheduler.
 *
 * Context: process, the socket locked. Where nothing is under pressure, a load and a
 * branch behind a patched call.
 */
#include <net/tcp.h>

#include "../common/compat/compat.h"
#include "filter.h"

#define LOOKS_APART	(HZ / 10)	/* further apart, nobody knows what passed between */

/* Less than a segment may come. */
static bool window_shut(const struct sock *sk)
{
	return tcp_receive_window(tcp_sk(sk)) < inet_csk(sk)->icsk_ack.rcv_mss;
}

/* How long current has waited for a CPU in its life; wraps around. */
static u32 waited_in_all_us(void)
{
#ifdef CONFIG_SCHED_INFO
	return div_u64(current->sched_info.run_delay, NSEC_PER_USEC);
#else
	return 0;
#endif
}

/* How long current waited since the last look; 0 where that is too long ago to tell. */
static u32 waited_us(struct pflow_sock *entry, u32 now)
{
	u32 in_all = waited_in_all_us();
	u32 waited = in_all - READ_ONCE(entry->waited_us);
	u32 apart = now - READ_ONCE(entry->waited_at);

	WRITE_ONCE(entry->waited_us, in_all);
	WRITE_ONCE(entry->waited_at, now);
	return apart <= LOOKS_APART ? min(waited, jiffies_to_usecs(apart + 1)) : 0;
}

static void on_read(void *unused, struct sock *sk)
{
	struct pflow_sock *entry;
	u32 waited;

	if (likely(!READ_ONCE(raw_cpu_ptr(&pflow_load)->pressed)) || !in_task())
		return;
	rcu_read_lock();
	entry = pflow_sock_find(sk);
	/* Of several threads the one that counts: what each has waited is its own. */
	if (entry && READ_ONCE(entry->pid) == current->pid) {
		waited = waited_us(entry, jiffies);
		if (waited && window_shut(sk))
			filter_control_harm(entry, filter_level(entry),
					    (u64)waited * NSEC_PER_USEC);
	}
	rcu_read_unlock();
}

static struct pflow_trace read_trace = { "tcp_rcv_space_adjust", on_read,
	"nobody is shed for a TCP receiver that cannot keep up" };

/**
 * filter_stream_setup() - look at TCP receivers
 *
 * Context: process, may sleep; after filter_control_setup(). Return: 0 or a negative error.
 */
int filter_stream_setup(void)
{
	return pflow_trace_attach(&read_trace);
}

/**
 * filter_stream_teardown() - look no more
 *
 * Context: process, may sleep; before filter_control_teardown().
 */
void filter_stream_teardown(void)
{
	pflow_trace_detach(&read_trace);
}
