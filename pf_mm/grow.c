// SPDX-License-Identifier: GPL-2.0-only
/*
 * Growth: a buffer that fills grows at once, in the packet path, if there is budget left.
 *
 * If there is none left, the keeper is woken. It takes back what less important receivers do not
 * use (room.c). A socket that fills and has no grant yet gets one. While a buffer cannot grow, it
 * is looked at under the lock once a jiffy at most.
 *
 * Context: the hooks', any but NMI; RCU read side.
 */
#include <linux/sched/clock.h>
#include <net/inet_sock.h>
#include <net/tcp.h>

#include "mm.h"

#define AT_LIMIT_FOR	max(HZ / 10, 1)	/* jiffies; a buffer at its limit is let alone so long */

static struct mm_grant *grant_begin_from_pool(struct sock *sk, const struct pflow_sock *entry)
{
	struct mm_grant *grant = grant_begin(sk, entry);

	lockdep_assert_held(&grants_lock);
	/* It is woken once; if it finds no memory it tries again by itself. */
	if (grant)
		keeper_wake(grants_pooled() == POOL_LOW);
	return grant;
}

/* Does the program itself keep the window well below the buffer? */
static bool grant_is_clamped(const struct mm_grant *grant)
{
	return !grant->udp && tcp_sk(grant->sk)->window_clamp <
			      tcp_win_from_space(grant->sk, grant->goal) / 2;
}

/* Let a buffer grow, or note why it does not. Of a TCP socket, under its lock, too. */
static void grant_grow(struct mm_grant *grant, const struct pflow_sock *entry)
{
	struct sock *sk = grant->sk;
	u32 most, to;

	lockdep_assert_held(&grants_lock);
	WRITE_ONCE(grant->retry, (u32)jiffies + 1);
	if (READ_ONCE(grant->closing) || grant->wanted)
		return;
	if (READ_ONCE(sk->sk_rcvbuf) != grant->size) {
		keeper_wake(true);	/* somebody else set it, so the grant is over */
		return;
	}
	WRITE_ONCE(grant->rank, READ_ONCE(entry->rank));
	most = size_most(grant, grant->rank);
	if (mm_knob(MM_KNOB_MODE) == MM_MODE_OBSERVE) {
		if (most > grant->size && !grant->observed) {
			grant_counts.observed++;
			grant->observed = true;
		}
		return;
	}
	/* It was to become smaller, and has not become so yet. It may keep that now. */
	if (grant->goal < grant->size && grant->size <= most) {
		grant_resize(grant, grant->size);
		return;
	}
	to = pflow_size_grown(grant->size, most, READ_ONCE(grant->rate),
			      READ_ONCE(grants_relief_us));
	if (to <= grant->size) {
		WRITE_ONCE(grant->retry, (u32)jiffies + AT_LIMIT_FOR);
		grant_tell_growable(grant, false);
	} else if (grant_is_clamped(grant)) {
		grant_note_refusal(grant, REFUSED_CLAMP);
	} else if (grant_stands(grant)) {
		grant_note_refusal(grant, REFUSED_STANDING);
	} else if (!size_memory_for(sk, to - grant->size)) {
		grant_note_refusal(grant, REFUSED_MEMORY);
	} else if (to - grant->size > grant_left(grant)) {
		grant_note_wait(grant);
		grant->wanted_ns = local_clock();
		WRITE_ONCE(grant->wanted, to);
		grant_tell_growable(grant, true);
		keeper_wake(true);
	} else if (grant_resize(grant, to)) {
		WRITE_ONCE(grant->retry, (u32)jiffies);	/* the next step need not wait */
		grant_note_relieved(grant);
		grant_tell_growable(grant, to < most);
	}
}

static bool udp_buffer_fills(const struct mm_grant *grant, const struct sock *sk, u32 used)
{
	return used > (grant ? READ_ONCE(grant->threshold) :
		       pflow_size_threshold(READ_ONCE(sk->sk_rcvbuf), 0, 0));
}

/*
 * TCP lets its peer send less than its buffer would hold. So the window fills, and not the buffer.
 * Two signs tell that the window is too small:
 *
 *  - Little is left of it. The peer had to stop, or soon will.
 *  - Autotuning would make it larger if it might. It wants twice what is received in a round trip.
 *    That is what was read since rcvq_space.seq.
 *
 * If the window has not opened as far as the buffer would let it, the buffer is not the reason.
 */
static bool tcp_buffer_fills(const struct mm_grant *grant, const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 size = grant ? READ_ONCE(grant->goal) : READ_ONCE(sk->sk_rcvbuf);
	u32 window = max(tcp_win_from_space(sk, size), 0);
	u32 left = min(tcp_receive_window(tp), window);

	if (2ULL * (tp->copied_seq - tp->rcvq_space.seq) > window)
		return true;
	return tp->rcv_ssthresh >= window / 2 &&
	       window - left > pflow_size_threshold(window, 0, 0);
}

/* Does a buffer fill? What was queued is counted here, too. */
static bool buffer_fills(struct mm_grant *grant, const struct sock *sk, unsigned int packets)
{
	/* A buffer that had no room for a packet fills, whatever is in it. */
	if (!packets)
		return true;
	if (sk->sk_protocol == IPPROTO_UDP) {
		/* From 6.18 on this packet itself still counts as on its way. */
		u32 used = atomic_read(&sk->sk_rmem_alloc);

		if (grant)
			grant_count(grant, used, packets);
		return udp_buffer_fills(grant, sk, used);
	}
	if (!tcp_buffer_fills(grant, sk))
		return false;
	if (grant)
		WRITE_ONCE(grant->peak, max(READ_ONCE(grant->peak), READ_ONCE(grant->goal)));
	return true;
}

/* Take the lock and let a buffer grow. If it has no grant, one begins. */
static void buffer_grow(struct sock *sk, const struct mm_grant *grant)
{
	const struct pflow_sock *entry = pflow_sock_find(sk);
	struct mm_grant *found;
	unsigned long irq;

	/*
	 * The table has sockets of processes only. A socket of the kernel itself does not hold its
	 * namespace, and must not outlive it. So a grant must not hold such a socket.
	 */
	if (!entry || !sk->sk_net_refcnt || mm_exempt(READ_ONCE(inet_sk(sk)->inet_num)))
		return;
	/* Otherwise all CPUs would take the lock for each packet of each socket that fills. */
	if (!grant && !grants_may_begin(sk, entry)) {
		this_cpu_inc(grants_not_pooled);
		return;
	}
	raw_spin_lock_irqsave(&grants_lock, irq);
	found = grant_find(sk) ?: grant_begin_from_pool(sk, entry);
	if (found)
		grant_grow(found, entry);
	raw_spin_unlock_irqrestore(&grants_lock, irq);
}

/**
 * grant_check_fill() - look whether a socket's buffer is over its threshold, and let it grow then
 * @sk: UDP or TCP, or a raw socket that has the number of UDP; the caller has it under RCU, and
 *	holds the lock of a TCP socket
 * @packets: how many queued packets this one stands for; 0: this one was refused
 *
 * Under overload each packet comes here, and the time for that is taken from the receivers. So the
 * grant is looked up first, as it mostly tells that nothing is to be done.
 *
 * Context: any but NMI.
 */
void grant_check_fill(struct sock *sk, unsigned int packets)
{
	struct mm_grant *grant;

	rcu_read_lock();
	grant = grant_find(sk);
	if (buffer_fills(grant, sk, packets) &&
	    !(grant && time_before32((u32)jiffies, READ_ONCE(grant->retry))))
		buffer_grow(sk, grant);
	rcu_read_unlock();
}
