// SPDX-License-Identifier: GPL-2.0-only
/* What the policy's headers inline, by names that Python can call. */
#include "common/policy.h"
#include "common/stamp.h"
#include "pf_filter/policy.h"
#include "pf_flow/policy.h"

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

unsigned long jiffies;

bool within(u32 now, u32 at, u32 how_long)
{
	jiffies = now;
	return pflow_within(at, how_long);
}

bool ahead(u32 now, u32 until, u32 most)
{
	jiffies = now;
	return pflow_ahead(until, most);
}

void bucket_fill(struct pflow_bucket *bucket, u64 now)
{
	pflow_bucket_fill(bucket, now);
}

u64 bucket_wait(const struct pflow_bucket *bucket, u32 bytes)
{
	return pflow_bucket_wait(bucket, bytes);
}

void bucket_spend(struct pflow_bucket *bucket, u32 bytes)
{
	pflow_bucket_spend(bucket, bytes);
}

bool bucket_holds(const struct pflow_bucket *bucket, u32 bytes)
{
	return pflow_bucket_holds(bucket, bytes);
}

bool bucket_slow(const struct pflow_bucket *bucket, u32 bytes)
{
	return pflow_bucket_slow(bucket, bytes);
}
