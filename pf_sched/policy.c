// SPDX-License-Identifier: GPL-2.0-only
/* Policy of pf_sched; see policy.h. */
#include "policy.h"

/**
 * pflow_fills() - is a buffer fuller than the threshold? The paper's condition (b)
 * @waiting: bytes that wait for the process
 * @size: bytes that the buffer may hold
 * @threshold: percent, 1..100; the paper's T
 *
 * Context: any. Return: whether it is.
 */
bool pflow_fills(u32 waiting, u32 size, unsigned int threshold)
{
	return (u64)waiting * 100 > (u64)size * threshold;
}

/**
 * pflow_elect_most() - how many to elect, where that is to follow the situation
 * @most: how many it was
 * @refused: somebody worthy found no place since
 * @exhausted: the elected used up what they may take of a CPU since
 * @cpus: online
 *
 * One more a step where somebody waits and there is CPU left for it; half as
 * many where there is not: raising everybody raises nobody.
 *
 * Context: any. Return: 1..twice @cpus, and no more than %PFLOW_ELECT_MOST.
 */
unsigned int pflow_elect_most(unsigned int most, bool refused, bool exhausted, unsigned int cpus)
{
	unsigned int limit = 2 * cpus < PFLOW_ELECT_MOST ? 2 * cpus : PFLOW_ELECT_MOST;

	if (exhausted)
		most /= 2;
	else if (refused)
		most++;
	if (most > limit)
		most = limit;
	return most ? most : 1;
}

/**
 * pflow_least() - who of the elected has to make room for a more important one?
 * @ranks: of the elected
 * @number: how many
 * @rank: of who wants a place
 *
 * Context: any. Return: the index of the least important, or -1 if nobody is less
 * important than @rank.
 */
int pflow_least(const u8 *ranks, unsigned int number, u8 rank)
{
	int least = -1;
	unsigned int i;

	for (i = 0; i < number; i++)
		if (ranks[i] < rank && (least < 0 || ranks[i] < ranks[least]))
			least = i;
	return least;
}

/**
 * pflow_place() - somebody's place among the elected
 * @ranks: of the others
 * @number: how many
 * @rank: its own
 *
 * Context: any. Return: how many come before it; equals share a place.
 */
unsigned int pflow_place(const u8 *ranks, unsigned int number, u8 rank)
{
	unsigned int place = 0, i;

	for (i = 0; i < number; i++)
		place += ranks[i] > rank;
	return place;
}

/**
 * pflow_boost_levels() - how many nice levels an elected process is raised
 * @levels: of the first
 * @place: among the elected by priority, 0 is the first
 * @elected: how many there are, more than @place
 *
 * The degree of the boost by rank: shared out evenly from the first down.
 *
 * Context: any. Return: 1..@levels; never rises with @place.
 */
unsigned int pflow_boost_levels(unsigned int levels, unsigned int place, unsigned int elected)
{
	unsigned int share = (levels * (elected - place) + elected - 1) / elected;

	return share ? share : 1;
}

/**
 * pflow_budget_step() - what the elected on a CPU may still take of it
 * @budget_us: what they might, microseconds; below 0 is what they took too much
 * @used_us: what they took since
 * @elapsed_us: how long since
 * @cap: percent of the CPU that they may take
 *
 * A token bucket that holds what may be taken in %PFLOW_BUDGET_US, and forgives
 * what was taken beyond all of that time.
 *
 * Context: any. Return: what they may now.
 */
s32 pflow_budget_step(s32 budget_us, u32 used_us, u32 elapsed_us, unsigned int cap)
{
	s64 full = (s64)PFLOW_BUDGET_US * cap / 100;
	s64 budget = budget_us + div_u64((u64)elapsed_us * cap, 100) - used_us;

	if (budget > full)
		budget = full;
	return budget < -(s64)PFLOW_BUDGET_US ? -(s64)PFLOW_BUDGET_US : budget;
}
