// SPDX-License-Identifier: GPL-2.0-only
/*
 * The share: the CPU time of raised threads is counted against a budget for each CPU. When the
 * budget is spent boosts end, those of the less important first. A budget is filled with a share of
 * the CPU's time. Where the CPU never idles, it is a share of what softirqs leave.
 *
 * On each CPU every user has a purse besides. Against the purse counts also what threads take after
 * their boost, for as long as the boost is remembered (ghosts, slots.h). Otherwise threads that
 * take turns at being raised would get the share of the raised, and part of the rest, too. What
 * ghosts take is not charged to the budget. Otherwise a few threads that were raised once, and
 * compute from then on, would keep others from being raised. Nor does it count against a thread
 * that is more important than the ghost. A purse is filled half as fast while another user is
 * raised there, or asks for what is left.
 *
 * A purse is not stored in a place of its own. Each slot keeps what is in the purse of its user,
 * its CPU and its rank. A new slot takes that over from other slots of the same user. So a purse
 * lasts as long as any of its slots.
 *
 * Context: under slots_lock, unless a function says otherwise.
 */
#include <linux/percpu.h>

#include "slots.h"

#define NEVER_IDLE	(PFLOW_ONE / 200)
#define MEMORY_US	80000u	/* the share that idles is a mean that decays in so long */

/**
 * struct stock - what there was of a CPU's time in the last tick
 * @softirq_ns: pflow_load.softirq_ns at its end
 * @idle_us: pflow_cpu_idle_us() then
 * @idle: 0..65536, share of the time lately for which the CPU idled
 * @fill_us: microseconds of which budgets are filled with a share
 */
struct stock {
	u64 softirq_ns;
	u64 idle_us;
	u32 idle;
	u32 fill_us;
};

static DEFINE_PER_CPU(struct stock, stocks);
static DEFINE_PER_CPU(s32, budget_us);
static DEFINE_PER_CPU(atomic_t, used_us);	/* added to under the lock, taken without it */

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
 * share_take_stock() - find what there is of each CPU's time to fill budgets with
 * @elapsed_us: since the last time
 *
 * While softirqs take most of a CPU, a share of all its time may be all that they leave. Then
 * nobody else would run there. So where a CPU never idles their time does not count. Where it has
 * idled a moment ago, everybody else has run who wanted to.
 *
 * Context: pf_sched's thread; only it writes these.
 */
void share_take_stock(u32 elapsed_us)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		struct stock *stock = per_cpu_ptr(&stocks, cpu);
		u64 softirq_ns = READ_ONCE(per_cpu_ptr(&pflow_load, cpu)->softirq_ns);
		u64 softirq_us = div_u64(softirq_ns - stock->softirq_ns, NSEC_PER_USEC);
		u64 idle_us = pflow_cpu_idle_us(cpu);
		/* Read from another CPU it may seem to step back. */
		s64 idled_us = clamp_t(s64, idle_us - stock->idle_us, 0, elapsed_us);
		u32 idle = div_u64(idled_us * PFLOW_ONE, max(elapsed_us, 1u));

		stock->idle += div_s64(((s64)idle - stock->idle) * min(elapsed_us, MEMORY_US),
				       MEMORY_US);
		stock->fill_us = elapsed_us;
		if (stock->idle < NEVER_IDLE)
			stock->fill_us -= min_t(u64, softirq_us, elapsed_us);
		stock->softirq_ns = softirq_ns;
		stock->idle_us = idle_us;
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

/* What is left of a CPU's budget; below 0 is what was taken too much. */
static s32 share_left(int cpu)
{
	return READ_ONCE(per_cpu(budget_us, cpu));
}

/* Was anybody more important raised there lately? With @own, only the asker's own user counts. */
static bool share_raised_above(const struct asker *asker, bool own)
{
	unsigned int i;

	lockdep_assert_held(&slots_lock);
	for (i = 0; i < SLOTS; i++)
		if (slots[i].state != SLOT_FREE && slots[i].cpu == asker->cpu &&
		    slots[i].rank > asker->rank && (!own || slots[i].user == asker->user))
			return true;
	return false;
}

/* Does anybody more important receive there, who may ask at any moment? */
static bool share_received_above(const struct asker *asker)
{
	unsigned int i;

	for (i = 0; i < PFLOW_THREADS; i++) {
		const struct pflow_thread *other = &pflow_threads[i];

		if (pflow_thread_on(other, asker->cpu) && READ_ONCE(other->rank) > asker->rank &&
		    (pflow_lately(READ_ONCE(other->datagrams_at)) ||
		     pflow_lately(READ_ONCE(other->streams_at))))
			return true;
	}
	return false;
}

