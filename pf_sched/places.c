// SPDX-License-Identifier: GPL-2.0-only
/*
 * Places: how many are raised at a time, who makes room, and how far each is raised.
 *
 * Each CPU has places, and a thread takes one on the CPU where it was elected, since it wants time
 * of that CPU. A raised thread that is moved keeps that place, and takes none on the other CPU.
 * Otherwise a thread that moves about could take places of all CPUs.
 *
 * One user has more of a CPU's places than another only while that other one does not ask with a
 * thread as important. A user whose thread is refused counts as asking for a while. Meanwhile a
 * place that becomes free is for users that have no more than that one. Otherwise a thread that
 * makes room would be followed by the next of the same user.
 *
 * Context: under slots_lock, unless a function says otherwise.
 */
#include <linux/percpu.h>

#include "slots.h"

#define ADAPT	HZ	/* jiffies between two steps of an automatic number of places */
#define ASKS	2	/* users that are remembered: any user, and another one than that */
#define ASKED_FOR	max(HZ / 10, 1)	/* jiffies for which a refused user counts as asking */

/**
 * struct ask - a user who is refused what another has
 * @user: pflow_task_user()
 * @rank: of its thread
 * @at: stamp of when
 */
struct ask {
	u32 user;
	u8 rank;
	u32 at;
};

/* Under slots_lock. */
static DEFINE_PER_CPU(struct ask [ASKS], asks);

/* All written under the lock. */
static bool place_wanted, budget_spent;
static unsigned int most;	/* where their number is automatic */
static u32 adapted;		/* jiffies */

/**
 * places_setup() - begin anew
 *
 * Context: nobody is elected.
 */
void places_setup(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		memset(per_cpu_ptr(&asks, cpu), 0, sizeof(asks));
	place_wanted = false;
	budget_spent = false;
	most = 2;
	adapted = jiffies;
}

static unsigned int places_most(void)
{
	return sched_knob(SCHED_KNOB_ELECT) ?: READ_ONCE(most);
}

static bool ask_counts(const struct ask *ask)
{
	return pflow_within(ask->at, ASKED_FOR);
}

/* The rank of an ask, or -1 if it does not count. */
static int ask_rank(const struct ask *ask)
{
	return ask_counts(ask) ? ask->rank : -1;
}

/**
 * ask_note() - a user is refused what another has
 * @asker: who
 *
 * Two are remembered, the most important ones. So a user that asks all the time pushes no other
 * one out.
 *
 * Context: under slots_lock.
 */
void ask_note(const struct asker *asker)
{
	struct ask *here = *per_cpu_ptr(&asks, asker->cpu), *ask = here;
	unsigned int i;

	lockdep_assert_held(&slots_lock);
	for (i = 1; i < ASKS; i++)
		if (ask_rank(&here[i]) < ask_rank(ask))
			ask = &here[i];
	for (i = 0; i < ASKS; i++)
		if (ask_counts(&here[i]) && here[i].user == asker->user)
			ask = &here[i];
	/* Of a user the most important thread counts. An ask of another user as important stays. */
	if (ask_rank(ask) > asker->rank ||
	    (ask_rank(ask) == asker->rank && ask->user != asker->user))
		return;
	*ask = (struct ask){ .user = asker->user, .rank = asker->rank, .at = pflow_stamp_now() };
}

/**
 * ask_of_another() - does another user ask, whose thread is as important or more so?
 * @asker: who wants to know
 *
 * Context: under slots_lock. Return: whether one does, lately.
 */
bool ask_of_another(const struct asker *asker)
{
	const struct ask *here = *per_cpu_ptr(&asks, asker->cpu);
	unsigned int i;

	lockdep_assert_held(&slots_lock);
	for (i = 0; i < ASKS; i++)
		if (ask_counts(&here[i]) && here[i].user != asker->user &&
		    here[i].rank >= asker->rank)
			return true;
	return false;
}

/* Does one ask so who has fewer places than these? */
static bool ask_of_poorer(const struct asker *asker, const struct field *field, unsigned int own)
{
	const struct ask *here = *per_cpu_ptr(&asks, asker->cpu);
	unsigned int i;

	lockdep_assert_held(&slots_lock);
	for (i = 0; i < ASKS; i++)
		if (ask_counts(&here[i]) && here[i].rank >= asker->rank &&
		    pflow_places_of(field->users, field->number, here[i].user) < own)
			return true;
	return false;
}

