// SPDX-License-Identifier: GPL-2.0-only
/*
 * A raised thread can lend its real-time class on. While it waits for a lock with priority
 * inheritance (a PI futex), the kernel runs whoever holds the lock in the class of the one that
 * waits. The holder may be any thread, on any CPU, and it takes time that nobody charges to it.
 *
 * So the thread that waits is charged instead, as if it ran meanwhile: on its own CPU, and on the
 * one where the holder was. The tracepoint sched_pi_setprio tells when the holder's priority
 * changes, which is when it is lent something and when that is over. It does not tell if two
 * threads lend the same, so each tick looks as well whether the thread still waits.
 *
 * On a real-time kernel a thread also waits so for the kernel's own spinlocks, such as the one that
 * softirqs hold. That does not count.
 *
 * A holder in SCHED_DEADLINE may keep pf_sched's thread from the CPU, and with it all of this. So
 * docs/security.md says what to do about that lever.
 */
#include <linux/sched/clock.h>

#include "../common/compat/compat.h"
#include "slots.h"

static bool task_waits_in_kernel(const struct task_struct *task)
{
	/* Whoever waits sets it before, and it is asked about others as well. */
	return data_race(READ_ONCE(task->__state)) & TASK_RTLOCK_WAIT;
}

/* Add what was lent since the last look, unless the other one has just done so. */
static void lend_count(struct lend *lend, u64 now, u64 since_now)
{
	u64 since = READ_ONCE(lend->since);

	if (since && cmpxchg64(&lend->since, since, since_now) == since && now > since)
		atomic64_add(now - since, &lend->lent_ns);
}

/* Context: any, interrupts off, with the lock of the holder's run queue. So it takes none. */
static void on_pi_setprio(void *unused, struct task_struct *holder, struct task_struct *waits)
{
	u64 now = local_clock() ?: 1;
	unsigned int i;

	if (waits && task_waits_in_kernel(waits))
		waits = NULL;
	for (i = 0; i < SLOTS; i++) {
		struct lend *lend = &slots[i].lend;

		if (waits && READ_ONCE(slots[i].boost.task) == waits) {
			WRITE_ONCE(lend->holder, holder);
			WRITE_ONCE(lend->cpu, task_cpu(holder));
			cmpxchg64(&lend->since, 0, now);
		} else if (READ_ONCE(lend->holder) == holder) {
			WRITE_ONCE(lend->holder, NULL);
			lend_count(lend, now, 0);
		}
	}
}

static struct pflow_trace inherited = {
	"sched_pi_setprio", on_pi_setprio, "threads may lend their boosts on by locks, uncharged",
};

static bool task_waits_for_lock(const struct task_struct *task)
{
#ifdef CONFIG_RT_MUTEXES
	/* Compared only, never followed. */
	return data_race(READ_ONCE(task->pi_blocked_on)) && !task_waits_in_kernel(task);
#else
	return false;
#endif
}

/**
 * lend_begin() - nothing is lent yet
 * @slot: of a thread that is elected
 *
 * Context: under slots_lock.
 */
void lend_begin(struct slot *slot)
{
	lockdep_assert_held(&slots_lock);
	WRITE_ONCE(slot->lend.holder, NULL);
	WRITE_ONCE(slot->lend.since, 0);
	WRITE_ONCE(slot->lend.cpu, slot->home);
	atomic64_set(&slot->lend.lent_ns, 0);
}

/**
 * lend_take() - for how long has a raised thread lent its class since this was asked last?
 * @slot: of it
 *
 * Context: under slots_lock, pf_sched's thread. Return: microseconds.
 */
u32 lend_take(struct slot *slot)
{
	bool waits = task_waits_for_lock(slot->boost.task);
	struct lend *lend = &slot->lend;
	u64 now = local_clock() ?: 1;

	lockdep_assert_held(&slots_lock);
	lend_count(lend, now, waits ? now : 0);
	/* Nobody told of it, nor where the holder is. */
	if (waits && !cmpxchg64(&lend->since, 0, now) && !READ_ONCE(lend->holder))
		WRITE_ONCE(lend->cpu, task_cpu(slot->boost.task));
	return div_u64(atomic64_xchg(&lend->lent_ns, 0), NSEC_PER_USEC);
}

/**
 * lend_setup() - watch for threads that lend their class
 *
 * Context: process, may sleep. Return: 0 or a negative error.
 */
int lend_setup(void)
{
	return pflow_trace_attach(&inherited);
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
