// SPDX-License-Identifier: GPL-2.0-only
/*
 * Policy of pf_mm, as plain arithmetic: how large a buffer may become by its owner's rank, how full
 * it may be before it grows, by how much it grows and shrinks, and two means. See policy.h.
 *
 * Context: any; nothing here sleeps, allocates or locks.
 */
#include "policy.h"

#define LEVELS_NICE0	20	/* 140 - prio of nice 0 */

static u32 least_of(u64 a, u32 b)
{
	return a < b ? a : b;
}

/* What arrives while relief is under way: the lambda * m of paper 004, section 6.2. */
static u64 relief_arrivals(u32 rate, u32 relief_us)
{
	return div_u64((u64)rate * relief_us, 1000);
}

/**
 * pflow_size_most() - how large a receiver's buffer may be (SBmax)
 * @default_size: that of a receiver of nice 0, bytes
 * @scale: percent of that; for machines whose receivers are known to need more
 * @rank: of the receiver, pflow_rank()
 *
 * default_size x (140 - prio) / 20 (paper 002, section 4.6). Real-time and deadline
 * receivers count as the top of the nice levels, the idle class as their end.
 *
 * Context: any. Return: bytes, at most %PFLOW_SIZE_MOST.
 */
u32 pflow_size_most(u32 default_size, unsigned int scale, u8 rank)
{
	unsigned int levels = rank > PFLOW_RANK_RT_BASE ? PFLOW_RANK_RT_BASE : rank;
	u64 most = (u64)default_size * (levels ? levels : 1);

	return least_of(div_u64(div_u64(most, LEVELS_NICE0) * scale, 100), PFLOW_SIZE_MOST);
}

/**
 * pflow_size_in_time() - bound a buffer by the time that its content waits
 * @most: bytes
 * @drain: bytes per millisecond that its receiver takes
 * @max_delay: milliseconds; 0 for no bound
 *
 * Context: any. Return: @most or less, bytes.
 */
u32 pflow_size_in_time(u32 most, u32 drain, unsigned int max_delay)
{
	return max_delay ? least_of((u64)drain * max_delay, most) : most;
}

/**
 * pflow_size_threshold() - how full a buffer is when it has to grow
 * @size: of the buffer, bytes
 * @rate: bytes per millisecond that arrive, by a fast filter
 * @relief_us: how long it takes until it has grown, by a slow filter
 *
 * ov_thresh = min(2L/3, L - lambda x m) (paper 004, section 6.2). There relief is a push to the
 * process, and here it is more room. The threshold is never below a quarter. If packets arrive
 * faster than that allows for, larger steps meet them, see pflow_size_grown().
 *
 * Context: any. Return: bytes, a quarter to two thirds of @size.
 */
u32 pflow_size_threshold(u32 size, u32 rate, u32 relief_us)
{
	u64 lost = relief_arrivals(rate, relief_us);
	u32 left = lost < size ? size - (u32)lost : 0;
	u32 threshold = least_of(left, (u64)size * 2 / 3);

	return threshold > size / 4 ? threshold : size / 4;
}

/**
 * pflow_size_grown() - the next size of a buffer that fills
 * @size: now, bytes
 * @most: the size that it may have, bytes
 * @rate: as for pflow_size_threshold()
 * @relief_us: as for pflow_size_threshold()
 *
 * It is doubled, so that one burst needs few steps. If more than that arrives in the time of two
 * reliefs, it grows by so much.
 *
 * Context: any. Return: bytes, @size..@most, and @size if that is more than @most.
 */
u32 pflow_size_grown(u32 size, u32 most, u32 rate, u32 relief_us)
{
	u64 twice = (u64)size * 2;
	u64 needed = size + 2 * relief_arrivals(rate, relief_us);

	if (most <= size)
		return size;
	return least_of(needed > twice ? needed : twice, most);
}

/**
 * pflow_size_shrunk() - the size to go back to
 * @size: now, bytes
 * @own: what it was without us, bytes
 * @used: the most that waited in it for a while, bytes
 *
 * If less than a third of a buffer was used, it becomes twice as large as what was used. Its
 * threshold is above what was used then. So the same load does not make it grow again.
 *
 * Context: any. Return: bytes, @own..@size.
 */
u32 pflow_size_shrunk(u32 size, u32 own, u32 used)
{
	u64 kept = (u64)used * 2;

	if ((u64)used * 3 > size)
		return size;
	if (kept < own)
		kept = own;
	return least_of(kept, size);
}

/**
 * pflow_size_unused() - what a buffer can give back at once
 * @size: now, bytes
 * @own: what it was without us, bytes
 * @used: what waits in it or was promised, bytes
 *
 * Context: any. Return: bytes.
 */
u32 pflow_size_unused(u32 size, u32 own, u32 used)
{
	u32 kept = used > own ? used : own;

	return size > kept ? size - kept : 0;
}

/**
 * pflow_mean_fast() - a mean that forgets soon
 * @mean: so far; 0 where nothing is known
 * @sample: the next
 *
 * Context: any. Return: the mean, half of it @sample.
 */
u32 pflow_mean_fast(u32 mean, u32 sample)
{
	return mean ? ((u64)mean + sample) / 2 : sample;
}

/**
 * pflow_mean_slow() - a mean that remembers
 * @mean: so far; 0 where nothing is known
 * @sample: the next
 *
 * Context: any. Return: the mean, an eighth of it @sample.
 */
u32 pflow_mean_slow(u32 mean, u32 sample)
{
	return mean ? mean - mean / 8 + sample / 8 : sample;
}
