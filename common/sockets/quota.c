// SPDX-License-Identifier: GPL-2.0-only
/*
 * Quota: which sockets have the places of the table when it is full.
 *
 * As long as there is room nobody is refused. If there is none, a newcomer takes the place of an
 * entry that gives way. A socket on which nobody was seen receiving gives way first, to one on
 * which somebody was. Besides, TCP may hold half of the table, and a user a quarter, and more only
 * as long as nobody else wants it. So sockets that one user opens cost others only the places of
 * sockets on which they were not seen receiving. They get such a place back when they receive.
 *
 * A user is known by the socket's user id, hashed with a key that nobody knows. Two users may
 * meet in one counter; then they share their share.
 *
 * Context: any but NMI. The counters are approximate while several CPUs enter sockets at once, by
 * one for each.
 */
#include <linux/random.h>
#include <linux/siphash.h>

#include "../internal.h"
#include "quota.h"

#define USERS		256	/* as many as pflow_sock.user can tell */
#define IDLE_FOR	(60 * HZ)	/* longer than samples of who receives are apart */

static siphash_key_t key;
static atomic_t users[USERS];	/* entries of each */
static atomic_t kinds[2];	/* entries of UDP and of TCP */

/**
 * pflow_quota_setup() - nobody has any entry
 *
 * Context: process.
 */
void pflow_quota_setup(void)
{
	get_random_bytes(&key, sizeof(key));
}

/**
 * pflow_quota_used() - how many entries there are
 *
 * Context: any. Return: that.
 */
unsigned int pflow_quota_used(void)
{
	return atomic_read(&kinds[false]) + atomic_read(&kinds[true]);
}

/**
 * pflow_quota_newcomer() - what counts of a socket that is to be entered
 * @sk: it; the caller holds it
 * @receives: it was seen receiving
 * @newcomer: filled in
 *
 * Context: any but NMI.
 */
void pflow_quota_newcomer(const struct sock *sk, bool receives, struct pflow_newcomer *newcomer)
{
	kuid_t user = READ_ONCE(sk->sk_uid);

	newcomer->user = siphash_1u32(__kuid_val(user), &key) % USERS;
	newcomer->tcp = sk->sk_protocol == IPPROTO_TCP;
	newcomer->receives = receives;
}

/**
 * pflow_quota_enter() - count an entry that is made
 * @entry: it; it keeps its user, as the socket's may change
 * @newcomer: for whom
 *
 * Context: any.
 */
void pflow_quota_enter(struct pflow_sock *entry, const struct pflow_newcomer *newcomer)
{
	entry->user = newcomer->user;
	atomic_inc(&users[newcomer->user]);
	atomic_inc(&kinds[newcomer->tcp]);
}

/**
 * pflow_quota_leave() - count no more an entry that goes
 * @entry: it
 *
 * Context: any.
 */
void pflow_quota_leave(const struct pflow_sock *entry)
{
	atomic_dec(&users[entry->user]);
	atomic_dec(&kinds[entry->protocol == IPPROTO_TCP]);
}

static unsigned int table_most(void)
{
	return READ_ONCE(pflow_knobs[PFLOW_KNOB_MAX_SOCKETS].value);
}

static bool user_has_his_share(u8 user)
{
	return atomic_read(&users[user]) >= table_most() / 4;
}

/* Does TCP have so much of the table that UDP may displace some of it? */
static bool tcp_has_its_share(void)
{
	return atomic_read(&kinds[true]) >= table_most() / 2;
}

/**
 * pflow_quota_full() - is there no room left?
 *
 * Context: any. Return: whether something has to give way to whoever comes.
 */
bool pflow_quota_full(void)
{
	return pflow_quota_used() >= table_most();
}

/**
 * pflow_quota_may_displace() - is it worthwhile to look for what gives way?
 * @newcomer: to whom
 *
 * Context: any. Return: whether anything may.
 */
bool pflow_quota_may_displace(const struct pflow_newcomer *newcomer)
{
	return newcomer->receives || !user_has_his_share(newcomer->user) ||
	       (!newcomer->tcp && tcp_has_its_share());
}

/* Is nobody known to have received there lately? */
static bool entry_merely_holds(const struct pflow_sock *entry)
{
	if (pflow_recent(READ_ONCE(entry->drained), PFLOW_HOLD))
		return false;
	return READ_ONCE(entry->learnt) == PFLOW_HOLDS ||
	       !pflow_recent(READ_ONCE(entry->last_received), IDLE_FOR);
}

/**
 * pflow_quota_gives_way() - does an entry give way to a newcomer?
 * @entry: it
 * @newcomer: to whom
 * @hard: no entry was found on which nobody was seen receiving
 *
 * An entry stays if pf_sched has elected its receiver. These are few. An entry stays, too, if pf_mm
 * lets its buffer grow, or if it knows of drops that its socket does not know of yet (@owed), until
 * a scan has told the socket. But a user who has too much can have many of these, so they do not
 * stay then.
 *
 * Context: any; the lock of the entry's chain is held. Return: whether it does.
 */
bool pflow_quota_gives_way(const struct pflow_sock *entry, const struct pflow_newcomer *newcomer,
			   bool hard)
{
	bool too_much = user_has_his_share(entry->user) && !user_has_his_share(newcomer->user);
	bool tcp = entry->protocol == IPPROTO_TCP;

	if (test_bit(PFLOW_SOCK_PP, &entry->flags))
		return false;
	if (hard && too_much)
		return true;
	if (test_bit(PFLOW_SOCK_GROWS, &entry->flags) || atomic_read(&entry->owed))
		return false;
	/* A user can easily be seen receiving, but not be sent packets. TCP's are not counted. */
	if (hard)
		return newcomer->receives && !newcomer->tcp && !READ_ONCE(entry->rate);
	if (!entry_merely_holds(entry))
		return false;
	return newcomer->receives || too_much || (tcp && !newcomer->tcp && tcp_has_its_share());
}
