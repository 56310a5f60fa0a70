// SPDX-License-Identifier: GPL-2.0-only
/*
 * Earliest eligible virtual deadline first (EEVDF): shares by weight.
 *
 * A start moves by length / weight with each packet. A flow is eligible if its start has come: it
 * has had no more than its share. Of those the one is next whose packet is due first. Who is ahead
 * of its share waits, unless nobody else is there.
 *
 * The virtual time goes back a little where a flow leaves that was ahead; so an eligible one is
 * looked at again when it is picked.
 */
#include <linux/math64.h>

#include "policy.h"

static u64 entity_step(const struct pflow_entity *entity, u32 length)
{
	return div_u64((u64)length << PFLOW_VIRTUAL_SHIFT, entity->weight);
}

static void eevdf_enqueue(struct pflow_choice *choice, struct pflow_entity *entity)
{
	bool ahead = (s64)(entity->start - pflow_choice_time(choice)) > 0;

	entity->deadline = entity->start + entity_step(entity, entity->length);
	pflow_choice_insert(choice, entity, ahead ? PFLOW_AHEAD : PFLOW_ELIGIBLE);
}

static struct pflow_entity *eevdf_dequeue(struct pflow_choice *choice)
{
	u64 time = pflow_choice_time(choice);
	struct pflow_entity *entity;

	while ((entity = pflow_choice_first(choice, PFLOW_AHEAD)) &&
	       (s64)(entity->start - time) <= 0) {
		pflow_choice_remove(choice, entity);
		pflow_choice_insert(choice, entity, PFLOW_ELIGIBLE);
	}
	while ((entity = pflow_choice_first(choice, PFLOW_ELIGIBLE)) &&
	       (s64)(entity->start - time) > 0) {
		pflow_choice_remove(choice, entity);
		pflow_choice_insert(choice, entity, PFLOW_AHEAD);
	}
	/* Where the only one who is not ahead is being served, somebody else is as good as any. */
	if (!entity)
		entity = pflow_choice_first(choice, PFLOW_AHEAD);
	if (entity)
		pflow_choice_remove(choice, entity);
	return entity;
}

static void eevdf_charge(struct pflow_choice *choice, struct pflow_entity *entity, u32 length)
{
	u64 step = entity_step(entity, length);

	entity->start += step;
	choice->sum += (s64)(step * entity->weight);
}

const struct pflow_scheduler pflow_eevdf = {
	.name = "eevdf",
	.enqueue = eevdf_enqueue,
	.dequeue = eevdf_dequeue,
	.charge = eevdf_charge,
};
