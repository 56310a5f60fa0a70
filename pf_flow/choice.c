// SPDX-License-Identifier: GPL-2.0-only
/*
 * The choice: who has a packet, who has tokens for it, and what each is owed.
 *
 * Who has both competes; a scheduler says who of them is next (eevdf.c, byrank.c). Each one's start
 * is the virtual time up to which it has had its share. The virtual time is the mean of all starts
 * by weight, so what all are owed sums up to nothing. Three heaps make each step logarithmic.
 *
 * Virtual times wrap and are compared by their difference. In 64 bits the sum holds 131072 flows
 * of the highest weight, each ahead by a packet of 512 KiB.
 */
#include <linux/limits.h>
#include <linux/math64.h>

#include "policy.h"

#define LAG_MOST	((s64)(1 << 19) << PFLOW_VIRTUAL_SHIFT)

static u64 heap_key(const struct pflow_entity *entity)
{
	if (entity->where == PFLOW_ELIGIBLE)
		return entity->deadline;
	return entity->where == PFLOW_AHEAD ? entity->start : entity->at;
}

static bool entity_less(const struct pflow_entity *one, const struct pflow_entity *other)
{
	return (s64)(heap_key(one) - heap_key(other)) < 0;
}

static void heap_put(struct pflow_heap *heap, struct pflow_entity *entity, u32 place)
{
	heap->at[place] = entity;
	entity->place = place;
}

static void heap_rise(struct pflow_heap *heap, struct pflow_entity *entity, u32 place)
{
	while (place && entity_less(entity, heap->at[(place - 1) / 2])) {
		heap_put(heap, heap->at[(place - 1) / 2], place);
		place = (place - 1) / 2;
	}
	heap_put(heap, entity, place);
}

static void heap_sink(struct pflow_heap *heap, struct pflow_entity *entity, u32 place)
{
	u32 child;

	for (; (child = 2 * place + 1) < heap->number; place = child) {
		if (child + 1 < heap->number &&
		    entity_less(heap->at[child + 1], heap->at[child]))
			child++;
		if (!entity_less(heap->at[child], entity))
			break;
		heap_put(heap, heap->at[child], place);
	}
	heap_put(heap, entity, place);
}

/**
 * pflow_choice_insert() - put an entity into a heap
 * @choice: all entities
 * @entity: that is in none, and whose key is set
 * @where: which heap
 */
void pflow_choice_insert(struct pflow_choice *choice, struct pflow_entity *entity,
			 enum pflow_where where)
{
	struct pflow_heap *heap = &choice->heaps[where];

	entity->where = where;
	heap_rise(heap, entity, heap->number++);
}

/**
 * pflow_choice_remove() - take an entity from its heap
 * @choice: all entities
 * @entity: that is in one, or in none
 */
void pflow_choice_remove(struct pflow_choice *choice, struct pflow_entity *entity)
{
	struct pflow_heap *heap;
	struct pflow_entity *last;

	if (entity->where == PFLOW_NOWHERE)
		return;
	heap = &choice->heaps[entity->where];
	last = heap->at[--heap->number];
	if (last != entity) {
		heap_sink(heap, last, entity->place);
		heap_rise(heap, last, last->place);
	}
	entity->where = PFLOW_NOWHERE;
}

/**
 * pflow_choice_first() - who is first in a heap?
 * @choice: all entities
 * @where: which heap
 *
 * Return: it, which stays there; NULL: the heap is empty.
 */
struct pflow_entity *pflow_choice_first(const struct pflow_choice *choice, enum pflow_where where)
{
	return choice->heaps[where].number ? choice->heaps[where].at[0] : NULL;
}

/**
 * pflow_choice_time() - the virtual time
 * @choice: all entities
 *
 * Return: it; the least start is never later.
 */
u64 pflow_choice_time(const struct pflow_choice *choice)
{
	s64 mean;

	if (!choice->weights)
		return choice->base;
	mean = div64_s64(choice->sum, choice->weights);
	if (mean * (s64)choice->weights > choice->sum)
		mean--;
	return choice->base + mean;
}

/* Keep the sum small. */
static void choice_rebase(struct pflow_choice *choice)
{
	u64 time = pflow_choice_time(choice);

	choice->sum -= (s64)(time - choice->base) * (s64)choice->weights;
	choice->base = time;
}

static void entity_compete(struct pflow_choice *choice, struct pflow_entity *entity)
{
	choice_rebase(choice);
	choice->sum += (s64)(entity->start - choice->base) * entity->weight;
	choice->weights += entity->weight;
	entity->competes = true;
}

static void entity_retire(struct pflow_choice *choice, struct pflow_entity *entity)
{
	if (!entity->competes)
		return;
	choice_rebase(choice);
	choice->sum -= (s64)(entity->start - choice->base) * entity->weight;
	choice->weights -= entity->weight;
	/* Nobody is left whose mean it could be. */
	if (!choice->weights)
		choice->sum = 0;
	entity->competes = false;
}

/**
 * pflow_choice_again() - it has another packet, and tokens for it
 * @choice: all entities
 * @entity: that competes and is in no heap
 * @length: of the packet
 */
