// SPDX-License-Identifier: GPL-2.0-only
/*
 * The order: which levels of receivers are in use on a CPU, and what they are sent.
 *
 * A level is in use on the CPU where its packets arrive and on the one where its receivers
 * run; there each may be shed. What arrives is counted on its own CPU alone, by plain stores.
 *
 * Context: level_note_packet() in softirq, for each packet that rank may shed; the rest by the
 * controllers' tick.
 */
#include "../common/compat/compat.h"
#include "filter.h"

#define IN_USE		(HZ / 2)	/* so long after its last packet */
#define LEFT_AFTER	(HZ / 50)	/* so long after the other level of its rank has one */

/**
 * struct level - the receivers of one level on one CPU
 * @seen: jiffies of their last packet; 0: never
 * @top_rate: what the busiest is sent, packets/s; decays
 * @arrived: their packets that arrived on this CPU
 * @shed: those of them that were dropped for the sake of higher receivers
 * @arrived_seen: @arrived at the last tick
 * @shed_seen: likewise
 * @packet_ns: what one of its receivers runs for a packet, a decaying mean
 * @floor: packets/s that each socket of it keeps
 */
struct level {
	u32 seen;
	u32 top_rate;
	u32 arrived;
	u32 shed;
	u32 arrived_seen;
	u32 shed_seen;
	u32 packet_ns;
	u32 floor;
};

/**
 * struct order - the levels in use on a CPU, as one tick finds them
 * @n: how many
 * @level: which, ascending
 * @sent: how many packets of each arrived since the last tick
 * @passed: how many of them were let through
 */
struct order {
	unsigned int n;
	u16 level[PFLOW_LEVELS];
	u32 sent[PFLOW_LEVELS];
	u32 passed[PFLOW_LEVELS];
};

static void level_note_packet(struct level *level, u32 rate)
{
	u32 now = jiffies;

	if (READ_ONCE(level->seen) != now)
		WRITE_ONCE(level->seen, now);
	if (rate > READ_ONCE(level->top_rate))
		WRITE_ONCE(level->top_rate, rate);
}

static bool level_in_use(const struct level *level)
{
	return pflow_within(READ_ONCE(level->seen), IN_USE);
}

/*
 * A receiver that is elected, or no longer, leaves its level for the other of its rank. A cut
 * that stood on the empty one would shed nobody. Packets that arrive on another CPU count, too.
 */
static bool level_was_left(const struct level *levels, unsigned int i)
{
	const struct level *other = &levels[i ^ 1];

	return level_in_use(other) &&
	       time_after32(READ_ONCE(other->seen), READ_ONCE(levels[i].seen) + LEFT_AFTER);
}

/* List what is in use, and age what is known of the busiest. */
static void order_take(struct order *order, struct level *levels)
{
	unsigned int i;

	order->n = 0;
	for (i = 0; i < PFLOW_LEVELS; i++) {
		struct level *level = &levels[i];
		u32 top, sent, shed;

		if (!READ_ONCE(level->seen))
			continue;
		sent = READ_ONCE(level->arrived) - level->arrived_seen;
		shed = READ_ONCE(level->shed) - level->shed_seen;
		level->arrived_seen += sent;
		level->shed_seen += shed;
		if (!level_in_use(level)) {
			WRITE_ONCE(level->seen, 0);
			WRITE_ONCE(level->top_rate, 0);
			continue;
		}
		if (!level_was_left(levels, i)) {
			order->level[order->n] = i;
			order->sent[order->n] = sent;
			/* What was shed may be counted later than what arrived. */
			order->passed[order->n++] = max_t(s32, sent - shed, 0);
		}
		top = READ_ONCE(level->top_rate);
		WRITE_ONCE(level->top_rate, top - DIV_ROUND_UP(top, 64));
	}
}

/* How far a cut may reach for the sake of this level. */
static u32 order_most_below(const struct order *order, u16 level)
{
	unsigned int i;

	for (i = 0; i < order->n && order->level[i] < level; i++)
		;
	return pflow_cut_most(order->level, i);
}

/* Packets that those of this level were let through. */
static u32 order_passed(const struct order *order, u16 level)
{
	unsigned int i;

	for (i = 0; i < order->n; i++)
		if (order->level[i] == level)
			return order->passed[i];
	return 0;
}

/* Packets that those below this level were sent, or that they were let through. */
static u32 order_below(const struct order *order, const u32 *packets, u16 level)
{
	unsigned int i;
	u32 sum = 0;

	for (i = 0; i < order->n && order->level[i] < level; i++)
		sum += packets[i];
	return sum;
}

/*
 * Where shedding for receivers of a level ends: below all of their rank. A receiver that is elected
 * now is not elected any more in a moment. It must not be shed then for what it was before, and
 * neither must its equals.
 */
static u16 level_beneath(u16 level)
{
	return round_down(level, 2);
}

/* The most important receiver served here, TCP included, as a level plus one. */
static u16 order_served_level(const struct order *order, const struct pflow_load *load)
{
	int level = order->n ? order->level[order->n - 1] : -1;

	if (READ_ONCE(load->tcp_rank) && pflow_recent(READ_ONCE(load->tcp_at), PFLOW_HOLD))
		level = max_t(int, level, pflow_level(READ_ONCE(load->tcp_rank), false));
	return level + 1;
}
