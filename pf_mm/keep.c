// SPDX-License-Identifier: GPL-2.0-only
/*
 * The keeper: takes back what is not used, and makes room for who waits for it.
 *
 * A worker that runs ten times a second while there is a grant, and at once when a
 * socket waits for budget or is being closed. It alone ends grants, so it may walk them
 * without a lock, and sleep between two of them; the packet path adds to the head of a
 * chain meanwhile, and what it adds is met the next time. It is unbound and of high
 * priority, as the CPU that is flooded is the last one on which it would get to run. It
 * never waits for memory.
 *
 * A TCP socket is changed with its spinlock held and only while no process owns it. Its
 * lock as a mutex is never waited for: the owner may sleep in it, on a page of its own
 * memory even, for as long as it likes. A socket that is owned is left for the next time.
 *
 * Context: worker, except where said otherwise.
 */
#include <linux/delay.h>
#include <linux/rculist.h>
#include <linux/sched/clock.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <net/inet_sock.h>
#include <net/tcp.h>

#include "../common/compat/compat.h"
#include "mm.h"

#define PERIOD		(HZ / 10)
#define UNUSED_FOR	(2 * HZ)
#define STOP_TRIES	100
#define STOP_APART_MS	10
#define SERVED		32	/* in a round, of those who wait for what others have */

/*
 * What can be taken back. Of UDP also what is used, and at once: what is queued stays, and
 * the next packets find no room. Of TCP that takes as long as its window.
 */
enum take {
	TAKE_UNUSED,
	TAKE_USED,
	TAKE_ALL,
	TAKES,
};

struct taking {
	enum take take;
	u64 missing;	/* bytes */
};

static void keeper(struct work_struct *work);
static DECLARE_DELAYED_WORK(keeper_work, keeper);
static struct workqueue_struct *queue;
static bool stopping;

/* The keeper's own, of each rank: bytes that can be taken, and whether anybody waits. */
static u64 to_take[TAKES][PFLOW_RANKS];
static bool waiting[PFLOW_RANKS];

typedef void (*change_t)(struct mm_grant *grant, void *data);

static void change_udp(struct mm_grant *grant, change_t change, void *data)
{
	unsigned long irq;

	raw_spin_lock_irqsave(&grants_lock, irq);
	change(grant, data);
	raw_spin_unlock_irqrestore(&grants_lock, irq);
}

static bool change_tcp(struct mm_grant *grant, change_t change, void *data)
{
	bool free;

	local_bh_disable();
	bh_lock_sock(grant->sk);
	free = !sock_owned_by_user(grant->sk);
	if (free)
		change_udp(grant, change, data);
	bh_unlock_sock(grant->sk);
	local_bh_enable();
	return free;
}

/* Do something to a grant with all held that changing its socket takes, if that can be had. */
static bool with_socket(struct mm_grant *grant, change_t change, void *data)
{
	if (!grant->udp)
		return change_tcp(grant, change, data);
	change_udp(grant, change, data);
	return true;
}

/*
 * Only the keeper takes grants away, so the one before is still there, and there is time for
 * others; NULL is the first.
 */
static struct mm_grant *next_grant(const struct mm_grant *before, unsigned int *chain)
{
	struct hlist_node *node = before ? READ_ONCE(before->node.next) : NULL;

	cond_resched();
	if (!before)
		*chain = 0;
	else if (!node)
		++*chain;
	while (!node && *chain < GRANT_CHAINS) {
		node = READ_ONCE(grants[*chain].first);
		if (!node)
			++*chain;
	}
	return hlist_entry_safe(node, struct mm_grant, node);
}

/* Has the program set its size since, be it to the same? */
static bool locked_since(const struct mm_grant *grant)
{
	return size_flagged(grant->sk) && !grant->locked;
}

