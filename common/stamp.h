/* SPDX-License-Identifier: GPL-2.0-only */
/* Stamps: when something was, in jiffies, as one word of which 0 says never. */
#ifndef _PFLOW_STAMP_H
#define _PFLOW_STAMP_H

#include <linux/jiffies.h>

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
 * pflow_stamp_past() - a time since which a period is over
 * @period: jiffies
 *
 * Context: any. Return: jiffies, longer ago than @period; where that may be 0, it is no stamp.
 */
static inline u32 pflow_stamp_past(u32 period)
{
	return (u32)jiffies - period - 1;
}

/**
 * pflow_within() - was that so no longer ago?
 * @at: stamp of when it last was
 * @how_long: jiffies
 *
 * Context: any. Return: whether it was.
 */
static inline bool pflow_within(u32 at, u32 how_long)
{
	return at && time_before32((u32)jiffies, at + how_long);
}

#endif
