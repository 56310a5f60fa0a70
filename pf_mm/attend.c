// SPDX-License-Identifier: GPL-2.0-only
/*
 * The keeper looks after each grant: is it over, is it too large by now, and what does it not use?
 *
 * What is not used goes back. When a grant is over, its socket gets its own size back, unless
 * somebody else has set the size since. Then the socket is let go. When the module stops, all
 * grants are over.
 *
 * Context: worker, unless said otherwise. Functions that change a grant run under its locks
 * (walk.c).
 */
#include <linux/delay.h>
#include <linux/sched/clock.h>
#include <linux/slab.h>
#include <net/inet_sock.h>
#include <net/tcp.h>

#include "../common/compat/compat.h"
#include "mm.h"

#define UNUSED_FOR	(2 * HZ)	/* jiffies; what is not used for a whole period goes back */
#define STOP_TRIES	100		/* a second in all for TCP sockets that are owned */
#define STOP_APART_MS	10

static bool stopping;

/* Is it over with this grant? Return: why, or -1. */
static int grant_why_over(const struct mm_grant *grant, const struct pflow_sock *entry)
{
	const struct sock *sk = grant->sk;

	if (READ_ONCE(grant->closing) || pflow_sock_dead(sk))
		return GIVEN_CLOSED;
	if ((u32)READ_ONCE(sk->sk_rcvbuf) != grant->size)
		return GIVEN_CHANGED;
	/*
	 * SO_RCVBUF sets the flag, but so does SO_BUF_LOCK, which leaves the size as it is. A size
	 * of ours becomes the program's only if SO_RCVBUF could have given it as much.
	 */
	if (size_locked_since(grant))
		return grant->size <= size_settable() ? GIVEN_CHANGED : GIVEN_EXEMPT;
	/* A closed or listening socket may be used again. What it accepts inherits its size. */
	if (!grant->udp && tcp_ended(sk))
		return GIVEN_CLOSED;
	if (stopping || (mm_knob(MM_KNOB_MODE) == MM_MODE_OBSERVE && grant->size != grant->own))
		return GIVEN_STOPPED;
	if (!entry)
		return GIVEN_CLOSED;
	return size_locked(sk) || mm_exempt(READ_ONCE(inet_sk(sk)->inet_num)) ? GIVEN_EXEMPT : -1;
}

/*
 * Give a socket its own size back. A TCP buffer stays at what it holds and has promised, and
 * shrinks further as that drains, unless the module stops. Return: whether the grant is at its end.
 */
static bool grant_restore(struct mm_grant *grant, enum mm_given why)
{
	grant_give(grant, grant->own, why);
	return stopping || grant->size == grant->own;
}

static void grant_end(struct mm_grant *grant, enum mm_given why, bool *ended)
{
	lockdep_assert_held(&grants_lock);
	/* The size of a dead socket means nothing. What somebody else set is not ours to undo. */
	if (why != GIVEN_CHANGED && !pflow_sock_dead(grant->sk) && !grant_restore(grant, why))
		return;
	grant_forget(grant, why);
	*ended = true;
}

/* The buffer that TCP needs, in bytes: for twice what was received in a round trip. */
static u32 grant_window_used(struct mm_grant *grant)
{
	const struct tcp_sock *tp = tcp_sk(grant->sk);
	u64 now = local_clock();
	u64 elapsed_us = div_u64(now - grant->copied_ns, NSEC_PER_USEC);
	u32 copied = tp->copied_seq - grant->copied;
	u64 window = 0;

	if (grant->copied_ns && (s64)elapsed_us > 0) {
		u64 drain = div64_u64((u64)copied * USEC_PER_MSEC, elapsed_us);

		window = 2 * div64_u64((u64)copied * (tp->rcv_rtt_est.rtt_us >> 3), elapsed_us);
		WRITE_ONCE(grant->drain, pflow_mean_slow(grant->drain, min_t(u64, drain, U32_MAX)));
		WRITE_ONCE(grant->drain_known, true);
	}
	grant->copied = tp->copied_seq;
	grant->copied_ns = now;
	return pflow_tcp_space(grant->sk, min_t(u64, window, PFLOW_SIZE_MOST));
}

