// SPDX-License-Identifier: GPL-2.0-only
/*
 * The shared table (sockbuf_table, Fig. 5 of the paper): one entry a socket.
 *
 * It is a fixed array of RCU hash chains. An entry is found by the socket's address. The cookie
 * tells the socket from a later one at the same address, since TCP sockets are recycled without a
 * grace period. Readers hold nothing but RCU. Writing is rare: a socket is bound, accepted, first
 * received on, or released. A writer takes one of a few raw locks, by chain. A spinlock would not
 * do: writers run inside kprobes with preemption off, where a spinlock of PREEMPT_RT would sleep.
 *
 * Entries come from a pool (pool.c). An entry is freed a grace period after it left its chain. It
 * keeps nothing alive, and nothing keeps it. If the table is full, an entry gives way to a
 * newcomer, or the newcomer is refused (quota.c).
 *
 * Context: readers, RCU read side; writers, any but NMI, preemption may be off.
 */
#include <linux/hash.h>
#include <linux/mm.h>
#include <linux/rculist.h>
#include <linux/slab.h>
#include <linux/sock_diag.h>
#include <linux/spinlock.h>

#include "../compat/compat.h"
#include "../internal.h"
#include "quota.h"

#define LOCKS		256
#define CHAIN_LENGTH	4	/* at most sockets; sizes the array */
#define LOOK_AT		64	/* chains, or entries, that are searched for one that gives way */
#define LIFE_UNSEEN	(60 * HZ)	/* an entry not seen for longer is taken for dead */

/* With its chain, an entry is to take no more than 256 bytes. */
static_assert(sizeof(struct pflow_sock) <= 240);

static struct hlist_head *buckets __read_mostly;
static unsigned int bucket_bits __read_mostly;
static raw_spinlock_t locks[LOCKS];
/* Entries that left the chains of a lock. Each packet of a remembered flow reads one. */
static u32 departures[LOCKS] ____cacheline_aligned;
static atomic_long_t refused, starved, reaped, displaced;

static unsigned int table_bucket_of(const struct sock *sk)
{
	return hash_ptr(sk, bucket_bits);
}

static raw_spinlock_t *table_lock_of(unsigned int bucket)
{
	return &locks[bucket % LOCKS];
}

/**
 * pflow_sock_lock() - the lock that guards an entry's owner
 * @entry: entry, found under RCU
 *
 * Context: any. Return: the lock; take it with interrupts off.
 */
raw_spinlock_t *pflow_sock_lock(const struct pflow_sock *entry)
{
	return table_lock_of(table_bucket_of(entry->sk));
}

/*
 * Readers may hold the entry for a grace period. A reader that sees the new count of departures
 * sees that the entry has left, too, and takes no lease of it. A reader that holds a lease and
 * still sees the old count is in a read-side section that the entry outlives, as its grace period
 * begins later.
 */
static void entry_unlink(struct pflow_sock *entry)
{
	unsigned int lock = table_bucket_of(entry->sk) % LOCKS;

	lockdep_assert_held(&locks[lock]);
	hlist_del_rcu(&entry->node);
	set_bit(PFLOW_SOCK_LEFT, &entry->flags);
	/* Pairs with pflow_lease_take(). */
	smp_store_release(&departures[lock], departures[lock] + 1);
	pflow_quota_leave(entry);
	pflow_pool_free_later(entry);
}

static u64 socket_cookie(struct sock *sk)
{
	u32 half[2];

	/* The exported way to have the kernel give a socket its cookie. */
	sock_diag_save_cookie(sk, half);
	return half[0] | (u64)half[1] << 32;
}

/**
 * pflow_sock_find() - look up a socket
 * @sk: socket that the caller may read for now
 *
 * Context: RCU read side; any. Return: the entry, good until the caller's read-side section ends,
 * or NULL if the socket has none.
 */
struct pflow_sock *pflow_sock_find(const struct sock *sk)
{
	return pflow_sock_find_as(sk, atomic64_read(&sk->sk_cookie));
}
EXPORT_SYMBOL_GPL(pflow_sock_find);

/**
 * pflow_sock_find_as() - look up a socket by its identity alone
 * @sk: its address, which is not followed: the socket may be gone
 * @cookie: its cookie
 *
 * Context: RCU read side; any. Return: as pflow_sock_find().
 */
