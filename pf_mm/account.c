// SPDX-License-Identifier: GPL-2.0-only
/*
 * The account: what a grant gets and gives back, what all of them have together, and how often
 * buffers grew, shrank and were refused.
 *
 * The sum of what is granted is changed under grants_lock alone, and so is each size: it is
 * exact. Here too the table is told whether a buffer can still grow.
 *
 * Context: under grants_lock, unless said otherwise.
 */
#include "mm.h"

#define REFUSED_FOR	(HZ / 50)

struct grant_counts grant_counts;
DEFINE_PER_CPU(unsigned long, grants_not_pooled);	/* refused as the pool was empty */

/**
 * grants_left() - what is left of the budget
 *
 * Context: under grants_lock. Return: bytes; less than 0 where it was made smaller.
 */
s64 grants_left(void)
{
	lockdep_assert_held(&grants_lock);
	return mm_budget() - grant_counts.granted;
}

/**
 * grant_resize() - change a socket's size, and account for it
 * @grant: of the socket
 * @to: bytes, not less than its own; what it grows by is left of the budget. TCP keeps
 *	what it holds and has promised
 *
 * Context: as size_set(). Return: whether it was changed.
 */
bool grant_resize(struct mm_grant *grant, u32 to)
{
	lockdep_assert_held(&grants_lock);
	to = size_set(grant, to);
	if (!to)
		return false;
	grant_counts.granted = grant_counts.granted + to - grant->size;
	grant_counts.peak = max(grant_counts.peak, grant_counts.granted);
	grant_counts.grown += to > grant->size;
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
 * What is to become smaller still becomes so. Who loses it to others does not ask for it
 * back before they have it.
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
 * grant_grows() - tell the table whether a buffer can still grow: B2 waits for it
 * @grant: of the socket
 * @on: whether it can
 *
 * Context: under grants_lock.
 */
void grant_grows(const struct mm_grant *grant, bool on)
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
 * grant_refused() - a buffer that fills does not grow
 * @grant: of the socket
 * @why: reason to count
 *
 * Context: under grants_lock.
 */
void grant_refused(struct mm_grant *grant, enum mm_refusal why)
{
	lockdep_assert_held(&grants_lock);
	grant_counts.refused[why]++;
	grant->stuck = why != REFUSED_BUDGET;
	WRITE_ONCE(grant->wanted, 0);
	WRITE_ONCE(grant->retry, (u32)jiffies + REFUSED_FOR);
	grant_grows(grant, false);
}
	/* Who was at its limit is below it now. */
	if (to < grant->size)
		WRITE_ONCE(grant->retry, (u32)jiffies);