/* Note what a buffer needs. Return: whether a period has passed, and then the most of it. */
static bool grant_roll_period(struct mm_grant *grant, u32 *most)
{
	u32 used = grant->udp ? pflow_rmem(grant->sk) :
		   max_t(u32, atomic_read(&grant->sk->sk_rmem_alloc), grant_window_used(grant));

	grant_note_used(grant, used);
	if (time_before32((u32)jiffies, grant->rolled + UNUSED_FOR))
		return false;
	*most = READ_ONCE(grant->peak);
	WRITE_ONCE(grant->peak, used);
	grant->rolled = jiffies;
	return true;
}

/* Look after one grant; if it is of TCP, under the socket's lock, too. */
static void grant_attend(struct mm_grant *grant, void *data)
{
	bool *ended = data;
	struct pflow_sock *entry;
	u32 most, needed;
	bool rolled;
	int why;

	lockdep_assert_held(&grants_lock);
	rcu_read_lock();
	entry = pflow_sock_find(grant->sk);
	why = grant_why_over(grant, entry);
	if (why >= 0) {
		grant_end(grant, why, ended);
		goto out;
	}
	WRITE_ONCE(grant->rank, READ_ONCE(entry->rank));
	most = size_most(grant, grant->rank);
	if (most < grant->size)
		grant_give(grant, most, GIVEN_LIMIT);
	most = size_most_by_memory(grant);
	if (most < grant->size)
		grant_give(grant, most, GIVEN_MEMORY);
	rolled = grant_roll_period(grant, &needed);
	/* More room did not help it. What is queued stays. */
	if (grant_stands(grant))
		grant_give(grant, grant->own, GIVEN_STANDING);
	if (!rolled)
		goto out;
	grant_give(grant, pflow_size_shrunk(grant->size, grant->own, needed), GIVEN_UNUSED);
	/* It does not fill any more, and has nothing of ours. */
	if (grant->size == grant->own && needed <= grant->own / 4 && !grant->wanted) {
		grant_forget(grant, GIVEN_UNUSED);
		*ended = true;
	}
out:
	rcu_read_unlock();
}

static void grant_release(struct mm_grant *grant)
{
	sock_put(grant->sk);
	kfree_rcu(grant, rcu);
}

/**
 * grants_attend() - look after all grants
 *
 * Context: worker, may sleep.
 */
void grants_attend(void)
{
	struct mm_grant *grant, *next;
	unsigned int chain;

	size_look_at_memory();
	for (grant = grant_next(NULL, &chain); grant; grant = next) {
		bool ended = false;

		next = grant_next(grant, &chain);
		grant_with_socket(grant, grant_attend, &ended);
		if (ended)
			grant_release(grant);
	}
}

static void grant_abandon(struct mm_grant *grant, void *data)
{
	size_set_unlocked(grant);
	grant_forget(grant, GIVEN_STOPPED);
}

static void grants_abandon(void)
{
	struct mm_grant *grant, *next;
	unsigned int chain;

	for (grant = grant_next(NULL, &chain); grant; grant = next) {
		next = grant_next(grant, &chain);
		grant_with_lock(grant, grant_abandon, NULL);
		grant_release(grant);
	}
}

/**
 * grants_restore() - restore every buffer, and end all grants
 *
 * If a TCP socket is owned for a whole second, it is restored without its lock.
 *
 * Context: process, may sleep; no hook is attached, and the keeper does not run.
 */
void grants_restore(void)
{
	unsigned int tries;

	stopping = true;
	grants_attend();
	for (tries = 0; grants_any() && tries < STOP_TRIES; tries++) {
		msleep(STOP_APART_MS);
		grants_attend();
	}
	grants_abandon();
	stopping = false;
}
