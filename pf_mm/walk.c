// SPDX-License-Identifier: GPL-2.0-only
/*
 * The keeper's walk from grant to grant, and the locks that changing one takes.
 *
 * The keeper alone ends grants. So it may walk them without a lock, and sleep between two of them.
 * Meanwhile the packet path adds grants at the heads of chains. These are met the next time.
 *
 * A TCP socket is changed with its spinlock held and only while no process owns it. The
 * keeper never waits for a socket's owner (lock_sock()): the owner may sleep for any time, even on
 * a page fault. A socket that is owned is left for the next time.
 *
 * Context: worker.
 */
#include "mm.h"

/**
 * grant_with_lock() - do something to a grant under grants_lock
 * @grant: it
 * @change: what; nothing that needs the lock of a TCP socket, unless the caller has it
 * @data: passed to @change
 *
 * Context: process; softirqs off where the caller has the socket's lock.
 */
void grant_with_lock(struct mm_grant *grant, grant_change_t change, void *data)
{
	unsigned long irq;

	raw_spin_lock_irqsave(&grants_lock, irq);
	change(grant, data);
	raw_spin_unlock_irqrestore(&grants_lock, irq);
}

static bool grant_with_tcp(struct mm_grant *grant, grant_change_t change, void *data)
{
	bool free;

	local_bh_disable();
	bh_lock_sock(grant->sk);
	free = !sock_owned_by_user(grant->sk);
	if (free)
		grant_with_lock(grant, change, data);
	bh_unlock_sock(grant->sk);
	local_bh_enable();
	return free;
}

/**
 * grant_with_socket() - do something to a grant under all locks that a change of its socket needs
 * @grant: it
 * @change: what
 * @data: passed to @change
 *
 * Context: worker. Return: whether the locks could be had; if not, nothing was done.
 */
bool grant_with_socket(struct mm_grant *grant, grant_change_t change, void *data)
{
	if (!grant->udp)
		return grant_with_tcp(grant, change, data);
	grant_with_lock(grant, change, data);
	return true;
}

/**
 * grant_next() - find the next grant of a walk
 * @before: the grant where the walk is; NULL at its beginning
 * @chain: number of its chain; only this function uses it
 *
 * Only the keeper takes grants away, so the one before is still there. Others get the CPU in
 * between.
 *
 * Context: worker, may sleep. Return: it, or NULL at the end.
 */
struct mm_grant *grant_next(const struct mm_grant *before, unsigned int *chain)
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