/* Is it over with this grant? Return: why, or -1. */
static int over(const struct mm_grant *grant, const struct pflow_sock *entry)
{
	const struct sock *sk = grant->sk;

	if (READ_ONCE(grant->closing) || pflow_sock_dead(sk))
		return GIVEN_CLOSED;
	if ((u32)READ_ONCE(sk->sk_rcvbuf) != grant->size)
		return GIVEN_CHANGED;
	/*
	 * SO_RCVBUF sets the flag, but so does SO_BUF_LOCK, and leaves the size. Ours becomes
	 * the program's only where it could have had as much by SO_RCVBUF.
	 */
	if (locked_since(grant))
		return grant->size <= size_settable() ? GIVEN_CHANGED : GIVEN_EXEMPT;
	/* It may be used again, and what it accepts gets its size. */
	if (!grant->udp && tcp_ended(sk))
		return GIVEN_CLOSED;
	if (stopping || (mm_knob(MM_KNOB_MODE) == MM_MODE_OBSERVE && grant->size != grant->own))
		return GIVEN_STOPPED;
	if (!entry)
		return GIVEN_CLOSED;
	return size_locked(sk) || mm_exempt(READ_ONCE(inet_sk(sk)->inet_num)) ? GIVEN_EXEMPT : -1;
}

/*
 * Give back its own size. Of TCP not below what it holds and has promised: then the rest
 * follows as that drains, unless there is no time. Return: whether the grant is at its end.
 */
static bool restore(struct mm_grant *grant, enum mm_given why)
{
	grant_give(grant, grant->own, why);
	return stopping || grant->size == grant->own;
}

static void end(struct mm_grant *grant, enum mm_given why, bool *ended)
{
	/* A dead socket's size means nothing, another's choice is not ours to undo. */
	if (why != GIVEN_CHANGED && !pflow_sock_dead(grant->sk) && !restore(grant, why))
		return;
	grant_forget(grant, why);
	*ended = true;
}

/* What TCP used of its window: twice what it received in a round trip. */
static u32 window_used(struct mm_grant *grant)
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

/* The most that it needed in a period. Return: whether one has passed. */
static bool needed_lately(struct mm_grant *grant, u32 *most)
{
	u32 used = grant->udp ? pflow_rmem(grant->sk) :
		   max_t(u32, atomic_read(&grant->sk->sk_rmem_alloc), window_used(grant));

	grant_note_used(grant, used);
	if (time_before32((u32)jiffies, grant->rolled + UNUSED_FOR))
		return false;
	*most = READ_ONCE(grant->peak);
	WRITE_ONCE(grant->peak, used);
	grant->rolled = jiffies;
	return true;
}

/* Of whom this is asked may be changing; what it gives is looked at again under the locks. */
static u32 unused(const struct mm_grant *grant)
{
	return pflow_size_unused(READ_ONCE(grant->size), grant->own, size_used(grant));
}

static u32 takeable(const struct mm_grant *grant, enum take take)
{
	u32 spare = unused(grant);
	/* Read later, it is not less: the keeper alone makes it smaller. */
	u32 beyond = READ_ONCE(grant->size) - grant->own;

	if (take == TAKE_UNUSED)
		return spare;
	if (take == TAKE_ALL)
		return beyond;
	return grant->udp ? beyond - spare : 0;
}

/* Look after one: under the locks. */
static void attend(struct mm_grant *grant, void *data)
{
	bool *ended = data;
	struct pflow_sock *entry;
	u32 most, needed;
	bool rolled;
	int why;

	rcu_read_lock();
	entry = pflow_sock_find(grant->sk);
	why = over(grant, entry);
	if (why >= 0) {
		end(grant, why, ended);
		goto out;
	}
	WRITE_ONCE(grant->rank, READ_ONCE(entry->rank));
	most = size_most(grant, grant->rank);
	if (most < grant->size)
		grant_give(grant, most, GIVEN_LIMIT);
	rolled = needed_lately(grant, &needed);
	/* Room did not help it. What waits stays. */
	if (grant_stands(grant))
		grant_give(grant, grant->own, GIVEN_STANDING);
	if (!rolled)
		goto out;
	grant_give(grant, pflow_size_shrunk(grant->size, grant->own, needed), GIVEN_UNUSED);
	/* It fills no more, and has nothing of ours. */
	if (grant->size == grant->own && needed <= grant->own / 4 && !grant->wanted) {
		grant_forget(grant, GIVEN_UNUSED);
		*ended = true;
	}
out:
	rcu_read_unlock();
}

static void release(struct mm_grant *grant)
{
	sock_put(grant->sk);
	kfree_rcu(grant, rcu);
}

static void attend_all(void)
{
	struct mm_grant *grant, *next;
	unsigned int chain;

	for (grant = next_grant(NULL, &chain); grant; grant = next) {
		bool ended = false;

		next = next_grant(grant, &chain);
		with_socket(grant, attend, &ended);
		if (ended)
			release(grant);
	}
}