void pflow_choice_again(struct pflow_choice *choice, struct pflow_entity *entity, u32 length)
{
	entity->length = length;
	choice->scheduler->enqueue(choice, entity);
}

/**
 * pflow_choice_join() - it competes from now on
 * @choice: all entities
 * @entity: that is in no heap and does not compete; what it was owed when it fell asleep counts
 * @length: of its next packet
 *
 * As it joins it moves the mean towards itself. So it starts further off, to be owed just that.
 */
void pflow_choice_join(struct pflow_choice *choice, struct pflow_entity *entity, u32 length)
{
	s64 others = choice->weights, lag = entity->lag;

	entity->start = pflow_choice_time(choice);
	if (others)
		entity->start -= div64_s64(lag * (others + entity->weight),
					   others * entity->weight);
	entity->lag = 0;
	entity_compete(choice, entity);
	pflow_choice_again(choice, entity, length);
}

/**
 * pflow_choice_sleep() - it has a packet, and no tokens for it
 * @choice: all entities
 * @entity: that is in no heap, or in any
 * @length: of the packet
 * @at: ns, when it will have them
 */
void pflow_choice_sleep(struct pflow_choice *choice, struct pflow_entity *entity, u32 length,
			u64 at)
{
	pflow_choice_remove(choice, entity);
	if (entity->competes) {
		s64 lag = (s64)(pflow_choice_time(choice) - entity->start) * entity->weight;

		if (lag > LAG_MOST)
			lag = LAG_MOST;
		entity->lag = lag < -LAG_MOST ? -LAG_MOST : lag;
	}
	entity_retire(choice, entity);
	entity->length = length;
	entity->at = at;
	pflow_choice_insert(choice, entity, PFLOW_ASLEEP);
}

/**
 * pflow_choice_leave() - it has no packet any more
 * @choice: all entities
 * @entity: wherever it is; what it was owed is forgotten
 */
void pflow_choice_leave(struct pflow_choice *choice, struct pflow_entity *entity)
{
	pflow_choice_remove(choice, entity);
	entity_retire(choice, entity);
	entity->lag = 0;
}

/**
 * pflow_choice_wake() - those compete who have tokens now
 * @choice: all entities
 * @now: ns
 */
void pflow_choice_wake(struct pflow_choice *choice, u64 now)
{
	struct pflow_entity *entity;

	while ((entity = pflow_choice_first(choice, PFLOW_ASLEEP)) &&
	       (s64)(entity->at - now) <= 0) {
		pflow_choice_remove(choice, entity);
		pflow_choice_join(choice, entity, entity->length);
	}
}

/**
 * pflow_choice_pick() - who is next?
 * @choice: all entities
 *
 * Return: it, taken from its heap; it still competes, and is to be told of what becomes of it by
 * pflow_choice_served() and again(), sleep() or leave(). NULL: nobody has packet and tokens.
 */
struct pflow_entity *pflow_choice_pick(struct pflow_choice *choice)
{
	return choice->scheduler->dequeue(choice);
}

/**
 * pflow_choice_served() - a packet of it went
 * @choice: all entities
 * @entity: that competes and is in no heap
 * @length: of the packet
 */
void pflow_choice_served(struct pflow_choice *choice, struct pflow_entity *entity, u32 length)
{
	if (choice->scheduler->charge)
		choice->scheduler->charge(choice, entity, length);
}

/**
 * pflow_choice_switch() - somebody else says from now on who is next
 * @choice: all entities
 * @scheduler: who does
 * @now: ns
 *
 * Who competes sleeps until now, so that it joins anew.
 */
void pflow_choice_switch(struct pflow_choice *choice, const struct pflow_scheduler *scheduler,
			 u64 now)
{
	struct pflow_entity *entity;

	while ((entity = pflow_choice_first(choice, PFLOW_ELIGIBLE) ?:
			 pflow_choice_first(choice, PFLOW_AHEAD)))
		pflow_choice_sleep(choice, entity, entity->length, now);
	choice->scheduler = scheduler;
}

/**
 * pflow_choice_reweigh() - it is due another share from now on
 * @choice: all entities
 * @entity: wherever it is
 * @weight: 1..PFLOW_WEIGHT_MOST
 */
void pflow_choice_reweigh(struct pflow_choice *choice, struct pflow_entity *entity, u32 weight)
{
	u8 where = entity->where;
	bool competes = entity->competes;

	if (where != PFLOW_ASLEEP)
		pflow_choice_remove(choice, entity);
	entity_retire(choice, entity);
	entity->weight = weight;
	if (!competes)
		return;
	/* Owed nothing: what a small weight was owed would be too much for a large one. */
	entity->start = pflow_choice_time(choice);
	entity_compete(choice, entity);
	if (where != PFLOW_NOWHERE)
		pflow_choice_again(choice, entity, entity->length);
}

/**
 * pflow_choice_next() - when will the next one have tokens?
 * @choice: all entities
 *
 * Return: ns; PFLOW_NEVER: nobody sleeps.
 */
u64 pflow_choice_next(const struct pflow_choice *choice)
{
	const struct pflow_entity *entity = pflow_choice_first(choice, PFLOW_ASLEEP);

	return entity ? entity->at : PFLOW_NEVER;
}
