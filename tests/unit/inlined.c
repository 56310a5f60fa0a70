// SPDX-License-Identifier: GPL-2.0-only
/* What the policy's headers inline, by names that Python can call. */
#include "common/policy.h"
#include "pf_filter/policy.h"

u16 level(u8 rank, bool elected)
{
	return pflow_level(rank, elected);
}

u64 slot_hash(const u64 *key, const u64 *words, unsigned int n)
{
	return pflow_slot_hash(key, words, n);
}

u32 cut_share(struct pflow_cut cut, u16 of)
{
	return pflow_cut_share(cut, of);
}
