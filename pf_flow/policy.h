/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Policy of pf_flow: how fast a flow may be, how long it may wait, and who is next.
 *
 * A *bucket* (policy.c) says when a flow has tokens for a packet. It counts in billionths of a
 * bit, so that a rate in bits a second and a time in nanoseconds multiply to a whole number, and
 * nothing is ever rounded. The *choice* (choice.c) knows which flows have both a packet and tokens
 * for it. A flow that has no tokens sleeps and is not among them. A *scheduler* (eevdf.c, byrank.c)
 * says who of them is next.
 *
 * Plain numbers and pointers only; compiled unchanged into the user-space tests.
 *
 * Context: any; nothing here sleeps, allocates or locks. The caller keeps two from changing the
 * same thing at once.
 */
#ifndef _PFLOW_FLOW_POLICY_H
#define _PFLOW_FLOW_POLICY_H

#include <linux/math64.h>
#include <linux/types.h>

#define PFLOW_RATE_MOST		1000000000000ull	/* bits a second */
#define PFLOW_BURST_MOST	1073741824u	/* bytes */
#define PFLOW_WEIGHT_MOST	1000u
#define PFLOW_NEVER		(~0ull)
#define PFLOW_BYTE_TOKENS	8000000000ull	/* in a bucket: a bit's are 10^9 */
#define PFLOW_VIRTUAL_SHIFT	12	/* a byte at weight 1, in virtual time */

/**
 * struct pflow_bucket - tokens of one rate
 * @rate: bits a second; 0: no bound
 * @depth: most tokens that it can hold, in billionths of a bit
 * @most_ns: in so long a time and no longer the tokens earned fit into 64 bits
 * @tokens: how many it held at @at; less than none after a packet that is longer than @depth
 * @at: ns, when it was last filled
 */
struct pflow_bucket {
	u64 rate;
	u64 depth;
	u64 most_ns;
	s64 tokens;
	u64 at;
};

void pflow_bucket_set(struct pflow_bucket *bucket, u64 rate, u32 burst, u64 now);

/**
 * pflow_bucket_fill() - put in what was earned
 * @bucket: it
 * @now: ns; an earlier one than before changes nothing
 */
static inline void pflow_bucket_fill(struct pflow_bucket *bucket, u64 now)
{
	u64 lack = bucket->depth - bucket->tokens, elapsed = now - bucket->at;

	if (!bucket->rate || (s64)elapsed <= 0)
		return;
	bucket->at = now;
	/* What does not fit into 64 bits is more than any bucket lacks. */
	if (elapsed > bucket->most_ns || elapsed * bucket->rate >= lack)
		bucket->tokens = bucket->depth;
	else
		bucket->tokens += elapsed * bucket->rate;
}

/**
 * pflow_bucket_wait() - how long must a packet wait for its tokens?
 * @bucket: just filled
 * @bytes: of the packet
 *
 * Return: ns; 0: it may go. After just that time it may, and not a nanosecond before.
 */
static inline u64 pflow_bucket_wait(const struct pflow_bucket *bucket, u32 bytes)
{
	u64 need = bytes * PFLOW_BYTE_TOKENS;

	if (!bucket->rate)
		return 0;
	if (need > bucket->depth)
		need = bucket->depth;
	if (bucket->tokens >= (s64)need)
		return 0;
	return div64_u64(need - bucket->tokens + bucket->rate - 1, bucket->rate);
}

/**
 * pflow_bucket_spend() - a packet goes
 * @bucket: for which it had not to wait
 * @bytes: of the packet
 */
static inline void pflow_bucket_spend(struct pflow_bucket *bucket, u32 bytes)
{
	if (bucket->rate)
		bucket->tokens -= bytes * PFLOW_BYTE_TOKENS;
}

/**
 * pflow_bucket_holds() - can a packet have all its tokens at once?
 * @bucket: it
 * @bytes: of the packet
 *
 * Return: whether the bucket is as deep as that.
 */
static inline bool pflow_bucket_holds(const struct pflow_bucket *bucket, u32 bytes)
{
	return !bucket->rate || bytes * PFLOW_BYTE_TOKENS <= bucket->depth;
}

/**
 * pflow_bucket_slow() - does it take long to earn what a packet takes?
 * @bucket: it
 * @bytes: of the packet
 *
 * Return: whether it takes more than a millisecond.
 */
static inline bool pflow_bucket_slow(const struct pflow_bucket *bucket, u32 bytes)
{
	return bucket->rate && bytes * 8000ull > bucket->rate;
}

