// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where the table's entries come from, and where they go.
 *
 * Sockets are learnt with preemption off inside kprobes, where nothing may sleep. An entry comes
 * from the kernel's allocator, which has a list for each CPU and takes no lock as a rule. It is not
 * asked on PREEMPT_RT, where it may sleep, nor in a kprobe by a breakpoint, which counts as NMI. In
 * these cases, and where no memory is left, entries come from a pool. An unbound worker refills it.
 * When the pool is dry the socket is left to the next scan.
 *
 * Context: as each function says.
 */
#include <linux/hardirq.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "../compat/compat.h"
#include "../internal.h"

#define POOL_FULL	1024	/* entries; the worker fills the pool up to that */
#define POOL_LOW	512	/* entries; with fewer the worker is asked to fill it */

static struct kmem_cache *entries;
static DEFINE_RAW_SPINLOCK(pool_lock);
static HLIST_HEAD(pool);
static unsigned int pool_size;

static void pool_refill_work(struct work_struct *work)
{
	pflow_pool_refill();
}

static DECLARE_WORK(refill, pool_refill_work);
static struct workqueue_struct *queue;

static bool entries_may_be_allocated(void)
{
	return !IS_ENABLED(CONFIG_PREEMPT_RT) && !in_nmi();
}

static struct pflow_sock *pool_take(void)
{
	struct pflow_sock *entry = NULL;
	unsigned long irq;
	bool low;

	raw_spin_lock_irqsave(&pool_lock, irq);
	if (!hlist_empty(&pool)) {
		entry = hlist_entry(pool.first, struct pflow_sock, node);
		hlist_del(&entry->node);
		WRITE_ONCE(pool_size, pool_size - 1);
	}
	low = pool_size < POOL_LOW;
	raw_spin_unlock_irqrestore(&pool_lock, irq);
	if (low)
		queue_work(queue, &refill);
	return entry;
}

/**
 * pflow_pool_take() - take an entry
 *
 * Context: any but NMI itself, preemption may be off. Return: one that is all zero, or NULL.
 */
struct pflow_sock *pflow_pool_take(void)
{
	struct pflow_sock *entry = NULL;

	if (entries_may_be_allocated())
		entry = kmem_cache_zalloc(entries, GFP_NOWAIT | __GFP_NOWARN);
	return entry ?: pool_take();
}

static void pool_add(struct pflow_sock *entry)
{
	unsigned long irq;

	raw_spin_lock_irqsave(&pool_lock, irq);
	hlist_add_head(&entry->node, &pool);
	WRITE_ONCE(pool_size, pool_size + 1);
	raw_spin_unlock_irqrestore(&pool_lock, irq);
}

/**
 * pflow_pool_refill() - fill the pool of entries
 *
 * Context: process, may sleep.
 */
void pflow_pool_refill(void)
{
	while (READ_ONCE(pool_size) < POOL_FULL) {
		struct pflow_sock *entry = kmem_cache_zalloc(entries, GFP_KERNEL | __GFP_NOWARN);

		if (!entry)
			return;
		pool_add(entry);
	}
}

/**
 * pflow_pool_free() - give back an entry that was taken in vain
 * @entry: it, which nobody has seen
 *
 * Context: any but NMI, preemption may be off.
 */
void pflow_pool_free(struct pflow_sock *entry)
{
	if (entries_may_be_allocated()) {
		kmem_cache_free(entries, entry);
		return;
	}
	memset(entry, 0, sizeof(*entry));
	pool_add(entry);
}

static void entry_free(struct rcu_head *rcu)
{
	kmem_cache_free(entries, container_of(rcu, struct pflow_sock, rcu));
}

/**
 * pflow_pool_free_later() - free an entry once nobody can hold it any more
 * @entry: it, out of the table; readers may hold it for a grace period
 *
 * Context: any but NMI.
 */
void pflow_pool_free_later(struct pflow_sock *entry)
{
	call_rcu(&entry->rcu, entry_free);
}

/**
 * pflow_pool_setup() - make the pool, and fill it
 *
 * Context: process, may sleep. Return: 0 or -ENOMEM.
 */
int pflow_pool_setup(void)
{
	entries = pflow_cache_create("pflow_sock", sizeof(struct pflow_sock));
	if (!entries)
		return -ENOMEM;
	queue = alloc_workqueue("packetflow_pool", WQ_UNBOUND, 0);
	if (!queue) {
		kmem_cache_destroy(entries);
		return -ENOMEM;
	}
	pflow_pool_refill();
	return 0;
}

/**
 * pflow_pool_teardown() - free all of it
 *
 * Context: process, may sleep; nothing is taken, and nothing given back, any more.
 */
void pflow_pool_teardown(void)
{
	struct pflow_sock *entry;
	struct hlist_node *next;

	destroy_workqueue(queue);	/* it is done with what was queued */
	rcu_barrier();	/* entry_free() lives in this module */
	hlist_for_each_entry_safe(entry, next, &pool, node)
		kmem_cache_free(entries, entry);
	kmem_cache_destroy(entries);
}
