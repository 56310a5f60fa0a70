/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Policy of pf_filter: how much to shed, from whom, and with what probability.
 *
 * Receivers on a CPU stand in order of their level (common/policy.h). A *cut*
 * is a place in that order: receivers below it are held at the floor, the
 * receivers on it are shed in part, those above it not at all. Overload moves
 * the cut up, quiet moves it down; see pflow_cut_step().
 *
 * Plain numbers only; compiled unchanged into the user-space tests.
 *
 * Context: any; nothing here sleeps, allocates or locks.
 */
#ifndef _PFLOW_FILTER_POLICY_H
#define _PFLOW_FILTER_POLICY_H

#include "../common/policy.h"

#define PFLOW_ONE	65536u	/* a share of 1 in fixed point */

/**
 * struct pflow_cut - how far shedding reaches up the order of receivers
 * @level: receivers below are held at the floor
 * @share: 0..65535, how much of the receivers on @level is shed
 *
 * All zero sheds nothing.
 */
struct pflow_cut {
	u16 level;
	u16 share;
};

struct pflow_cut pflow_cut_step(struct pflow_cut cut, u32 pressure, bool spare, u32 elapsed_us,
				const u16 *levels, unsigned int nr_levels);
u32 pflow_harm_step(u32 harm_us, u32 loss, u32 elapsed_us);
bool pflow_harmed(u32 harm_us);
bool pflow_worth(u64 dropped, u64 passed);
bool pflow_relieved(u32 before, u32 after);
u32 pflow_keep(u32 share, u32 rate, u32 top_rate, u32 floor);

/**
 * pflow_cut_share() - how much of a receiver's excess is shed
 * @cut: where shedding stands
 * @level: the receiver's
 *
 * Context: any. Return: 0..65536; never rises with @level.
 */
static inline u32 pflow_cut_share(struct pflow_cut cut, u16 level)
{
	if (level > cut.level)
		return 0;
	return level < cut.level ? PFLOW_ONE : cut.share;
}

#endif
