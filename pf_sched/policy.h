/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Policy of pf_sched: who is elected, how far it is raised, how much of a CPU the
 * elected may take, and how much a receiver lacks that is raised.
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

/**
 * struct pflow_service - what a receiver gets
 * @lost: packets a second that its socket loses, a decaying mean
 * @share: of a CPU that it takes, 0..65536, a decaying mean
 */
struct pflow_service {
	u32 lost;
	u32 share;
};

bool pflow_fills(u32 waiting, u32 size, unsigned int threshold);
unsigned int pflow_elect_most(unsigned int most, bool refused, bool exhausted, unsigned int cpus);
unsigned int pflow_place(const u16 *ranks, unsigned int number, u8 rank);
unsigned int pflow_boost_levels(unsigned int levels, unsigned int place, unsigned int elected);
void pflow_service_step(struct pflow_service *service, u32 lost, u64 took_us, u32 elapsed_us);
u32 pflow_service_harm(const struct pflow_service *service, bool stream, u32 wait);
s32 pflow_budget_step(s32 budget_us, u32 used_us, u32 elapsed_us, unsigned int cap);

#endif