/* Is another user, as important or more so, raised there or asking to be? */
static bool share_is_halved(const struct asker *asker)
{
	unsigned int i;

	lockdep_assert_held(&slots_lock);
	for (i = 0; i < SLOTS; i++)
		if (slot_is_active(&slots[i]) && slots[i].cpu == asker->cpu &&
		    slots[i].rank >= asker->rank && slots[i].user != asker->user)
			return true;
	return ask_of_another(asker);
}

/*
 * What is in the purse: the least that slots of this user say, of those that rank as high or
 * higher. Slots of a lower rank are charged for ghosts that do not count here. S32_MAX if there is
 * no slot.
 */
static s32 share_purse(const struct asker *asker)
{
	s32 least = S32_MAX;
	unsigned int i;

	lockdep_assert_held(&slots_lock);
	for (i = 0; i < SLOTS; i++)
		if (slots[i].state != SLOT_FREE && slots[i].cpu == asker->cpu &&
		    slots[i].user == asker->user && slots[i].rank >= asker->rank)
			least = min(least, slots[i].purse_us);
	return least;
}

/* A new purse has half of all, or what is left of the CPU's budget if that is more. */
static s32 share_purse_begun(const struct asker *asker)
{
	s32 purse = share_purse(asker);

	return purse < S32_MAX ? purse : max(share_left(asker->cpu), share_part(50));
}

/* What of the purse is kept for more important threads of the same user, in percent of all. */
static unsigned int share_kept_of_purse(const struct asker *asker)
{
	if (!share_raised_above(asker, true))
		return 0;
	return share_is_halved(asker) ? 25 : 50;
}

/* If there is enough for both, nobody more important need be looked for. */
static bool share_budget_spent(const struct asker *asker, unsigned int also)
{
	s32 left = share_left(asker->cpu);

	if (left >= share_part(also + 50))
		return false;
	return left < share_part(also) || share_raised_above(asker, false) ||
	       share_received_above(asker);
}

/**
 * share_spent() - may somebody take no more of a CPU?
 * @asker: who
 * @also: percent of the budget that has to be left besides
 *
 * Half is kept for more important threads. Of the CPU's budget it is kept for any that was raised
 * there lately or receives there, of the purse for those of the same user. If only the budget does
 * not allow it, others took it, and the asker's user counts as asking (places.c).
 *
 * Context: under slots_lock. Return: whether the budget or the purse does not allow it.
 */
bool share_spent(const struct asker *asker, unsigned int also)
{
	lockdep_assert_held(&slots_lock);
	if (share_purse(asker) < share_part(also + share_kept_of_purse(asker)))
		return true;
	if (!share_budget_spent(asker, also))
		return false;
	ask_note(asker);
	return true;
}

/*
 * For how long softirqs have received on top of a slot's thread since this was asked last, as far
 * as that is measured. Some of their packets may be its own, sent over the loopback. But they
 * cannot be told from the floods to others that a server in a container finds in the backlog.
 * Charged for those, it would have no boost when it needs one (docs/performance/steering.md).
 */
static u64 slot_stolen_ns(struct slot *slot)
{
	const struct pflow_thread *thread = pflow_thread_find(slot->boost.task->pid);
	u64 stolen_ns = thread ? READ_ONCE(thread->stolen_ns) : 0;
	/* It begins at 0 again if the thread was forgotten as a receiver, and met again. */
	u64 stolen = stolen_ns > slot->stolen_ns ? stolen_ns - slot->stolen_ns : 0;

	slot->stolen_ns = stolen_ns;
	return stolen;
}

/**
 * share_begin() - begin a slot's account; what the thread took until now is not charged
 * @slot: of the thread, its user and rank known, still free
 *
 * Context: under slots_lock.
 */
void share_begin(struct slot *slot)
{
	struct asker asker = {
		.user = slot->user,
		.rank = slot->rank,
		.cpu = task_cpu(slot->boost.task),
	};

	lockdep_assert_held(&slots_lock);
	slot->ran_ns = READ_ONCE(slot->boost.task->se.sum_exec_runtime);
	slot_stolen_ns(slot);
	slot->cpu = asker.cpu;
	slot->charged_us = 0;
	slot->purse_us = share_purse_begun(&asker);
}

static void share_charge_cpu(int cpu, u32 took_us)
{
	atomic_add(took_us, per_cpu_ptr(&used_us, cpu));
}

