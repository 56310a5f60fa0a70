// SPDX-License-Identifier: GPL-2.0-only
/*
 * Room: when the budget is spent, the keeper makes room for buffers that wait for it. It takes that
 * back from less important ones.
 *
 * It first looks at all grants once: what could each rank give, and which buffers wait? Then those
 * that wait are served, the most important first. They get what is free, then what less important
 * ones do not use, then what UDP buffers of less important ones do use. None takes from an equal,
 * so nothing swings between two. There is one exception: an equal whose user has more than half of
 * the budget gives back what is beyond the half. In the end the table is told which buffers can
 * still grow.
 *
 * Context: worker, may sleep. Functions that change a grant run under its locks (walk.c).
 */
#include "mm.h"

#define SERVED		32	/* grants in a round for which others were looked at */

/*
 * What can be taken back. From UDP what is used can be taken as well, and at once: what is queued
 * stays, and the next packets find no room. From TCP that takes until its window is used up.
 */
enum take {
	TAKE_UNUSED,
	TAKE_USED,
	TAKE_ALL,
	TAKES,
};

struct taking {
	enum take take;
	u64 missing;	/* bytes */
};

/* The keeper's own, of each rank: bytes that can be taken, and whether anybody waits. */
static u64 to_take[TAKES][PFLOW_RANKS];
static bool waiting[PFLOW_RANKS];
static int greedy;	/* the user who has more than half, or -1 */

/* Bytes that a grant does not use. It may be changing, so the locks' holder asks again. */
static u32 grant_unused(const struct mm_grant *grant)
{
	return pflow_size_unused(READ_ONCE(grant->size), grant->own, size_used(grant));
}

static u32 grant_takeable(const struct mm_grant *grant, enum take take)
{
	u32 spare = grant_unused(grant);
	/* The size read now is not less than above: only the keeper makes it smaller. */
	u32 beyond = READ_ONCE(grant->size) - grant->own;

	if (take == TAKE_UNUSED)
		return spare;
	if (take == TAKE_ALL)
		return beyond;
	return grant->udp ? beyond - spare : 0;
}

static s64 budget_left(void)
{
	unsigned long irq;
	s64 bytes;

	raw_spin_lock_irqsave(&grants_lock, irq);
	bytes = grants_left();
	raw_spin_unlock_irqrestore(&grants_lock, irq);
	return bytes;
}

static s64 user_excess(u8 user)
{
	unsigned long irq;
	s64 bytes;

	raw_spin_lock_irqsave(&grants_lock, irq);
	bytes = grants_excess(user);
	raw_spin_unlock_irqrestore(&grants_lock, irq);
	return bytes;
}

/**
 * room_survey() - look at all grants once: what can be had from each rank, and which ranks wait
 *
 * Context: worker, may sleep.
 */
void room_survey(void)
{
	struct mm_grant *grant;
	unsigned int chain, take;
	unsigned long irq;

	raw_spin_lock_irqsave(&grants_lock, irq);
	greedy = grants_find_greedy();
	raw_spin_unlock_irqrestore(&grants_lock, irq);
	memset(to_take, 0, sizeof(to_take));
	memset(waiting, 0, sizeof(waiting));
	for (grant = grant_next(NULL, &chain); grant; grant = grant_next(grant, &chain)) {
		u8 rank = READ_ONCE(grant->rank);

		for (take = 0; take < TAKES; take++)
			to_take[take][rank] += grant_takeable(grant, take);
		waiting[rank] |= READ_ONCE(grant->wanted);
	}
}

static void grant_take_back(struct mm_grant *grant, void *data)
{
	const struct taking *taking = data;
	u32 has = grant_takeable(grant, taking->take);

	lockdep_assert_held(&grants_lock);
	if (!size_locked_since(grant))
		grant_give(grant, grant->size - min_t(u64, has, taking->missing), GIVEN_RECLAIMED);
}

/* Take back from one rank. Return: whether as much as is wanted is left of the budget now. */
static bool room_take_from(unsigned int rank, enum take take, s64 wanted)
{
	struct taking taking = { .take = take };
	struct mm_grant *grant;
	unsigned int chain;

	for (grant = grant_next(NULL, &chain); grant; grant = grant_next(grant, &chain)) {
		s64 has;

		if (READ_ONCE(grant->rank) != rank || !grant_takeable(grant, take))
			continue;
		has = budget_left();
		if (has >= wanted)
			return true;
		taking.missing = wanted - has;
		grant_with_socket(grant, grant_take_back, &taking);
	}
	/* Whatever came of it, this rank is not asked again before the next survey. */
	to_take[take][rank] = 0;
	return budget_left() >= wanted;
}

/* Take back from ranks below this one, the least important first. */
static bool room_take_below(unsigned int below, enum take take, s64 wanted)
{
	unsigned int rank;

	for (rank = 0; rank < below; rank++)
		if (to_take[take][rank] && room_take_from(rank, take, wanted))
			return true;
	return false;
}

static u64 room_sum_below(unsigned int below, enum take take)
{
	unsigned int rank;
	u64 sum = 0;

	for (rank = 0; rank < below; rank++)
		sum += to_take[take][rank];
	return sum;
}

/* A step of less than an eighth is not worth another look at each packet. */
static u32 grant_least_step(const struct mm_grant *grant)
{
	return grant->size / 8;
}

