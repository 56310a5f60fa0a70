// SPDX-License-Identifier: GPL-2.0-only
/*
 * Grants: the sockets whose buffer fills, from when that is found to when it is over.
 *
 * A grant begins when a buffer is found fuller than its threshold. It ends when the socket goes,
 * when somebody else sets its size, or when it was not used for a while. The packet path begins
 * grants (grow.c), and the keeper ends them (attend.c). What they have is in the account
 * (account.c). All this is done under one raw lock. It is taken when a size changes, which is a few
 * times in a burst, and once a jiffy for a buffer that fills and cannot grow.
 *
 * A grant holds its socket, so that what was changed can be restored. The address alone would not
 * do: it may be another socket's later, and a probe can miss a release. When a grant takes its
 * reference, the caller is under RCU or holds the socket's lock. If the last reference is gone by
 * then, no grant begins. A held socket that was closed keeps its namespace and what is queued. So
 * pf_common tells of each release, which wakes the keeper. Besides, the keeper looks ten times a
 * second whether a socket is dead.
 *
 * Grants come from a pool that the keeper refills. So nothing is allocated where packets are
 * received.
 */
#include <linux/rculist.h>
#include <linux/slab.h>

#include "mm.h"

DEFINE_RAW_SPINLOCK(grants_lock);
struct hlist_head grants[GRANT_CHAINS];

/*
 * The keeper looks at each grant ten times a second, also at those of sockets that only stand full.
 * So their number is bounded, and a user has no more of them than are left. So some always are.
 */
#define GRANTS_MOST	8192

/* All under grants_lock. */
static HLIST_HEAD(pool);
static unsigned int pool_size;
static u16 grants_of[GRANT_USERS];

/**
 * grants_refill() - fill the pool of grants
 * @gfp: how
 *
 * Context: process, or as @gfp lets it. Return: whether it is full.
 */
bool grants_refill(gfp_t gfp)
{
	while (READ_ONCE(pool_size) < POOL_FULL) {
		struct mm_grant *grant = kzalloc(sizeof(*grant), gfp | __GFP_NOWARN);
		unsigned long irq;

		if (!grant)
			return false;
		raw_spin_lock_init(&grant->counting);
		raw_spin_lock_irqsave(&grants_lock, irq);
		hlist_add_head(&grant->node, &pool);
		WRITE_ONCE(pool_size, pool_size + 1);
		raw_spin_unlock_irqrestore(&grants_lock, irq);
	}
	return true;
}

/**
 * grants_pooled() - how many grants are left in the pool
 *
 * Context: any; under grants_lock it stays so. Return: how many.
 */
unsigned int grants_pooled(void)
{
	return READ_ONCE(pool_size);
}

static bool grants_left_for(u8 user)
{
	return READ_ONCE(pool_size) &&
	       READ_ONCE(grants_of[user]) < GRANTS_MOST - READ_ONCE(grant_counts.number);
}

/**
 * grants_may_begin() - can a grant begin for this socket?
 * @sk: it
 * @entry: its entry in the table
 *
 * Context: RCU read side; under grants_lock it stays so. Return: whether one can.
 */
bool grants_may_begin(const struct sock *sk, const struct pflow_sock *entry)
{
	return grants_left_for(grant_user(sk, entry));
}

/**
 * grants_any() - is there any grant?
 *
 * Context: any. Return: whether there is.
 */
bool grants_any(void)
{
	return READ_ONCE(grant_counts.number);
}

/**
 * grant_begin() - begin a socket's grant
 * @sk: it; the caller has it under RCU or its lock
 * @entry: its entry in the table
 *
 * Context: under grants_lock, the packet path. Return: the grant; NULL where none is to be had,
 * and of a socket that is being freed, which is let go.
 */
struct mm_grant *grant_begin(struct sock *sk, const struct pflow_sock *entry)
{
	u8 user = grant_user(sk, entry);
	struct mm_grant *grant;

	lockdep_assert_held(&grants_lock);
	if (!grants_left_for(user) || !refcount_inc_not_zero(&sk->sk_refcnt))
		return NULL;
	grant = hlist_entry(pool.first, struct mm_grant, node);
	hlist_del(&grant->node);
	WRITE_ONCE(pool_size, pool_size - 1);
	grant->sk = sk;
	grant->udp = entry->protocol == IPPROTO_UDP;
	grant->user = user;
	grant->locked = size_flagged(sk);
	grant->own = READ_ONCE(sk->sk_rcvbuf);
	grant->size = grant->own;
	grant->goal = grant->own;
	grant->rolled = jiffies;
	grant->drained = jiffies;
	grant->retry = jiffies;
	grant_set_threshold(grant);
	hlist_add_head_rcu(&grant->node, grant_chain(sk));
	WRITE_ONCE(grants_of[user], grants_of[user] + 1);
	WRITE_ONCE(grant_counts.number, grant_counts.number + 1);
	return grant;
}

/**
 * grant_forget() - end a grant, whose socket has its own size again or another's
 * @grant: it; the caller puts the socket and frees it after a grace period
 * @why: reason to count, if it had anything
 *
 * Context: under grants_lock, the keeper or whoever stopped it.
 */
void grant_forget(struct mm_grant *grant, enum mm_given why)
{
	lockdep_assert_held(&grants_lock);
	grant_tell_growable(grant, false);
	grant_charge(grant, (s64)grant->own - grant->size);
	grant_counts.given[why] += grant->size != grant->own;
	hlist_del_rcu(&grant->node);
	WRITE_ONCE(grants_of[grant->user], grants_of[grant->user] - 1);
	WRITE_ONCE(grant_counts.number, grant_counts.number - 1);
}

/**
 * grants_setup() - fill the pool, and begin the account
 *
 * Context: process, may sleep. Return: 0 or -ENOMEM.
 */
int grants_setup(void)
{
	grants_users_setup();
	grants_refill(GFP_KERNEL);
	return pool_size ? 0 : -ENOMEM;
}

/**
 * grants_teardown() - empty the pool
 *
 * Context: process, may sleep; no grant is left, and no hook attached.
 */
void grants_teardown(void)
{
	struct mm_grant *grant;
	struct hlist_node *next;

	hlist_for_each_entry_safe(grant, next, &pool, node)
		kfree(grant);
	INIT_HLIST_HEAD(&pool);
	pool_size = 0;
}