struct pflow_sock *pflow_sock_find_as(const struct sock *sk, u64 cookie)
{
	struct pflow_sock *entry;

	hlist_for_each_entry_rcu(entry, &buckets[table_bucket_of(sk)], node)
		if (entry->sk == sk && entry->cookie == cookie)
			return entry;
	return NULL;
}
EXPORT_SYMBOL_GPL(pflow_sock_find_as);

/**
 * pflow_lease_take() - have an entry that was found be known without another look-up
 * @lease: filled in; holds no more if the entry has left the table meanwhile
 * @entry: the entry, found in the caller's read-side section
 *
 * Context: RCU read side; any.
 */
void pflow_lease_take(struct pflow_lease *lease, const struct pflow_sock *entry)
{
	lease->departures = &departures[table_bucket_of(entry->sk) % LOCKS];
	/* Pairs with entry_unlink(): with the new count comes that the entry has left. */
	lease->known = smp_load_acquire(lease->departures);
	if (test_bit(PFLOW_SOCK_LEFT, &entry->flags))
		lease->known--;
}
EXPORT_SYMBOL_GPL(pflow_lease_take);

/**
 * pflow_sock_settle() - add to a socket's drop counter what was dropped without it
 * @entry: the socket's entry
 * @sk: the socket, which the caller may write to
 *
 * Context: RCU read side; any.
 */
void pflow_sock_settle(struct pflow_sock *entry, struct sock *sk)
{
	if (atomic_read(&entry->owed))
		pflow_sk_drops_add(sk, atomic_xchg(&entry->owed, 0));
}
EXPORT_SYMBOL_GPL(pflow_sock_settle);

/* Look in one chain for an entry that gives way. Return: whether one did. */
static bool bucket_make_room(unsigned int bucket, const struct pflow_newcomer *newcomer, bool hard,
			     unsigned int *looked)
{
	struct pflow_sock *entry;
	unsigned long irq;
	bool found = false;

	if (hlist_empty(&buckets[bucket]))
		return false;
	raw_spin_lock_irqsave(table_lock_of(bucket), irq);
	hlist_for_each_entry(entry, &buckets[bucket], node) {
		++*looked;
		found = pflow_quota_gives_way(entry, newcomer, hard);
		if (found) {
			entry_unlink(entry);
			break;
		}
	}
	raw_spin_unlock_irqrestore(table_lock_of(bucket), irq);
	return found;
}

/*
 * A hand goes round the chains, like that of a clock. For each newcomer it goes on and looks at a
 * few, so that costs no more however many entries there are. Nobody can know which are next, since
 * the place of an entry depends on its socket's address.
 */
static bool hand_finds_room(const struct pflow_newcomer *newcomer, bool hard)
{
	static atomic_t hand;
	unsigned int looked = 0, n;

	for (n = 0; n < LOOK_AT && looked < LOOK_AT; n++) {
		unsigned int bucket = atomic_inc_return(&hand) & (pflow_table_buckets() - 1);

		if (bucket_make_room(bucket, newcomer, hard, &looked))
			return true;
	}
	return false;
}

/*
 * If a look was in vain, no other is made in the same jiffy for a socket on which nobody was seen
 * receiving. A scan meets many more of those than there is room for.
 */
static bool table_has_room(const struct pflow_newcomer *newcomer)
{
	static u32 vain_at;

	if (likely(!pflow_quota_full()))
		return true;
	if (!pflow_quota_may_displace(newcomer) ||
	    (!newcomer->receives && READ_ONCE(vain_at) == (u32)jiffies))
		return false;
	if (hand_finds_room(newcomer, false) || hand_finds_room(newcomer, true)) {
		atomic_long_inc(&displaced);
		return true;
	}
	if (!newcomer->receives)
		WRITE_ONCE(vain_at, (u32)jiffies);
	return false;
}

static struct pflow_sock *entry_make(struct sock *sk, u64 cookie)
{
	struct pflow_sock *entry = pflow_pool_take();

