/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Policy of pf_mm: how large a buffer may be, when it grows and how far, and what
 * goes back.
 *
 * Plain numbers only; compiled unchanged into the user-space tests. Sizes are
 * bytes as sk_rcvbuf counts them (truesize). Rates are bytes per millisecond.
 *
 * Context: any; nothing here sleeps, allocates or locks.
 */
#ifndef _PFLOW_MM_POLICY_H
#define _PFLOW_MM_POLICY_H

#include "../common/policy.h"

#define PFLOW_SIZE_MOST		268435456u	/* of a buffer; doubled it is an int still */

u32 pflow_size_most(u32 default_size, unsigned int scale, u8 rank);
u32 pflow_size_in_time(u32 most, u32 drain, unsigned int max_delay);
u32 pflow_size_threshold(u32 size, u32 rate, u32 relief_us);
u32 pflow_size_grown(u32 size, u32 most, u32 rate, u32 relief_us);
u32 pflow_size_shrunk(u32 size, u32 own, u32 used);
u32 pflow_size_unused(u32 size, u32 own, u32 used);
u32 pflow_mean_fast(u32 mean, u32 sample);
u32 pflow_mean_slow(u32 mean, u32 sample);

#endif
