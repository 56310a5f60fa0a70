// SPDX-License-Identifier: GPL-2.0-only
/*
 * Policy of pf_common, as plain arithmetic: the rank of a task, what a control group adds to it,
 * and the rate of a socket. See ../policy.h.
 *
 * Context: any; nothing here sleeps, allocates or locks.
 */
#include "../policy.h"

#define USEC_PER_S	1000000u
/* A stretch this long is an average of its own; the past adds nothing. */
#define RATE_MEMORY_US	200000u

static int clamp_int(int value, int low, int high)
{
	return value < low ? low : value > high ? high : value;
}

/**
 * pflow_rank() - place a task among all receivers
 * @class: scheduling class
 * @nice: nice level, and what control groups add to it; only for %PFLOW_CLASS_NICE
 * @rt_priority: real-time priority, 1..99; only for %PFLOW_CLASS_RT
 *
 * What the administrator set decides: nice, weight, real-time class. So it is in the paper, too
 * (static priority, section 3.1). What the scheduler makes of that does not matter.
 *
 * Context: any. Return: 0..140, higher is more important.
 */
u8 pflow_rank(enum pflow_class class, int nice, unsigned int rt_priority)
{
	switch (class) {
	case PFLOW_CLASS_DEADLINE:
		return PFLOW_RANK_DEADLINE;
	case PFLOW_CLASS_RT:
		return PFLOW_RANK_RT_BASE + clamp_int(rt_priority, 1, 99);
	case PFLOW_CLASS_NICE:
		return PFLOW_RANK_NICE0 - clamp_int(nice, -20, 19);
	default:
		return 0;
	}
}

/**
 * pflow_group_counts() - what a control group adds to the nice level of a task in it
 * @nice: what its weight amounts to
 * @trusted: nobody but the administrator sets that
 *
 * Context: any. Return: levels; if it is not trusted, only such as lower the rank.
 */
int pflow_group_counts(int nice, bool trusted)
{
	return trusted || nice > 0 ? nice : 0;
}

/**
 * pflow_rank_prio() - a rank on the kernel's priority scale
 * @rank: 0..140
 *
 * Context: any. Return: -1 deadline, 0..98 real-time, 100..139 nice -20..19;
 * the idle class counts as 139.
 */
int pflow_rank_prio(u8 rank)
{
	if (rank >= PFLOW_RANK_DEADLINE)
		return -1;
	if (rank > PFLOW_RANK_RT_BASE)
		return 99 - (rank - PFLOW_RANK_RT_BASE);
	return rank ? 140 - rank : 139;
}
EXPORT_SYMBOL_GPL(pflow_rank_prio);

/**
 * pflow_rank_weight() - a rank's share of a CPU beside others, as the scheduler has it for nice
 * @rank: 0..140; above nice all weigh as nice -20
 *
 * A nice level is a fifth less or a quarter more: nice 0 weighs 1024, nice 5 a third and nice
 * 10 a tenth of it.
 *
 * Context: any. Return: the weight.
 */
u32 pflow_rank_weight(u8 rank)
{
	u32 weight = 1024, i;

	for (i = PFLOW_RANK_NICE0; i < rank && i < PFLOW_RANK_RT_BASE; i++)
		weight += weight / 4;
	for (i = PFLOW_RANK_NICE0; i > rank; i--)
		weight -= weight / 5;
	return weight;
}
EXPORT_SYMBOL_GPL(pflow_rank_weight);

/**
 * pflow_rate_update() - receive rate of a socket after one more stretch
 * @rate: packets/s so far; 0 where nothing is known
 * @packets: packets in the stretch
 * @elapsed_us: length of the stretch, microseconds, not 0
 *
 * Short stretches are averaged with weight 1/4, long ones stand alone, so that
 * a rare sender is not remembered as a busy one.
 *
 * Context: any. Return: packets/s.
 */
u32 pflow_rate_update(u32 rate, u32 packets, u32 elapsed_us)
{
	u64 sample = div_u64((u64)packets * USEC_PER_S, elapsed_us);

	if (sample > U32_MAX)
		sample = U32_MAX;
	if (!rate || elapsed_us >= RATE_MEMORY_US)
		return sample;
	return rate - rate / 4 + (u32)sample / 4;
}