	if (!entry)
		return NULL;
	entry->sk = sk;
	entry->cookie = cookie;
	entry->family = sk->sk_family;
	entry->protocol = sk->sk_protocol;
	entry->netns = sock_net(sk)->ns.inum;
	entry->run_cpu = PFLOW_CPU_UNKNOWN;
	entry->window_start = jiffies;
	entry->last_seen = jiffies;
	entry->last_received = jiffies;
	entry->drained = pflow_stamp_past(PFLOW_HOLD);
	entry->room = U32_MAX;		/* not known, so the first look is not taken for relief */
	return entry;
}

/* Return: the socket's entry, which another CPU may have entered meanwhile. */
static struct pflow_sock *entry_enter(struct pflow_sock *made,
				      const struct pflow_newcomer *newcomer)
{
	unsigned int bucket = table_bucket_of(made->sk);
	struct pflow_sock *entry, *stale = NULL;
	unsigned long irq;

	raw_spin_lock_irqsave(table_lock_of(bucket), irq);
	hlist_for_each_entry(entry, &buckets[bucket], node) {
		if (entry->sk != made->sk)
			continue;
		if (entry->cookie == made->cookie)
			goto unlock;
		stale = entry;
	}
	/* The release of the socket that stood here before was missed. */
	if (stale) {
		entry_unlink(stale);
		atomic_long_inc(&reaped);
	}
	entry = made;
	pflow_quota_enter(entry, newcomer);
	hlist_add_head_rcu(&entry->node, &buckets[bucket]);
unlock:
	raw_spin_unlock_irqrestore(table_lock_of(bucket), irq);
	return entry;
}

/**
 * pflow_sock_get() - find a process's socket, or enter it
 * @sk: socket of a process, which the caller holds
 * @met: how it was come by
 *
 * UDP and TCP sockets of both families are entered, in every namespace. A socket that is not bound
 * receives nothing and takes no entry.
 *
 * Context: RCU read side; preemption may be off. Return: the entry as from
 * pflow_sock_find(), or NULL.
 */
struct pflow_sock *pflow_sock_get(struct sock *sk, enum pflow_met met)
{
	struct pflow_newcomer newcomer;
	struct pflow_sock *entry, *made;

	/* The type is asked, too: a raw socket may have the same protocol number. */
	if (!sk_fullsock(sk) || (!sk_is_udp(sk) && !sk_is_tcp(sk)))
		return NULL;
	entry = pflow_sock_find(sk);
	if (entry)
		return entry;
	if (met != PFLOW_MET_MADE && !pflow_sock_bound(sk))
		return NULL;
	pflow_quota_newcomer(sk, met == PFLOW_MET_RECEIVING, &newcomer);
	if (!table_has_room(&newcomer)) {
		atomic_long_inc(&refused);
		return NULL;
	}
	made = entry_make(sk, socket_cookie(sk));
	if (!made) {
		atomic_long_inc(&starved);
		return NULL;
	}
	entry = entry_enter(made, &newcomer);
	if (entry != made)
		pflow_pool_free(made);
	return entry;
}

/**
 * pflow_sock_forget() - take a socket out of the table
 * @sk: socket that goes
 *
 * Context: any but NMI.
 */
void pflow_sock_forget(const struct sock *sk)
{
	unsigned int bucket = table_bucket_of(sk);
	struct pflow_sock *entry;
	struct hlist_node *next;
	unsigned long irq;

	if (hlist_empty(&buckets[bucket]))
		return;
	raw_spin_lock_irqsave(table_lock_of(bucket), irq);
	hlist_for_each_entry_safe(entry, next, &buckets[bucket], node)
		if (entry->sk == sk)
			entry_unlink(entry);
	raw_spin_unlock_irqrestore(table_lock_of(bucket), irq);
}

static bool entry_is_dead(const struct pflow_sock *entry, u32 since)
{
	u32 how_long = (u32)jiffies - since + LIFE_UNSEEN;

	return !pflow_recent(READ_ONCE(entry->last_seen), how_long) &&
	       !pflow_recent(READ_ONCE(entry->last_received), how_long);
}

/**
 * pflow_table_reap() - collect entries whose release was missed
 * @since: when the scan began, in jiffies; it may have lasted for long
 *
 * To be called after a scan has met all open sockets. No scan meets a socket that is on its way
 * between two processes, or known to io_uring alone. So an entry goes only after %LIFE_UNSEEN.
 *
 * Context: process.
 */
