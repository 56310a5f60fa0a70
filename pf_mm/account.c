// SPDX-License-Identifier: GPL-2.0-only
/*
 * The account: what a grant gets and gives back, what all of them have together, and how often
 * buffers grew, shrank and were refused.
 *
 * Each size is changed under grants_lock, and the sum of what is granted with it. So the sum is
 * exact. The table is told here, too, whether a buffer can still grow.
 *
 * There is a sum for each user as well. One user may have all of the budget. But while another
 * user waits that has less than half, the first gets no more than half. Users are kept by a hash
 * that nobody can foretell. Two users that meet there count as one, and get less than they might,
 * never more.
 *
 * Context: under grants_lock, unless said otherwise.
 */
#include <linux/jhash.h>
#include <linux/random.h>

#include "mm.h"

#define REFUSED_FOR	(HZ / 50)	/* jiffies for which a refused buffer does not ask again */
#define WAITED_FOR	HZ		/* jiffies for which a user counts as waiting */

struct grant_counts grant_counts;
DEFINE_PER_CPU(unsigned long, grants_not_pooled);	/* refused as the pool was empty */

static u64 granted_to[GRANT_USERS];
static u32 users_seed;

/* The user that waited last, of those that have less than half. */
static u8 waits_user;
static u32 waits_at;	/* stamp */

/**
 * grants_users_setup() - begin anew
 *
 * Context: process; there is no grant.
 */
void grants_users_setup(void)
{
	memset(granted_to, 0, sizeof(granted_to));
	users_seed = get_random_u32();
	waits_at = 0;
}

/**
 * grant_user() - whose is a socket?
 * @sk: it
 * @entry: its entry in the table
 *
 * Context: RCU read side. Return: 0..%GRANT_USERS - 1.
 */
u8 grant_user(const struct sock *sk, const struct pflow_sock *entry)
{
	return jhash_1word(pflow_sock_user(entry, sk), users_seed) % GRANT_USERS;
}

/**
 * grants_excess() - how much a user has beyond half of the budget
 * @user: grant_user()
 *
 * Context: under grants_lock. Return: bytes; below 0 it is what is left of the half.
 */
s64 grants_excess(u8 user)
{
	lockdep_assert_held(&grants_lock);
	return granted_to[user] - mm_budget() / 2;
}

/**
 * grants_find_greedy() - who has more than half?
 *
 * Context: under grants_lock. Return: the user, or -1: there is one at most.
 */
int grants_find_greedy(void)
{
	unsigned int user;

	lockdep_assert_held(&grants_lock);
	for (user = 0; user < GRANT_USERS; user++)
		if (grants_excess(user) > 0)
			return user;
	return -1;
}

/**
 * grant_note_wait() - note that a buffer has to wait for room
 * @grant: of the socket
 *
 * Context: under grants_lock.
 */
void grant_note_wait(const struct mm_grant *grant)
{
	lockdep_assert_held(&grants_lock);
	if (grants_excess(grant->user) >= 0)
		return;
	waits_user = grant->user;
	waits_at = pflow_stamp_now();
}

/**
 * grant_left() - what is left of the budget to a user
 * @grant: of its socket
 *
 * Context: under grants_lock. Return: bytes; below 0 if it has too much.
 */
s64 grant_left(const struct mm_grant *grant)
{
	lockdep_assert_held(&grants_lock);
	if (waits_user == grant->user || !pflow_within(waits_at, WAITED_FOR))
		return grants_left();
	return min(grants_left(), -grants_excess(grant->user));
}

/**
 * grant_charge() - add to what is granted
 * @grant: to whom
 * @bytes: how much; below 0 to take away
 *
 * Context: under grants_lock.
 */
void grant_charge(const struct mm_grant *grant, s64 bytes)
{
	lockdep_assert_held(&grants_lock);
	grant_counts.granted += bytes;
	granted_to[grant->user] += bytes;
	grant_counts.peak = max(grant_counts.peak, grant_counts.granted);
}

/**
 * grants_left() - what is left of the budget
 *
 * Context: under grants_lock. Return: bytes; below 0 if the budget was made smaller.
 */
s64 grants_left(void)
{
	lockdep_assert_held(&grants_lock);
	return mm_budget() - grant_counts.granted;
}

/**
 * grant_resize() - change a socket's size, and account for it
 * @grant: of the socket
 * @to: bytes, not less than its own size. If it grows, so much is left of the budget. A TCP
 *	buffer keeps what it holds and has promised, and may stay larger
 *
 * Context: as size_set(). Return: whether it was changed.
 */
bool grant_resize(struct mm_grant *grant, u32 to)
{
	lockdep_assert_held(&grants_lock);
	to = size_set(grant, to);
	if (!to)
		return false;
	grant_charge(grant, (s64)to - grant->size);
	grant_counts.grown += to > grant->size;
	/* If it was at its limit, it is below it now. */
	if (to < grant->size)
		WRITE_ONCE(grant->retry, (u32)jiffies);
	grant->stuck = false;
	WRITE_ONCE(grant->size, to);
	grant_set_threshold(grant);
	return true;
}

/**
 * grant_give() - make a buffer smaller
 * @grant: of the socket
 * @to: bytes
 * @why: reason to count
 *
 * If it is becoming smaller already, it does not become larger by this. A buffer that loses room to
 * others does not ask for it back at once, so that they get it.
 *
 * Context: as size_set().
 */
void grant_give(struct mm_grant *grant, u32 to, enum mm_given why)
{
	u32 before = grant->size;

	lockdep_assert_held(&grants_lock);
	to = max(min(to, grant->goal), grant->own);
	if (to < before && grant_resize(grant, to) && grant->size < before)
		grant_counts.given[why]++;
	if (why == GIVEN_RECLAIMED)
		WRITE_ONCE(grant->retry, (u32)jiffies + REFUSED_FOR);
}

/**
 * grant_tell_growable() - tell the table whether a buffer can still grow
 * @grant: of the socket
 * @on: whether it can
 *
 * pf_filter drops nothing for a full buffer (B2) that can still grow.
 *
 * Context: under grants_lock.
 */
void grant_tell_growable(const struct mm_grant *grant, bool on)
{
	struct pflow_sock *entry;

	lockdep_assert_held(&grants_lock);
	rcu_read_lock();
	entry = pflow_sock_find(grant->sk);
	if (entry && test_bit(PFLOW_SOCK_GROWS, &entry->flags) != on) {
		if (on)
			set_bit(PFLOW_SOCK_GROWS, &entry->flags);
		else
			clear_bit(PFLOW_SOCK_GROWS, &entry->flags);
	}
	rcu_read_unlock();
}

/**
 * grant_note_refusal() - note that a buffer that fills does not grow
 * @grant: of the socket
 * @why: reason to count
 *
 * Context: under grants_lock.
 */
void grant_note_refusal(struct mm_grant *grant, enum mm_refusal why)
{
	lockdep_assert_held(&grants_lock);
	grant_counts.refused[why]++;
	grant->stuck = why != REFUSED_BUDGET;
	WRITE_ONCE(grant->wanted, 0);
	WRITE_ONCE(grant->retry, (u32)jiffies + REFUSED_FOR);
	grant_tell_growable(grant, false);
}