/* What it lent is charged where it was taken, too. Return: microseconds. */
static u32 share_charge_lent(struct slot *slot)
{
	int cpu = READ_ONCE(slot->lend.cpu);
	u32 lent_us = 0;

	if (lever_above_groups(slot->boost.lever))
		lent_us = lend_take(slot);
	if (lent_us && cpu != task_cpu(slot->boost.task))
		share_charge_cpu(cpu, lent_us);
	return lent_us;
}

/* It has come to another CPU, where its user has another purse. */
static void share_move(struct slot *slot, int cpu)
{
	struct asker asker = { .user = slot->user, .rank = slot->rank, .cpu = cpu };

	slot->purse_us = share_purse_begun(&asker);
	slot->cpu = cpu;
}

/**
 * share_charge() - charge a thread's CPU time to the CPU's share and its user's purse
 * @slot: of the thread
 *
 * The scheduler counts a softirq's time as that of the thread beneath it. That can be most of what
 * it counts, so it is taken off. A thread that lent its class to another one (lend.c) is charged
 * as if it had run meanwhile.
 *
 * Context: under slots_lock. Return: what it took itself since it was last looked at, in ns.
 */
u64 share_charge(struct slot *slot)
{
	u64 ran_ns = READ_ONCE(slot->boost.task->se.sum_exec_runtime);
	u64 took_ns = ran_ns - slot->ran_ns;
	bool raised = slot->state == SLOT_RAISED || slot->state == SLOT_OVER;
	int cpu = task_cpu(slot->boost.task);
	u32 took_us;

	lockdep_assert_held(&slots_lock);
	took_ns -= min(took_ns, slot_stolen_ns(slot));
	slot->ran_ns = ran_ns;
	took_us = div_u64(took_ns, NSEC_PER_USEC);
	if (raised)
		took_us += share_charge_lent(slot);
	slot->charged_us += took_us;
	if (raised)
		share_charge_cpu(cpu, took_us);
	if (cpu == slot->cpu)
		return took_ns;
	/* It is not known where a thread ran that was moved, so both CPUs are charged. */
	if (raised)
		share_charge_cpu(slot->cpu, took_us);
	share_move(slot, cpu);
	return took_ns;
}

/* Does what @other took count against the purse as @slot keeps it? */
static bool share_bears(const struct slot *slot, const struct slot *other)
{
	return other->state != SLOT_FREE && other->user == slot->user && other->cpu == slot->cpu &&
	       (other->state != SLOT_GHOST || other->rank >= slot->rank);
}

/**
 * share_settle_purses() - fill each purse, and take from it what was charged
 *
 * The effort grows with the square of the slots that are taken, and mostly these are few.
 *
 * Context: pf_sched's thread, under slots_lock. Return: what the emptiest purse has, microseconds.
 * Purses that are filled half as fast do not count. S32_MAX if no other is there.
 */
s32 share_settle_purses(void)
{
	unsigned int cap = sched_knob(SCHED_KNOB_CAP);
	s32 least = S32_MAX;
	unsigned int i, j;

	lockdep_assert_held(&slots_lock);
	for (i = 0; i < SLOTS; i++) {
		struct slot *slot = &slots[i];
		struct asker asker = { .user = slot->user, .rank = slot->rank, .cpu = slot->cpu };
		bool halved;
		u32 used = 0;

		if (slot->state == SLOT_FREE)
			continue;
		for (j = 0; j < SLOTS; j++)
			used += share_bears(slot, &slots[j]) ? slots[j].charged_us : 0;
		halved = share_is_halved(&asker);
		slot->purse_us = pflow_budget_step(slot->purse_us, used,
						   per_cpu(stocks, slot->cpu).fill_us,
						   halved ? DIV_ROUND_UP(cap, 2) : cap);
		if (!halved)
			least = min(least, slot->purse_us);
	}
	for (i = 0; i < SLOTS; i++)
		slots[i].charged_us = 0;
	return least;
}

/**
 * share_settle() - fill each CPU's budget, and take from it what was charged
 *
 * Context: pf_sched's thread; only it writes budgets. Return: what is left of the emptiest one,
 * microseconds.
 */
s32 share_settle(void)
{
	unsigned int cap = sched_knob(SCHED_KNOB_CAP);
	s32 least = S32_MAX;
	int cpu;

	for_each_possible_cpu(cpu) {
		u32 used = atomic_xchg(per_cpu_ptr(&used_us, cpu), 0);
		s32 budget = pflow_budget_step(per_cpu(budget_us, cpu), used,
					       per_cpu(stocks, cpu).fill_us, cap);

		WRITE_ONCE(per_cpu(budget_us, cpu), budget);
		least = min(least, budget);
	}
	return least;
}
