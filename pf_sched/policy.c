// SPDX-License-Identifier: GPL-2.0-only
/*
 * Policy of pf_sched, as plain arithmetic: which buffer fills, how many threads are elected, how
 * far each is raised, what they may take of a CPU, and how much a raised receiver still lacks. Who
 * makes room for another is in ../common/policy/places.c. See policy.h.
 *
 * Context: any; nothing here sleeps, allocates or locks.
 */
#include "policy.h"

#define SECOND_US	1000000u
#define MEAN	8	/* ticks of 10 ms; two thirds of a change show in 80 ms without the boost */
#define STREAM	100	/* packets a second that a stream is taken to lose */
#define WAITS	(PFLOW_ONE / 4)	/* of the time; a receiver that is slow by itself waits for less */
#define IDLE	MEAN	/* of PFLOW_ONE of a CPU; a mean of whole numbers never gets to 0 */

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
 * It is one more in each step, if somebody waits for a place and there is CPU time left. It is half
 * as many if there is none left, since to raise everybody is to raise nobody.
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
 * pflow_place() - somebody's place among the elected
 * @ranks: of the others
 * @number: how many
 * @rank: its own
 *
 * Context: any. Return: how many come before it; equals share a place.
 */
unsigned int pflow_place(const u16 *ranks, unsigned int number, u8 rank)
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
 * The first gets all levels, and each one after it less, in even steps.
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
 * @budget_us: what they might take before, microseconds; below 0 is what they took too much
 * @used_us: what they took since, microseconds
 * @elapsed_us: how long since, microseconds
 * @cap: percent of the CPU that they may take
 *
 * This is a token bucket. It holds what may be taken in %PFLOW_BUDGET_US. They can owe all of
 * that time at most; what was taken beyond is forgiven.
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

static u32 ticks_mean(u32 before, u32 now)
{
	return before + (s32)(now - before) / MEAN;
}

static u32 rate_of(u64 number, u32 elapsed_us)
{
	u64 rate = div_u64(number, elapsed_us ? elapsed_us : 1);

	return rate < S32_MAX ? rate : S32_MAX;
}

/**
 * pflow_service_step() - follow what a receiver gets
 * @service: as of the last tick
 * @lost: packets that its socket lost since
 * @took_us: CPU time that it took since, microseconds
 * @elapsed_us: how long since, microseconds
 *
 * Context: any.
 */
void pflow_service_step(struct pflow_service *service, u32 lost, u64 took_us, u32 elapsed_us)
{
	service->lost = ticks_mean(service->lost, rate_of((u64)lost * SECOND_US, elapsed_us));
	service->share = ticks_mean(service->share, rate_of(took_us * PFLOW_ONE, elapsed_us));
}

/**
 * pflow_service_harm() - how much a receiver lacks
 * @service: what it gets
 * @stream: it loses no packets
 * @wait: 0..65536, share of the time for which it waits for a CPU
 *
 * These make the same difference to the number: an eighth more loss, an eighth less of a CPU, and a
 * thirtieth of the time more to wait. A receiver that does not run waits for something else, and
 * lacks nothing.
 *
 * Context: any. Return: the number; it is no share of anything.
 */
u32 pflow_service_harm(const struct pflow_service *service, bool stream, u32 wait)
{
	u64 harm = stream ? STREAM : service->lost;

	if (service->share <= IDLE)
		return 0;
	harm *= PFLOW_ONE + 4 * (wait > WAITS ? wait - WAITS : 0);
	harm = div_u64(harm, service->share + 1);
	return harm < U32_MAX ? harm : U32_MAX;
}
