// SPDX-License-Identifier: GPL-2.0-only
/*
 * Places: how many are raised at a time, who makes room, and how far each is raised.
 */
#include "slots.h"

#define ADAPT	HZ	/* between two steps of an automatic number of elected */

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
	place_wanted = false;
	budget_spent = false;
	most = 2;
	adapted = jiffies;
}

static unsigned int places_most(void)
{
	return sched_knob(SCHED_KNOB_ELECT) ?: READ_ONCE(most);
}

/**
 * field_gather() - list the elected
 * @field: to be filled
 * @except: but for this one; may be NULL
 *
 * Context: any; without slots_lock it may be out of date at once.
 */
void field_gather(struct field *field, const struct slot *except)
{
	unsigned int i;

	field->number = 0;
	for (i = 0; i < SLOTS; i++) {
		if (!slot_is_active(&slots[i]) || &slots[i] == except)
			continue;
		field->slots[field->number] = &slots[i];
		field->ranks[field->number++] = slots[i].rank;
	}
}

/**
 * place_for() - is there a place for one more? The paper's N
 * @field: all that are elected
 * @rank: of who wants a place
 *
 * If all are taken, the least important one makes room for the next time, if it is less
 * important than who wants a place. Whoever makes room cannot take the place back.
 *
 * Context: under slots_lock. Return: whether there is.
 */
bool place_for(const struct field *field, u8 rank)
{
	struct slot *least;
	int who;

	lockdep_assert_held(&slots_lock);
	if (field->number < places_most())
		return true;
	place_wanted = true;
	who = pflow_least(field->ranks, field->number, rank);
	if (who < 0)
		return false;
	least = field->slots[who];
	if (least->state == SLOT_RAISED) {
		slot_finish(least, END_DISPLACED);
		boost_wake();
	}
	return false;
}

/**
 * places_displace() - there may be fewer places than there were
 *
 * Context: under slots_lock.
 */
void places_displace(void)
{
	struct field field;

	lockdep_assert_held(&slots_lock);
	/* Whoever is elected ranks below U8_MAX. */
	for (field_gather(&field, NULL); field.number > places_most(); field_gather(&field, NULL))
		slot_finish(field.slots[pflow_least(field.ranks, field.number, U8_MAX)],
			    END_DISPLACED);
}

/**
 * field_levels() - how many nice levels to raise a thread
 * @others: the elected but for it
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
 * Who ranks higher runs before who ranks lower, equals take turns.
 *
 * Context: any. Return: the real-time priority, from 1.
 */
unsigned int slot_rr_priority(const struct slot *slot)
{
	unsigned int priority = 1, i;

	for (i = 0; i < SLOTS; i++)
		priority += slot_is_active(&slots[i]) && slots[i].boost.lever == LEVER_RR &&
			    slots[i].rank < slot->rank;
	return priority;
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