/**
 * field_gather() - list those elected on a CPU
 * @field: to be filled
 * @except: this one is left out; may be NULL
 * @cpu: on which they were elected
 *
 * Context: any; without slots_lock it may be out of date at once.
 */
void field_gather(struct field *field, const struct slot *except, int cpu)
{
	unsigned int i;

	field->number = 0;
	for (i = 0; i < SLOTS; i++) {
		if (!slot_is_active(&slots[i]) || &slots[i] == except || slots[i].home != cpu)
			continue;
		field->slots[field->number] = i;
		field->users[field->number] = slots[i].user;
		field->ranks[field->number++] = slots[i].rank;
	}
}

/**
 * place_for() - is there a place for one more? The paper's N
 * @field: all that are elected on its CPU
 * @asker: who wants a place
 *
 * If all places are taken, one thread makes room for the next time. It is the least important one,
 * if it is less important than the asker. Otherwise it is an equal of a user that has more of these
 * than the asker's; but not if the asker's user has half of all places. While the asker counts as
 * asking, the place is for its user, or another one with as few.
 *
 * Context: under slots_lock. Return: whether there is.
 */
bool place_for(const struct field *field, const struct asker *asker)
{
	unsigned int most = places_most();
	unsigned int own = pflow_places_of(field->users, field->number, asker->user);
	bool half = own >= DIV_ROUND_UP(most, 2);
	struct slot *least;
	int who;

	lockdep_assert_held(&slots_lock);
	if (field->number < most && !ask_of_poorer(asker, field, own))
		return true;
	place_wanted = true;
	if (field->number < most)
		return false;
	if (!half)
		ask_note(asker);
	who = pflow_gives_way(field->ranks, field->users, field->number, asker->rank, asker->user);
	if (who < 0 || (half && field->ranks[who] == asker->rank))
		return false;
	least = &slots[field->slots[who]];
	if (least->state == SLOT_RAISED) {
		slot_finish(least, END_DISPLACED);
		boost_wake();
	}
	return false;
}

/* How many on its CPU come before it, that is, keep their places if there are fewer. */
static unsigned int slot_place(const struct slot *slot)
{
	unsigned int place = 0, i;

	for (i = 0; i < SLOTS; i++)
		place += slot_is_active(&slots[i]) && slots[i].home == slot->home &&
			 (slots[i].rank > slot->rank ||
			  (slots[i].rank == slot->rank && &slots[i] < slot));
	return place;
}

/**
 * places_displace() - end the boosts for which there is no place any more
 *
 * Context: under slots_lock.
 */
void places_displace(void)
{
	unsigned int i;

	lockdep_assert_held(&slots_lock);
	for (i = SLOTS; i--;)
		if (slot_is_active(&slots[i]) && slot_place(&slots[i]) >= places_most())
			slot_finish(&slots[i], END_DISPLACED);
}

/**
 * field_levels() - how many nice levels to raise a thread
 * @others: all elected threads but this one
 * @rank: its own
 *
 * Context: any. Return: how many.
 */
unsigned int field_levels(const struct field *others, u8 rank)
{
	return pflow_boost_levels(sched_knob(SCHED_KNOB_LEVELS),
				  pflow_place(others->ranks, others->number, rank),
				  others->number + 1);
}

/**
 * slot_rr_priority() - the degree of a boost by rank, where the lever is round robin
 * @slot: of the boost
 *
 * A higher rank runs before a lower one, and equals take turns. All stay below pf_sched's thread,
 * which lowers them again (sched_set_fifo()).
 *
 * Context: any. Return: the real-time priority, from 1.
 */
unsigned int slot_rr_priority(const struct slot *slot)
{
	unsigned int priority = 1, i;

	for (i = 0; i < SLOTS; i++)
		priority += slot_is_active(&slots[i]) && slots[i].boost.lever == LEVER_RR &&
			    slots[i].rank < slot->rank;
	return min(priority, MAX_RT_PRIO / 2 - 1U);
}

/**
 * places_adapt() - let an automatic number of places follow the situation
 * @spent: the elected have spent their share of a CPU
 *
 * Context: under slots_lock; pf_sched's thread.
 */
void places_adapt(bool spent)
{
	lockdep_assert_held(&slots_lock);
	budget_spent |= spent;
	if ((u32)jiffies - adapted < ADAPT)
		return;
	WRITE_ONCE(most, pflow_elect_most(most, place_wanted, budget_spent, num_online_cpus()));
	place_wanted = false;
	budget_spent = false;
	adapted = jiffies;
}