static s64 left(void)
{
	unsigned long irq;
	s64 bytes;

	raw_spin_lock_irqsave(&grants_lock, irq);
	bytes = grants_left();
	raw_spin_unlock_irqrestore(&grants_lock, irq);
	return bytes;
}

/* One look at all: what can be had from whom, and who waits. */
static void survey(void)
{
	struct mm_grant *grant;
	unsigned int chain, take;

	memset(to_take, 0, sizeof(to_take));
	memset(waiting, 0, sizeof(waiting));
	for (grant = next_grant(NULL, &chain); grant; grant = next_grant(grant, &chain)) {
		u8 rank = READ_ONCE(grant->rank);

		for (take = 0; take < TAKES; take++)
			to_take[take][rank] += takeable(grant, take);
		waiting[rank] |= READ_ONCE(grant->wanted);
	}
}

static void take_back(struct mm_grant *grant, void *data)
{
	const struct taking *taking = data;
	u32 has = takeable(grant, taking->take);

	if (!locked_since(grant))
		grant_give(grant, grant->size - min_t(u64, has, taking->missing), GIVEN_RECLAIMED);
}

/* Return: whether so much of the budget is left now. */
static bool take_from(unsigned int rank, enum take take, s64 wanted)
{
	struct taking taking = { .take = take };
	struct mm_grant *grant;
	unsigned int chain;

	for (grant = next_grant(NULL, &chain); grant; grant = next_grant(grant, &chain)) {
		s64 has;

		if (READ_ONCE(grant->rank) != rank || !takeable(grant, take))
			continue;
		has = left();
		if (has >= wanted)
			return true;
		taking.missing = wanted - has;
		with_socket(grant, take_back, &taking);
	}
	/* Whatever came of it, nobody of this rank is asked again before the next look. */
	to_take[take][rank] = 0;
	return left() >= wanted;
}

/* Take back from who is less important, the least important first. */
static bool take_below(unsigned int below, enum take take, s64 wanted)
{
	unsigned int rank;

	for (rank = 0; rank < below; rank++)
		if (to_take[take][rank] && take_from(rank, take, wanted))
			return true;
	return false;
}

static u64 to_be_had(unsigned int below, enum take take)
{
	unsigned int rank;
	u64 sum = 0;

	for (rank = 0; rank < below; rank++)
		sum += to_take[take][rank];
	return sum;
}

/* A step of less than an eighth is not worth another look at each packet. */
static u32 least_step(const struct mm_grant *grant)
{
	return grant->size / 8;
}

/* As much as there is of what it waits for. */
static void relieve(struct mm_grant *grant, void *data)
{
	u32 most = size_most(grant, grant->rank);
	s64 to = min_t(s64, min(grant->wanted, most), grant->size + grants_left());

	if (!grant->wanted)
		return;
	if (mm_knob(MM_KNOB_MODE) == MM_MODE_OBSERVE) {
		WRITE_ONCE(grant->wanted, 0);
		return;
	}
	if (to < (s64)grant->size + least_step(grant)) {
		grant_refused(grant, REFUSED_BUDGET);
	} else if (!size_memory_for(grant->sk, to - grant->size)) {
		grant_refused(grant, REFUSED_MEMORY);
	} else {
		grant_relieved(grant);
		if (grant_resize(grant, to))
			grant_grows(grant, to < most);
	}
}

/*
 * Make room for one, of what less important ones do not use or, where that is too little,
 * use. Return: whether it had to be looked for.
 */
static bool look_for(const struct mm_grant *grant)
{
	u32 wanted = min(READ_ONCE(grant->wanted), size_most(grant, grant->rank));
	s64 missing = (s64)wanted - grant->size;
	s64 has = left();
	bool looked = false;
	enum take take;

	if (mm_knob(MM_KNOB_MODE) == MM_MODE_OBSERVE || missing < least_step(grant) ||
	    !size_memory_for(grant->sk, missing))
		return false;
	for (take = TAKE_UNUSED; take <= TAKE_USED && has < missing; take++, has = left()) {
		s64 more = to_be_had(grant->rank, take);

		if (!more || has + more < least_step(grant))
			continue;
		take_below(grant->rank, take, missing);
		looked = true;
	}
	return looked;
}

