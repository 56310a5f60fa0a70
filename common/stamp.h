/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stamps: when something was, in jiffies, as one word in which 0 means "never".
 *
 * The lowest bit of a stamp is always set, so that no moment is 0. A word of 32 bits comes round
 * after weeks. So a time is asked whether it was within a given period, and not whether it was
 * before another one.
 */
#ifndef _PFLOW_STAMP_H
#define _PFLOW_STAMP_H

#include <linux/jiffies.h>

/* Another CPU's jiffies may be ahead of ours, and the lowest bit of a stamp is set. */
#define PFLOW_STAMP_AHEAD	HZ

/**
 * pflow_stamp() - a time as a stamp
 * @at: jiffies
 *
 * Context: any. Return: that time, with the lowest bit set, as 0 says never.
 */
static inline u32 pflow_stamp(u32 at)
{
	return at | 1;
}

/**
 * pflow_stamp_now() - this moment as a stamp
 *
 * Context: any. Return: jiffies, with the lowest bit set.
 */
static inline u32 pflow_stamp_now(void)
{
	return pflow_stamp((u32)jiffies);
}

/**
 * pflow_stamp_past() - a time that is longer ago than a period
 * @period: jiffies
 *
 * Context: any. Return: that time in jiffies; it may be 0, so it is no stamp.
 */
static inline u32 pflow_stamp_past(u32 period)
{
	return (u32)jiffies - period - 1;
}

/**
 * pflow_recent() - was something no longer ago than this?
 * @at: jiffies, when it last was
 * @how_long: jiffies
 *
 * Jiffies come round in 50 to 497 days. time_before32() takes half of all values for the future.
 * This takes those of one second for the future.
 *
 * Context: any. Return: whether it is.
 */
static inline bool pflow_recent(u32 at, u32 how_long)
{
	return (u32)jiffies - at + PFLOW_STAMP_AHEAD < how_long + PFLOW_STAMP_AHEAD;
}

/**
 * pflow_ahead() - is a time still to come?
 * @until: jiffies
 * @most: jiffies, from when it was set
 *
 * Context: any. Return: whether it is.
 */
static inline bool pflow_ahead(u32 until, u32 most)
{
	return until - (u32)jiffies - 1 < most + PFLOW_STAMP_AHEAD;
}

/**
 * pflow_within() - was something no longer ago than this? Never is not
 * @at: stamp of when it last was
 * @how_long: jiffies
 *
 * Context: any. Return: whether it was.
 */
static inline bool pflow_within(u32 at, u32 how_long)
{
	return at && pflow_recent(at, how_long);
}

#endif