u32 pflow_burst_bytes(u64 rate, u32 longest);
u32 pflow_peak_bytes(u64 peak, u32 longest);
u64 pflow_bucket_batch(const struct pflow_bucket *bucket, u64 wait, u64 waited);
u32 pflow_queue_bytes(u64 rate);
u32 pflow_queue_packets(u32 bytes);

/* Where an entity is kept. */
enum pflow_where {
	PFLOW_ELIGIBLE,		/* it may be next; by deadline */
	PFLOW_AHEAD,		/* it has had more than its share; by its start */
	PFLOW_ASLEEP,		/* it has no tokens; by the time at which it will */
	PFLOW_HEAPS,
	PFLOW_NOWHERE = PFLOW_HEAPS,
};

/**
 * struct pflow_entity - a flow, as far as the choice knows it
 * @start: virtual time at which it has had its share
 * @deadline: its scheduler's key; EEVDF's: virtual time by which its next packet is due
 * @lag: while it sleeps: what it was owed when it fell asleep, as start times weight
 * @at: ns, when it will have tokens; while it sleeps
 * @weight: its share, 1..PFLOW_WEIGHT_MOST
 * @length: of its next packet, bytes
 * @place: in its heap
 * @where: which heap that is
 * @rank: of the receiver of its next packet
 * @competes: it counts in the sums: it is eligible, ahead or being served
 */
struct pflow_entity {
	u64 start;
	u64 deadline;
	s64 lag;
	u64 at;
	u32 weight;
	u32 length;
	u32 place;
	u8 where;
	u8 rank;
	bool competes;
};

/**
 * struct pflow_heap - entities by a key, the least of them first
 * @at: room for as many as there are entities
 * @number: how many are in it
 */
struct pflow_heap {
	struct pflow_entity **at;
	u32 number;
};

/**
 * struct pflow_choice - all entities, and the virtual time
 * @heaps: see enum pflow_where
 * @base: a virtual time near to the present one, from which @sum counts
 * @sum: of (start - @base) times weight of all that compete
 * @weights: of all that compete
 * @turn: by which equals take turns
 * @scheduler: who says who is next
 */
struct pflow_choice {
	struct pflow_heap heaps[PFLOW_HEAPS];
	u64 base;
	s64 sum;
	u64 weights;
	u64 turn;
	const struct pflow_scheduler *scheduler;
};

/**
 * struct pflow_scheduler - who of those that compete is next
 * @name: of people's choice
 * @enqueue: one that competes and is in no heap has a packet: put it into one of its own two
 * @dequeue: take the next one from its heap; NULL: nobody is there
 * @charge: so many bytes of one that is in no heap went; may be NULL
 */
struct pflow_scheduler {
	const char *name;
	void (*enqueue)(struct pflow_choice *choice, struct pflow_entity *entity);
	struct pflow_entity *(*dequeue)(struct pflow_choice *choice);
	void (*charge)(struct pflow_choice *choice, struct pflow_entity *entity, u32 length);
};

extern const struct pflow_scheduler pflow_eevdf, pflow_by_rank;

/* For schedulers. */
void pflow_choice_insert(struct pflow_choice *choice, struct pflow_entity *entity,
			 enum pflow_where where);
void pflow_choice_remove(struct pflow_choice *choice, struct pflow_entity *entity);
struct pflow_entity *pflow_choice_first(const struct pflow_choice *choice, enum pflow_where where);

u64 pflow_choice_time(const struct pflow_choice *choice);
void pflow_choice_join(struct pflow_choice *choice, struct pflow_entity *entity, u32 length);
void pflow_choice_sleep(struct pflow_choice *choice, struct pflow_entity *entity, u32 length,
			u64 at);
void pflow_choice_leave(struct pflow_choice *choice, struct pflow_entity *entity);
void pflow_choice_wake(struct pflow_choice *choice, u64 now);
struct pflow_entity *pflow_choice_pick(struct pflow_choice *choice);
void pflow_choice_served(struct pflow_choice *choice, struct pflow_entity *entity, u32 length);
void pflow_choice_again(struct pflow_choice *choice, struct pflow_entity *entity, u32 length);
void pflow_choice_reweigh(struct pflow_choice *choice, struct pflow_entity *entity, u32 weight);
void pflow_choice_switch(struct pflow_choice *choice, const struct pflow_scheduler *scheduler,
			 u64 now);
u64 pflow_choice_next(const struct pflow_choice *choice);

#endif
