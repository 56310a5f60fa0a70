/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Looking at one packet in a few.
 *
 * Under overload what a hook takes for each packet is taken from the receivers. Where many packets
 * tell the same, it is enough to look at some of them.
 */
#ifndef _PFLOW_SAMPLE_H
#define _PFLOW_SAMPLE_H

#include <linux/jiffies.h>
#include <linux/percpu.h>

#define PFLOW_SAMPLE_EVERY	4	/* of so many packets one is looked at */

/**
 * pflow_sample_takes() - is this packet the one in a few that is looked at?
 * @seen: how many packets came by on this CPU
 *
 * Which one it is changes with each jiffy, so that no flow among several that take turns is passed
 * over for ever. A caller that is migrated in between counts on another CPU.
 *
 * Context: any. Return: whether it is; then it stands for %PFLOW_SAMPLE_EVERY.
 */
static __always_inline bool pflow_sample_takes(u32 __percpu *seen)
{
	return !((raw_cpu_inc_return(*seen) + (u32)jiffies) % PFLOW_SAMPLE_EVERY);
}

#endif
