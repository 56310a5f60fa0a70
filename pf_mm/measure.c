// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is measured of a buffer: how fast it is sent to and emptied, how full it was and since
 * when, and how long it takes to get more room (relief). The threshold at which it has to grow
 * follows from these.
 *
 * Packets to UDP sockets are counted, and the clock is read once for many. A receiver took what
 * arrived in an interval, less what more waits at the end than at the beginning. What a receiver of
 * TCP takes is measured by the keeper (attend.c).
 *
 * Context: the packet path, where packets of one socket may come on several CPUs at once, and the
 * keeper.
 */
#include <linux/sched/clock.h>
#include <net/inet_sock.h>

#include "../common/compat/compat.h"
#include "mm.h"

#define COUNTED		16	/* packets at a time, so that clocks are read seldom */
#define STALE_NS	(100 * NSEC_PER_MSEC)	/* packets further apart are no burst */
#define DRAINED		3	/* a buffer has drained if less than a third of it is full */
#define STRETCH_NS	(20 * NSEC_PER_MSEC)	/* in which a drain is measured */

u32 grants_relief_us;	/* mean time until a buffer has more room; the m of paper 004 */

/**
 * grant_set_threshold() - how full may a buffer be before it has to grow?
 * @grant: of the socket; its size or what is measured has changed
 *
 * Context: any.
 */
void grant_set_threshold(struct mm_grant *grant)
{
	WRITE_ONCE(grant->threshold, pflow_size_threshold(grant->size, READ_ONCE(grant->rate),
							  READ_ONCE(grants_relief_us)));
}

/**
 * grant_note_relieved() - note that a buffer gets the room that it needs
 * @grant: of the socket
 *
 * Mostly it gets that at once. If it had to wait for the keeper, @wanted is set since @wanted_ns.
 *
 * Context: under grants_lock.
 */
void grant_note_relieved(struct mm_grant *grant)
{
	s64 waited_ns = 0;

	lockdep_assert_held(&grants_lock);
	/* Clocks of different CPUs may differ a little. */
	if (grant->wanted)
		waited_ns = clamp_t(s64, local_clock() - grant->wanted_ns, NSEC_PER_USEC,
				    NSEC_PER_SEC);
	WRITE_ONCE(grants_relief_us,
		   pflow_mean_slow(grants_relief_us, div_u64(waited_ns, NSEC_PER_USEC)));
	WRITE_ONCE(grant->wanted, 0);
}

/* Mean size of a packet that waits. Lengths are read while others change them. */
static u32 sock_mean_truesize(const struct sock *sk, u32 used)
{
	u32 deficit = pflow_udp_deficit(sk);
	u32 packets = READ_ONCE(sk->sk_receive_queue.qlen) +
		      READ_ONCE(udp_sk(sk)->reader_queue.qlen);

	return (used > deficit ? used - deficit : 0) / max(packets, 1U);
}

/* Measure how fast a buffer is sent to, by what arrived, and how fast it is emptied. */
static void grant_measure(struct mm_grant *grant, u32 used)
{
	u64 now = local_clock();
	u64 bytes = (u64)READ_ONCE(grant->packets) * sock_mean_truesize(grant->sk, used);
	s64 elapsed_ns = now - grant->counted_ns;
	s64 stretch_ns;
	u64 rate;

	lockdep_assert_held(&grant->counting);
	WRITE_ONCE(grant->packets, 0);
	grant->counted_ns = now;
	if (elapsed_ns <= 0 || elapsed_ns > STALE_NS) {
		grant->stretch_ns = 0;
		return;
	}
	rate = div64_u64(bytes * NSEC_PER_MSEC, elapsed_ns);
	WRITE_ONCE(grant->rate, pflow_mean_fast(grant->rate, min_t(u64, rate, U32_MAX)));
	grant_set_threshold(grant);

	grant->arrived += bytes;
	stretch_ns = now - grant->stretch_ns;
	if (grant->stretch_ns && stretch_ns < STRETCH_NS)
		return;
	if (grant->stretch_ns) {
		s64 drained = max_t(s64, grant->arrived + grant->stretch_used - used, 0);
		u32 drain = min_t(u64, div64_u64(drained * NSEC_PER_MSEC, stretch_ns), U32_MAX);

		WRITE_ONCE(grant->drain, grant->drain_known ?
			   pflow_mean_slow(grant->drain, drain) : drain);
		WRITE_ONCE(grant->drain_known, true);
	}
	grant->stretch_ns = now;
	grant->stretch_used = used;
	grant->arrived = 0;
}

/**
 * grant_note_used() - note how much waits in a UDP buffer
 * @grant: of the socket
 * @used: bytes
 *
 * The hooks come here once a buffer is fuller than a quarter. So a burst on its way up is seen here
 * before the buffer is a third full, and counts as drained, even if the keeper did not look lately.
 *
 * Context: any.
 */
void grant_note_used(struct mm_grant *grant, u32 used)
{
	u32 now = jiffies;

	if (used > READ_ONCE(grant->peak))
		WRITE_ONCE(grant->peak, used);
	if (used < READ_ONCE(grant->size) / DRAINED && READ_ONCE(grant->drained) != now)
		WRITE_ONCE(grant->drained, now);
}

/**
 * grant_stands() - has a UDP buffer not drained for longer than a burst lasts?
 * @grant: of the socket
 *
 * A good queue absorbs a burst and drains. A bad queue stands, and with more room its packets are
 * only older when they are read (CoDel tells them apart so, RFC 8289).
 *
 * Context: any. Return: whether it has.
 */
bool grant_stands(const struct mm_grant *grant)
{
	u32 burst = msecs_to_jiffies(mm_knob(MM_KNOB_BURST));

	return burst && grant->udp &&
	       time_after32((u32)jiffies, READ_ONCE(grant->drained) + burst);
}

/**
 * grant_count() - count packets that were queued in a UDP buffer
 * @grant: of the socket
 * @used: bytes that wait there
 * @packets: how many
 *
 * Context: any but NMI.
 */
void grant_count(struct mm_grant *grant, u32 used, unsigned int packets)
{
	grant_note_used(grant, used);
	WRITE_ONCE(grant->packets, READ_ONCE(grant->packets) + packets);
	/* If another CPU is measuring, nothing is lost by going on. */
	if (READ_ONCE(grant->packets) < COUNTED || !raw_spin_trylock(&grant->counting))
		return;
	grant_measure(grant, used);
	raw_spin_unlock(&grant->counting);
}
