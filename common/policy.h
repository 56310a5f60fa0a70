/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Policy of pf_common: plain numbers in, plain numbers out.
 *
 * These functions decide who ranks above whom and how fast a receiver is sent
 * to. They touch no kernel object, so the very same file is compiled into the
 * module and, with stand-ins for the headers below, into the user-space
 * property tests.
 *
 * Context: any; nothing here sleeps, allocates or locks.
 */
#ifndef _PFLOW_POLICY_H
#define _PFLOW_POLICY_H

#include <linux/export.h>
#include <linux/limits.h>
#include <linux/math64.h>
#include <linux/types.h>

#define PFLOW_ONE	65536u	/* a share of 1 in fixed point */

/* Why a packet was dropped early; indexes pflow_sock.early and counters. */
enum pflow_drop {
	PFLOW_DROP_OVERLOAD,	/* B1: the receive queue of this CPU overflows */
	PFLOW_DROP_HARM,	/* B1: costs a more important receiver its packets */
	PFLOW_DROP_FULL,	/* B2: the socket would drop it */
	PFLOW_DROPS,
};

/* How a task is scheduled, from least to most important. */
enum pflow_class {
	PFLOW_CLASS_IDLE,
	PFLOW_CLASS_NICE,
	PFLOW_CLASS_RT,
	PFLOW_CLASS_DEADLINE,
};

/*
 * Ranks, higher is more important: 0 idle class, 1..40 nice 19..-20,
 * 41..139 real-time 1..99, 140 deadline.
 */
#define PFLOW_RANK_NICE0	20
#define PFLOW_RANK_RT_BASE	40
#define PFLOW_RANK_DEADLINE	140
#define PFLOW_RANKS		141

/*
 * The order among receivers: an elected process (pp) stands above its equals
 * and below every receiver of truly higher priority.
 */
#define PFLOW_LEVELS		(2 * PFLOW_RANKS)

/* policy/policy.c */
u8 pflow_rank(enum pflow_class class, int nice, unsigned int rt_priority);
int pflow_group_counts(int nice, bool trusted);
int pflow_rank_prio(u8 rank);
u32 pflow_rank_weight(u8 rank);
u32 pflow_rate_update(u32 rate, u32 packets, u32 elapsed_us);

/* policy/places.c */
unsigned int pflow_places_of(const u32 *users, unsigned int number, u32 user);
int pflow_gives_way(const u16 *ranks, const u32 *users, unsigned int number, u16 rank, u32 user);

/**
 * pflow_level() - the order among receivers, election included
 * @rank: 0..140
 * @elected: pf_sched has elected the process (the paper's pp flag)
 *
 * An election lifts by half a rank: above every receiver of the same
 * priority, never level with one of higher priority. So a flood that got its
 * owner elected buys no immunity from anyone who matters more.
 *
 * Context: any. Return: 0..281, higher is shed later.
 */
static inline u16 pflow_level(u8 rank, bool elected)
{
	return 2 * rank + (elected ? 1 : 0);
}

/**
 * pflow_level_outranks() - is a receiver of truly higher priority?
 * @level: its level
 * @other: the other's
 *
 * Context: any. Return: whether it is, elections left aside.
 */
static inline bool pflow_level_outranks(u32 level, u32 other)
{
	return level / 2 > other / 2;
}

/**
 * pflow_slot_hash() - where a flow is remembered
 * @key: odd random numbers, one for each word; none is ever shown to anybody
 * @words: what the flow is known by
 * @n: how many words
 *
 * A sum of products: a few instructions, and nobody who lacks the key can say which flows meet. As
 * the keys are odd, no bit of a word is without effect.
 *
 * Context: any. Return: a number whose high bits are to be used.
 */
static inline u64 pflow_slot_hash(const u64 *key, const u64 *words, unsigned int n)
{
	u64 sum = 0;
	unsigned int i;

	for (i = 0; i < n; i++)
		sum += words[i] * key[i];
	return sum;
}

#endif