/* Give one what it waits for, or what there is of it. Return: whether it was looked for. */
static bool serve(struct mm_grant *grant)
{
	bool looked = look_for(grant);

	/* A socket that is owned asks again when its owner receives. */
	if (!with_socket(grant, relieve, NULL))
		WRITE_ONCE(grant->wanted, 0);
	return looked;
}

/*
 * Each at most once, as who is refused may ask again soon. A search ends with its aim
 * reached, or with nothing more to be had from a rank: so there are few of them. Whom
 * SERVED others were looked for before waits for the next round.
 */
static void relieve_all(void)
{
	unsigned int rank = PFLOW_RANKS, served = 0, chain;
	struct mm_grant *grant;

	while (rank--) {
		if (!waiting[rank])
			continue;
		for (grant = next_grant(NULL, &chain); grant; grant = next_grant(grant, &chain)) {
			if (!READ_ONCE(grant->wanted) || READ_ONCE(grant->rank) != rank)
				continue;
			served += serve(grant);
			if (served == SERVED)
				return;
		}
	}
}

/* The administrator made it smaller: what is unused goes first, then what is used too. */
static void keep_budget(void)
{
	if (left() >= 0)
		return;
	survey();
	if (!take_below(PFLOW_RANKS, TAKE_UNUSED, 0))
		take_below(PFLOW_RANKS, TAKE_ALL, 0);
}

/* Can it still grow, by its limit and by what less important ones could give? */
static void tell_grows(struct mm_grant *grant, void *data)
{
	const unsigned int *giver = data;
	bool room = grants_left() >= least_step(grant) || *giver < grant->rank;
	bool may = mm_knob(MM_KNOB_MODE) == MM_MODE_ENFORCE && !grant->stuck;

	grant_grows(grant, may && room && grant->size < size_most(grant, grant->rank));
}

static void tell_all(void)
{
	struct mm_grant *grant;
	unsigned int chain, giver;

	for (giver = 0; giver < PFLOW_RANKS; giver++)
		if (to_take[TAKE_UNUSED][giver] || to_take[TAKE_USED][giver])
			break;
	for (grant = next_grant(NULL, &chain); grant; grant = next_grant(grant, &chain))
		change_udp(grant, tell_grows, &giver);
}

static void keeper(struct work_struct *work)
{
	attend_all();
	keep_budget();
	survey();
	relieve_all();
	tell_all();
	/* What is given back is the sooner free the less memory there is: it waits for none. */
	if (!grants_refill(GFP_NOWAIT) || grants_any())
		keeper_wake(false);
}

/**
 * keeper_wake() - have the keeper look
 * @now: at once, and not within a tenth of a second
 *
 * Context: any but NMI.
 */
void keeper_wake(bool now)
{
	if (now)
		mod_delayed_work(queue, &keeper_work, 0);
	else
		queue_delayed_work(queue, &keeper_work, PERIOD);
}

/**
 * keeper_setup() - have it ready
 *
 * Context: process, may sleep. Return: 0 or -ENOMEM.
 */
int keeper_setup(void)
{
	stopping = false;
	queue = alloc_workqueue("pf_mm", WQ_UNBOUND | WQ_HIGHPRI | WQ_MEM_RECLAIM, 0);
	return queue ? 0 : -ENOMEM;
}

static void abandon(struct mm_grant *grant, void *data)
{
	size_set_unlocked(grant);
	grant_forget(grant, GIVEN_STOPPED);
}

static void abandon_all(void)
{
	struct mm_grant *grant, *next;
	unsigned int chain;

	for (grant = next_grant(NULL, &chain); grant; grant = next) {
		next = next_grant(grant, &chain);
		change_udp(grant, abandon, NULL);
		release(grant);
	}
}

/**
 * keeper_teardown() - restore every buffer and stop
 *
 * A TCP socket that is owned all the time for a second is restored without its lock.
 *
 * Context: process, may sleep; no hook is attached.
 */
void keeper_teardown(void)
{
	unsigned int tries;

	cancel_delayed_work_sync(&keeper_work);
	stopping = true;
	attend_all();
	for (tries = 0; grants_any() && tries < STOP_TRIES; tries++) {
		msleep(STOP_APART_MS);
		attend_all();
	}
	abandon_all();
	destroy_workqueue(queue);
}
