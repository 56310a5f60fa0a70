// SPDX-License-Identifier: GPL-2.0-only
/*
 * By rank: whose first packet is for the most important receiver is next; equals in turn.
 *
 * Weights count for nothing, and nobody is owed anything. Who is less important waits as long as
 * somebody who is more so has packet and tokens.
 */
#include <linux/limits.h>

#include "policy.h"

#define TURN_BITS	48

static void rank_enqueue(struct pflow_choice *choice, struct pflow_entity *entity)
{
	entity->deadline = (u64)(U8_MAX - entity->rank) << TURN_BITS |
			   (choice->turn++ & ((1ull << TURN_BITS) - 1));
	pflow_choice_insert(choice, entity, PFLOW_ELIGIBLE);
}

static struct pflow_entity *rank_dequeue(struct pflow_choice *choice)
{
	struct pflow_entity *entity = pflow_choice_first(choice, PFLOW_ELIGIBLE);

	if (entity)
		pflow_choice_remove(choice, entity);
	return entity;
}

const struct pflow_scheduler pflow_by_rank = {
	.name = "rank",
	.enqueue = rank_enqueue,
	.dequeue = rank_dequeue,
};