void pflow_table_reap(u32 since)
{
	unsigned int bucket;

	for (bucket = 0; bucket < pflow_table_buckets(); bucket++) {
		struct pflow_sock *entry;
		struct hlist_node *next;
		unsigned long irq;

		cond_resched();
		if (hlist_empty(&buckets[bucket]))
			continue;
		raw_spin_lock_irqsave(table_lock_of(bucket), irq);
		hlist_for_each_entry_safe(entry, next, &buckets[bucket], node) {
			if (entry_is_dead(entry, since)) {
				entry_unlink(entry);
				atomic_long_inc(&reaped);
			}
		}
		raw_spin_unlock_irqrestore(table_lock_of(bucket), irq);
	}
}

/**
 * pflow_table_clear() - empty the table
 *
 * Context: process, with every probe that could enter a socket detached.
 */
void pflow_table_clear(void)
{
	unsigned int bucket;

	for (bucket = 0; bucket < pflow_table_buckets(); bucket++) {
		struct pflow_sock *entry;
		struct hlist_node *next;
		unsigned long irq;

		raw_spin_lock_irqsave(table_lock_of(bucket), irq);
		hlist_for_each_entry_safe(entry, next, &buckets[bucket], node)
			entry_unlink(entry);
		raw_spin_unlock_irqrestore(table_lock_of(bucket), irq);
		cond_resched();
	}
}

/**
 * pflow_table_buckets() - number of hash chains
 *
 * Context: any. Return: how many pflow_table_bucket() can be asked for.
 */
unsigned int pflow_table_buckets(void)
{
	return 1U << bucket_bits;
}

/**
 * pflow_table_bucket() - visit the entries of one hash chain
 * @bucket: 0..pflow_table_buckets() - 1
 * @fn: called for each, must not sleep
 * @data: for @fn
 *
 * Context: any; takes the RCU read side.
 */
void pflow_table_bucket(unsigned int bucket,
			void (*fn)(struct pflow_sock *entry, void *data), void *data)
{
	struct pflow_sock *entry;

	rcu_read_lock();
	hlist_for_each_entry_rcu(entry, &buckets[bucket], node)
		fn(entry, data);
	rcu_read_unlock();
}

/**
 * pflow_table_for_each() - visit every entry
 * @fn: called for each, must not sleep
 * @data: for @fn
 *
 * Context: process.
 */
void pflow_table_for_each(void (*fn)(struct pflow_sock *entry, void *data), void *data)
{
	unsigned int bucket;

	for (bucket = 0; bucket < pflow_table_buckets(); bucket++) {
		pflow_show_begin();
		pflow_table_bucket(bucket, fn, data);
		pflow_show_end();
		cond_resched();
	}
}

/**
 * pflow_table_stats() - how full the table is
 * @stats: filled in
 *
 * Context: any.
 */
void pflow_table_stats(struct pflow_table_stats *stats)
{
	stats->used = pflow_quota_used();
	stats->max = READ_ONCE(pflow_knobs[PFLOW_KNOB_MAX_SOCKETS].value);
	stats->refused = atomic_long_read(&refused);
	stats->starved = atomic_long_read(&starved);
	stats->reaped = atomic_long_read(&reaped);
	stats->displaced = atomic_long_read(&displaced);
}

/**
 * pflow_table_setup() - make the empty table
 * @max_sockets: sizes the array of chains
 *
 * Context: process, may sleep. Return: 0 or a negative error, and then nothing is left.
 */
int pflow_table_setup(unsigned int max_sockets)
{
	unsigned int i;
	int err;

	bucket_bits = max(order_base_2(max_sockets / CHAIN_LENGTH), 8);
	buckets = kvcalloc(1U << bucket_bits, sizeof(*buckets), GFP_KERNEL);
	if (!buckets)
		return -ENOMEM;
	err = pflow_pool_setup();
	if (err) {
		kvfree(buckets);
		return err;
	}
	for (i = 0; i < LOCKS; i++)
		raw_spin_lock_init(&locks[i]);
	pflow_quota_setup();
	return 0;
}

/**
 * pflow_table_teardown() - free the table
 *
 * Context: process, may sleep; no reader and no writer is left.
 */
void pflow_table_teardown(void)
{
	pflow_table_clear();
	pflow_pool_teardown();
	kvfree(buckets);
}
