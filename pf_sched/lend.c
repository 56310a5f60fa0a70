// SPDX-License-Identifier: GPL-2.0-only
/*
 * A raised thread can lend its real-time class on. While it waits for a lock with priority
 * inheritance (a PI futex), the kernel runs whoever holds the lock in the class of the one that
 * waits. The holder may be any thread, on any CPU, and it takes time that nobody charges to it.
 *
 * So the thread that waits is charged instead, as if it ran all the time. The tracepoint
 * sched_pi_setprio tells when a wait begins. As long as the wait lasts, each tick finds it. On a
 * real-time kernel nearly every lock inherits, and a wait that is over by the next tick does not
 * count.
 *
 * Context: the tracepoint's is any, with the run queue's lock held: it only writes a flag.
 */
#include "../common/compat/compat.h"
#include "slots.h"

static void on_pi_setprio(void *unused, struct task_struct *holder, struct task_struct *waits)
{
	unsigned int i;

	if (!waits)
		return;
	for (i = 0; i < SLOTS; i++)
		if (READ_ONCE(slots[i].boost.task) == waits)
			WRITE_ONCE(slots[i].lent, true);
}

static struct pflow_trace inherited = {
	"sched_pi_setprio", on_pi_setprio, "threads may lend their boosts on by locks, uncharged",
};

static bool task_waits_for_lock(const struct task_struct *task)
{
#ifdef CONFIG_RT_MUTEXES
	return data_race(READ_ONCE(task->pi_blocked_on));	/* compared only, never followed */
#else
	return false;
#endif
}

/**
 * lend_found() - did a raised thread lend its class since the last tick?
 * @slot: of it
 *
 * Context: under slots_lock, pf_sched's thread. Return: whether it did, or does now.
 */
bool lend_found(struct slot *slot)
{
	bool lent = READ_ONCE(slot->lent);

	lockdep_assert_held(&slots_lock);
	WRITE_ONCE(slot->lent, false);
	return slot->state != SLOT_GHOST && lever_above_groups(slot->boost.lever) &&
	       (lent || task_waits_for_lock(slot->boost.task));
}

/**
 * lend_setup() - watch for threads that lend their class
 *
 * Context: process, may sleep. Return: 0 or a negative error.
 */
int lend_setup(void)
{
	return IS_ENABLED(CONFIG_PREEMPT_RT) ? 0 : pflow_trace_attach(&inherited);
}

/**
 * lend_teardown() - stop watching
 *
 * Context: process, may sleep. The probe runs nowhere any more on return.
 */
void lend_teardown(void)
{
	pflow_trace_detach(&inherited);
}
