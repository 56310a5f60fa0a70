// SPDX-License-Identifier: GPL-2.0-only
/*
 * Buckets, and the lengths that nobody set.
 *
 * A bucket fills at its rate up to its depth. A packet may go when the bucket holds as much as the
 * packet takes, or is full: a packet longer than the bucket is deep waits until it is full and
 * leaves it in debt. So in any time t no more than rate x t + depth goes, or, where one packet is
 * longer than the bucket is deep, than rate x t + that packet.
 */
#include <linux/limits.h>
#include <linux/math64.h>

#include "policy.h"

#define FRAME		1514u			/* a whole packet of Ethernet */
#define FRAMES		(2 * FRAME)
#define QUEUE_LEAST	(32u << 10)
#define QUEUE_MOST	(64u << 20)
#define PACKETS_LEAST	32u
#define PACKET_BYTES	256u	/* a buffer takes more memory than a small packet */
#define LATE_SHARE	64u	/* of what a packet has waited */
#define LATE_MOST	1000000ull	/* ns; TCP, too, sends a millisecond of its rate at once */

static u64 bytes_in(u64 rate, u32 us)
{
	/* At most 10^12 x 10^5. */
	return div64_u64(rate * us, 8 * 1000000ull);
}

static u32 at_least_at_most(u64 bytes, u32 least, u32 most)
{
	if (bytes < least)
		return least;
	return bytes > most ? most : bytes;
}

/**
 * pflow_bucket_set() - give a bucket a rate and a depth
 * @bucket: it; one that had no rate is full afterwards, another keeps its tokens
 * @rate: bits a second, up to PFLOW_RATE_MOST; 0: no bound
 * @burst: its depth in bytes, 1..PFLOW_BURST_MOST
 * @now: ns
 */
void pflow_bucket_set(struct pflow_bucket *bucket, u64 rate, u32 burst, u64 now)
{
	bool fresh = !bucket->rate;

	pflow_bucket_fill(bucket, now);
	bucket->rate = rate;
	bucket->depth = burst * PFLOW_BYTE_TOKENS;
	bucket->most_ns = rate ? div64_u64(U64_MAX, rate) : 0;
	bucket->at = now;
	if (fresh || bucket->tokens > (s64)bucket->depth)
		bucket->tokens = bucket->depth;
}

/* How deep, so that no tokens are lost if the server is late by that many us. */
static u32 depth_bytes(u64 rate, u32 us, u32 longest)
{
	u32 bytes = at_least_at_most(bytes_in(rate, us), FRAMES, PFLOW_BURST_MOST / 2);

	return longest > FRAME ? bytes + longest - FRAME : bytes;
}

/**
 * pflow_burst_bytes() - how much of a flow may go at once, where nobody said
 * @rate: its average rate, bits a second
 * @longest: its longest packet, bytes, less than PFLOW_BURST_MOST / 2
 *
 * What waits need not go in bursts, so little would do. But if the server is late while the bucket
 * is full, tokens are lost, and with them some of the rate. So the longest packet leaves room.
 *
 * Return: bytes, 10 ms of the rate, and no less than two whole packets; and what a super-packet is
 * longer than one.
 */
u32 pflow_burst_bytes(u64 rate, u32 longest)
{
	return depth_bytes(rate, 10000, longest);
}

/**
 * pflow_peak_bytes() - the same of the peak rate
 * @peak: bits a second
 * @longest: its longest packet, bytes, less than PFLOW_BURST_MOST / 2
 *
 * Return: bytes, a millisecond of the rate, and no less than two whole packets, and so on.
 */
u32 pflow_peak_bytes(u64 peak, u32 longest)
{
	return depth_bytes(peak, 1000, longest);
}

/**
 * pflow_bucket_batch() - how long is a packet of a queue kept, so that others can go with it?
 * @bucket: for which it waits, just filled
 * @wait: ns until that holds its tokens
 * @waited: ns that it has waited already
 *
 * The timer's interrupt and a start of the server cost thousands of instructions. Packets that have
 * waited long share them: each waits a 64th longer at most, and no more than a millisecond. The
 * rate stays what it is, since no tokens are lost before the bucket is full.
 *
 * Return: ns, @wait or longer.
 */
u64 pflow_bucket_batch(const struct pflow_bucket *bucket, u64 wait, u64 waited)
{
	u64 full = pflow_bucket_wait(bucket, PFLOW_BURST_MOST), late = waited / LATE_SHARE;

	if (late > LATE_MOST)
		late = LATE_MOST;
	if (late > (full - wait) / 2)
		late = (full - wait) / 2;
	/* Another packet would hardly get its tokens in less than this one needs. */
	return late < wait ? wait : wait + late;
}

/**
 * pflow_queue_bytes() - how much of a flow may wait, where nobody said
 * @rate: its average rate, bits a second
 *
 * In proportion to the rate (the paper's section 2.2): what waits longest does so for a tenth of
 * a second. A slow flow's queue still holds a round trip of a TCP connection.
 *
 * Return: bytes.
 */
u32 pflow_queue_bytes(u64 rate)
{
	return at_least_at_most(bytes_in(rate, 100000), QUEUE_LEAST, QUEUE_MOST);
}

/**
 * pflow_queue_packets() - how many packets may wait
 * @bytes: how many bytes may
 *
 * Return: packets.
 */
u32 pflow_queue_packets(u32 bytes)
{
	return at_least_at_most(bytes / PACKET_BYTES, PACKETS_LEAST, U32_MAX);
}
