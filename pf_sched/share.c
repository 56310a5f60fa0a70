// SPDX-License-Identifier: GPL-2.0-only
/*
 * The share: the CPU time of raised threads is counted against a budget for each CPU. Ended
 * boosts that are still remembered (ghosts, slots.h) count, too. When the budget is spent boosts
 * end, those of the less important first.
 */
#include <linux/percpu.h>

#include "slots.h"

static DEFINE_PER_CPU(s32, budget_us);
static DEFINE_PER_CPU(atomic_t, used_us);	/* of it; added to under the lock, taken without */

/**
 * share_setup() - begin with empty budgets
 *
 * Context: nobody is elected.
 */
void share_setup(void)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		per_cpu(budget_us, cpu) = 0;
		atomic_set(per_cpu_ptr(&used_us, cpu), 0);
	}
}

/**
 * share_part() - a part of a full budget
 * @percent: of it
 *
 * Context: any. Return: microseconds.
 */
s32 share_part(unsigned int percent)
{
	return PFLOW_BUDGET_US / 10000 * sched_knob(SCHED_KNOB_CAP) * percent;
}

/**
 * share_left() - what is left of a CPU's budget
 * @cpu: which
 *
 * Context: any. Return: microseconds; less than 0 is what was taken too much.
 */
s32 share_left(int cpu)
{
	return READ_ONCE(per_cpu(budget_us, cpu));
}

/**
 * share_of_others() - what of a CPU's budget is left to others
 * @rank: of who asks
 * @cpu: which
 *
 * Context: under slots_lock. Return: microseconds; 0 if nobody more important was raised there
 * lately.
 */
s32 share_of_others(u8 rank, int cpu)
{
	unsigned int i;

	lockdep_assert_held(&slots_lock);
	for (i = 0; i < SLOTS; i++)
		if (slots[i].state != SLOT_FREE && slots[i].cpu == cpu && slots[i].rank > rank)
			return share_part(50);
	return 0;
}

/* For how long softirqs have received on top of a thread, as far as that is measured. */
static u64 task_stolen_ns(const struct task_struct *task)
{
	const struct pflow_thread *thread = pflow_thread_find(task->pid);

	return thread ? READ_ONCE(thread->stolen_ns) : 0;
}

/**
 * share_begin() - what a thread took until now is not of its boost
 * @slot: of the thread
 *
 * Context: under slots_lock.
 */
void share_begin(struct slot *slot)
{
	lockdep_assert_held(&slots_lock);
	slot->ran_ns = READ_ONCE(slot->boost.task->se.sum_exec_runtime);
	slot->stolen_ns = task_stolen_ns(slot->boost.task);
	slot->cpu = task_cpu(slot->boost.task);
}

/**
 * share_charge() - charge a thread's CPU time to the CPU's share
 * @slot: of the thread
 *
 * The scheduler takes a softirq's time for that of the thread underneath, which can be most of it.
 *
 * Context: under slots_lock. Return: what it took itself since it was last looked at, in ns.
 */
u64 share_charge(struct slot *slot)
{
	u64 ran_ns = READ_ONCE(slot->boost.task->se.sum_exec_runtime);
	u64 stolen_ns = task_stolen_ns(slot->boost.task);
	u64 took_ns = ran_ns - slot->ran_ns;
	int cpu = task_cpu(slot->boost.task);

	lockdep_assert_held(&slots_lock);
	/* Who is forgotten among the receivers, and met again, begins at 0. */
	if (stolen_ns > slot->stolen_ns)
		took_ns -= min(took_ns, stolen_ns - slot->stolen_ns);
	slot->stolen_ns = stolen_ns;
	slot->ran_ns = ran_ns;
	/* Of one that moved it is not known where it ran: both may have borne it. */
	atomic_add(div_u64(took_ns, NSEC_PER_USEC), per_cpu_ptr(&used_us, cpu));
	if (cpu != slot->cpu)
		atomic_add(div_u64(took_ns, NSEC_PER_USEC), per_cpu_ptr(&used_us, slot->cpu));
	slot->cpu = cpu;
	return took_ns;
}

/**
 * share_settle() - fill each CPU's budget, and take from it what was charged
 * @elapsed_us: since the last time
 *
 * Context: pf_sched's thread; only it writes budgets. Return: what is left of the one that is used
 * most, microseconds.
 */
s32 share_settle(u32 elapsed_us)
{
	unsigned int cap = sched_knob(SCHED_KNOB_CAP);
	s32 least = S32_MAX;
	int cpu;

	for_each_possible_cpu(cpu) {
		u32 used = atomic_xchg(per_cpu_ptr(&used_us, cpu), 0);
		s32 budget = pflow_budget_step(per_cpu(budget_us, cpu), used, elapsed_us, cap);

		WRITE_ONCE(per_cpu(budget_us, cpu), budget);
		least = min(least, budget);
	}
	return least;
}
