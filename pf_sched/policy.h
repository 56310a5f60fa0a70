/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Policy of pf_sched: who is elected, how far it is raised, and how much of a
 * CPU the elected may take.
 *
 * Plain numbers only; compiled unchanged into the user-space tests.
 *
 * Context: any; nothing here sleeps, allocates or locks.
 */
#ifndef _PFLOW_SCHED_POLICY_H
#define _PFLOW_SCHED_POLICY_H

#include "../common/policy.h"

#define PFLOW_ELECT_MOST	16u	/* elected at a time, whatever is asked for */
#define PFLOW_BUDGET_US		100000u	/* over which the cap is averaged */

bool pflow_fills(u32 waiting, u32 size, unsigned int threshold);
unsigned int pflow_elect_most(unsigned int most, bool refused, bool exhausted, unsigned int cpus);
int pflow_least(const u8 *ranks, unsigned int number, u8 rank);
unsigned int pflow_place(const u8 *ranks, unsigned int number, u8 rank);
unsigned int pflow_boost_levels(unsigned int levels, unsigned int place, unsigned int elected);
s32 pflow_budget_step(s32 budget_us, u32 used_us, u32 elapsed_us, unsigned int cap);

#endif
