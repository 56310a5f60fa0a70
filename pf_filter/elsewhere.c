// SPDX-License-Identifier: GPL-2.0-only
/*
 * Harm elsewhere: a receiver has too little of its CPU, while a less important one is served on
 * another CPU. Nothing more can be done for it on its own CPU: it is shed there for a more
 * important one, or it waits although all below it are shed. The scheduler knows nothing of that.
 * So this receiver counts as harmed on the other CPU, too, if it may run there. Then the less
 * important one is shed, the other CPU idles, and a receiver that wakes goes to an idle CPU
 * (common/threads/place.c). While that CPU idles nobody counts as harmed there. So if no receiver
 * goes there, the less important one is served again.
 *
 * The harm is what the receiver lacks, but at most the time that shedding those below it would
 * give back, as for one that waits (wait.c).
 *
 * Context: the controllers' tick.
 */
#include <linux/cpumask.h>
#include <linux/sched.h>

#include "filter.h"

/* CPUs that have time to spare: as the last tick found them, and as this one has until now. */
static struct cpumask idling, idling_now;

static void harm_note_idle(int cpu)
{
	cpumask_set_cpu(cpu, &idling_now);
}

/* What a cut takes from the busiest receivers of the levels that it sheds. */
static void harm_note_shed(const struct level *levels, const struct order *order,
			   struct pflow_cut cut)
{
	unsigned int i;

	for (i = 0; i < order->n && order->level[i] <= cut.level; i++) {
		const struct level *level = &levels[order->level[i]];
		u32 rate = READ_ONCE(level->top_rate);
		u32 keep = pflow_keep(pflow_cut_share(cut, order->level[i]), rate, rate,
				      READ_ONCE(level->floor), 1);

		harm_note_lack(order->level[i], PFLOW_ONE - keep);
	}
}

/* The tick has been on all CPUs. */
static void harm_end_tick(void)
{
	memcpy(lacked, lacked_now, sizeof(lacked));
	memset(lacked_now, 0, sizeof(lacked_now));
	cpumask_copy(&idling, &idling_now);
	cpumask_clear(&idling_now);
}

/*
 * Might this thread run there? It need not where it may use a CPU that idles already. Which it may
 * use can change meanwhile: then this tick is wrong, and the next is not.
 */
static bool thread_may_come(const struct pflow_thread *thread, int cpu)
{
	struct task_struct *task = pflow_thread_task(thread);

	return task && pflow_task_may_be_placed(task) && cpumask_test_cpu(cpu, task->cpus_ptr) &&
	       !cpumask_intersects(task->cpus_ptr, &idling);
}

/* Is there one of this rank who runs elsewhere, and might run here? Under RCU. */
static bool receivers_may_come(u8 rank, int cpu)
{
	unsigned int i;

	for (i = 0; i < PFLOW_THREADS; i++) {
		const struct pflow_thread *thread = &pflow_threads[i];

		if (READ_ONCE(thread->pid) && READ_ONCE(thread->rank) == rank &&
		    !pflow_thread_on(thread, cpu) && thread_may_come(thread, cpu))
			return true;
	}
	return false;
}

static void harm_weigh_elsewhere(struct harm *worst, const struct usage *usage,
				 const struct order *order, struct pflow_cut cut)
{
	bool begun = cut.level || cut.share;
	int level;

	for (level = PFLOW_LEVELS - 1; level >= 0; level--) {
		u32 share = lacked[level];

		if (share < WAIT_BEGINS || !harm_can_be_helped(order, cut, level))
			continue;
		share = min(share, shedding_would_save(usage, order, level_beneath(level), begun));
		if (share > LOSS_BEARABLE && receivers_may_come(level / 2, usage->cpu)) {
			harm_keep_worst(worst, share, level, FILTER_DROP_HARM);
			return;
		}
	}
}