/* Give a buffer what it waits for, or as much of that as there is. */
static void grant_relieve(struct mm_grant *grant, void *data)
{
	u32 most = size_most(grant, grant->rank);
	s64 to = min_t(s64, min(grant->wanted, most), grant->size + grant_left(grant));

	lockdep_assert_held(&grants_lock);
	if (!grant->wanted)
		return;
	if (mm_knob(MM_KNOB_MODE) == MM_MODE_OBSERVE) {
		WRITE_ONCE(grant->wanted, 0);
		return;
	}
	if (to < (s64)grant->size + grant_least_step(grant)) {
		grant_note_refusal(grant, REFUSED_BUDGET);
	} else if (!size_memory_for(grant->sk, to - grant->size)) {
		grant_note_refusal(grant, REFUSED_MEMORY);
	} else {
		grant_note_relieved(grant);
		if (grant_resize(grant, to))
			grant_tell_growable(grant, to < most);
	}
}

/* Take back from equals whose user has more than half of the budget, what is beyond that. */
static void room_take_greedy(const struct mm_grant *wants, enum take take, s64 wanted)
{
	struct taking taking = { .take = take };
	struct mm_grant *grant;
	unsigned int chain;

	for (grant = grant_next(NULL, &chain); grant; grant = grant_next(grant, &chain)) {
		s64 has = budget_left(), excess = user_excess(greedy);

		if (has >= wanted || excess <= 0)
			return;
		if (grant->user != greedy || READ_ONCE(grant->rank) != wants->rank ||
		    !grant_takeable(grant, take))
			continue;
		taking.missing = min(wanted - has, excess);
		grant_with_socket(grant, grant_take_back, &taking);
	}
}

static bool grant_may_take_greedy(const struct mm_grant *grant)
{
	return greedy >= 0 && grant->user != greedy;
}

/*
 * Make room for one grant: from what less important ones do not use, then from what they use.
 * Return: whether others had to be looked at.
 */
static bool room_look_for(const struct mm_grant *grant)
{
	u32 wanted = min(READ_ONCE(grant->wanted), size_most(grant, grant->rank));
	s64 missing = (s64)wanted - grant->size;
	s64 has = budget_left();
	bool looked = false;
	enum take take;

	if (mm_knob(MM_KNOB_MODE) == MM_MODE_OBSERVE || missing < grant_least_step(grant) ||
	    !size_memory_for(grant->sk, missing))
		return false;
	for (take = TAKE_UNUSED; take <= TAKE_USED && has < missing; take++, has = budget_left()) {
		s64 more = room_sum_below(grant->rank, take);

		if (!more || has + more < grant_least_step(grant))
			continue;
		room_take_below(grant->rank, take, missing);
		looked = true;
	}
	if (has >= missing || !grant_may_take_greedy(grant))
		return looked;
	for (take = TAKE_UNUSED; take <= TAKE_USED; take++)
		room_take_greedy(grant, take, missing);
	return true;
}

/* Serve one grant that waits. Return: whether others had to be looked at for that. */
static bool room_serve(struct mm_grant *grant)
{
	bool looked = room_look_for(grant);

	/* A socket that is owned asks again when its owner receives. */
	if (!grant_with_socket(grant, grant_relieve, NULL))
		WRITE_ONCE(grant->wanted, 0);
	return looked;
}

/**
 * room_relieve() - serve those who wait, the most important first
 *
 * Each is served once at most, since it may ask again soon. A search among others ends when enough
 * was found, or when a rank has nothing more to give. So there are few searches. After %SERVED of
 * them the rest wait for the next round.
 *
 * Context: worker, may sleep; after room_survey().
 */
void room_relieve(void)
{
	unsigned int rank = PFLOW_RANKS, served = 0, chain;
	struct mm_grant *grant;

	while (rank--) {
		if (!waiting[rank])
			continue;
		for (grant = grant_next(NULL, &chain); grant; grant = grant_next(grant, &chain)) {
			if (!READ_ONCE(grant->wanted) || READ_ONCE(grant->rank) != rank)
				continue;
			served += room_serve(grant);
			if (served == SERVED)
				return;
		}
	}
}

/**
 * room_keep_budget() - take back what is beyond the budget
 *
 * That happens when the administrator makes it smaller. What is unused goes first, then what is
 * used.
 *
 * Context: worker, may sleep.
 */
void room_keep_budget(void)
{
	if (budget_left() >= 0)
		return;
	room_survey();
	if (!room_take_below(PFLOW_RANKS, TAKE_UNUSED, 0))
		room_take_below(PFLOW_RANKS, TAKE_ALL, 0);
}

/* Can it still grow, by its limit and by what less important ones could give? */
static void grant_tell_grows(struct mm_grant *grant, void *data)
{
	const unsigned int *giver = data;
	bool room = grant_left(grant) >= grant_least_step(grant) || *giver < grant->rank ||
		    grant_may_take_greedy(grant);
	bool may = mm_knob(MM_KNOB_MODE) == MM_MODE_ENFORCE && !grant->stuck;

	lockdep_assert_held(&grants_lock);
	grant_tell_growable(grant, may && room && grant->size < size_most(grant, grant->rank));
}

/**
 * room_tell_table() - tell the table which buffers can still grow
 *
 * Context: worker, may sleep; after room_survey().
 */
void room_tell_table(void)
{
	struct mm_grant *grant;
	unsigned int chain, giver;

	for (giver = 0; giver < PFLOW_RANKS; giver++)
		if (to_take[TAKE_UNUSED][giver] || to_take[TAKE_USED][giver])
			break;
	for (grant = grant_next(NULL, &chain); grant; grant = grant_next(grant, &chain))
		grant_with_lock(grant, grant_tell_grows, &giver);
}
