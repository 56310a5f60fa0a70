// SPDX-License-Identifier: GPL-2.0-only
/*
 * The keeper takes back what is not used, and makes room for receivers that wait for it.
 *
 * It is a worker. It runs ten times a second while there is a grant, and at once when a socket
 * waits for budget or is being closed. It alone ends grants. It is bound to no CPU and of high
 * priority, since on the CPU that is flooded it would hardly get to run. It never waits for memory.
 *
 * Context: worker, except where said otherwise.
 */
#include <linux/workqueue.h>

#include "mm.h"

#define PERIOD		(HZ / 10)	/* jiffies between two rounds */

static void keeper_round(struct work_struct *work);
static DECLARE_DELAYED_WORK(keeper_work, keeper_round);
static struct workqueue_struct *queue;

static void keeper_round(struct work_struct *work)
{
	grants_attend();
	room_keep_budget();
	room_survey();
	room_relieve();
	room_tell_table();
	/* It must not wait for memory: the less there is, the sooner buffers have to give back. */
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
 * grant_note_close() - have the grant end of a socket that is about to be closed
 * @sk: any; the caller holds it
 *
 * The keeper is there, since pf_common tells only modules that are started.
 *
 * Context: RCU read side; any but NMI.
 */
void grant_note_close(const struct sock *sk)
{
	struct mm_grant *grant = grant_find(sk);

	if (!grant)
		return;
	WRITE_ONCE(grant->closing, true);
	/* If it has nothing of ours there is time. Many sockets may be closed at once. */
	if (READ_ONCE(grant->size) != grant->own)
		keeper_wake(true);
}

/**
 * keeper_setup() - make the keeper's queue
 *
 * Context: process, may sleep. Return: 0 or -ENOMEM.
 */
int keeper_setup(void)
{
	queue = alloc_workqueue("pf_mm", WQ_UNBOUND | WQ_HIGHPRI | WQ_MEM_RECLAIM, 0);
	return queue ? 0 : -ENOMEM;
}

/**
 * keeper_teardown() - restore every buffer and stop
 *
 * Context: process, may sleep; no hook is attached.
 */
void keeper_teardown(void)
{
	cancel_delayed_work_sync(&keeper_work);
	grants_restore();
	destroy_workqueue(queue);
}
