// SPDX-License-Identifier: GPL-2.0-only
/*
 * Harm by a receive queue that overflows. It loses packets of any receiver. So the most important
 * receiver served there is taken as the harmed one. The harm is no more than what it lacks.
 *
 * Context: the controllers' tick.
 */
#define STOOD_BEARABLE	(PFLOW_ONE / 64)	/* share of time for which a queue may stand */
#define STANDS		(PFLOW_ONE / 8 * 7)	/* the CPU was busy all the time, or nearly so */
#define SERVED_FADES	128	/* ticks: who is sent less is not harmed for longer */
#define LOST_FOR	(HZ / 5)	/* twice as long as the estimator takes to look again */

/**
 * struct queue - whether a CPU's receive queue stands
 * @standing_ns: pflow_load.standing_ns at the last tick
 * @lost: pflow_load.lost at the last tick
 * @lost_at: stamp of when it last rose; 0 for not lately
 * @stood_us: how long it has stood, see pflow_stood_step()
 * @packet_ns: how long the CPU takes for a packet of it while it stands, a decaying mean; 0: it
 *	has not stood yet
 * @unshed_ns: the same when nobody was shed
 * @served: packets/s of the most important level served here, a decaying mean
 * @served_most: the most that was lately, while others are shed; 0: not known
 */
struct queue {
	u64 standing_ns;
	u32 lost;
	u32 lost_at;
	u32 stood_us;
	u32 packet_ns;
	u32 unshed_ns;
	u32 served;
	u32 served_most;
};

/* A loss counts until the estimator has looked again. */
static u32 queue_stands(struct queue *queue, const struct pflow_load *load, u32 elapsed_us)
{
	u64 standing_ns = READ_ONCE(load->standing_ns);
	u32 lost = READ_ONCE(load->lost);
	u32 stands = time_share_of(standing_ns - queue->standing_ns, elapsed_us);
	u32 now = jiffies;

	if (lost != queue->lost)
		queue->lost_at = pflow_stamp(now);
	else if (queue->lost_at && time_after32(now, queue->lost_at + LOST_FOR))
		queue->lost_at = 0;
	if (queue->lost_at)
		stands = PFLOW_ONE;
	queue->standing_ns = standing_ns;
	queue->lost = lost;
	return stands;
}

/*
 * How long the CPU takes for a packet, as far as it has no time to spare: while the queue does not
 * stand, it waits for packets and that tells nothing.
 */
static void queue_note_packet_ns(struct queue *queue, const struct usage *usage,
				 struct pflow_cut cut, u32 elapsed_us)
{
	u32 packet_ns = min_t(u64, (u64)elapsed_us * NSEC_PER_USEC / max(usage->polled, 1U),
			      U32_MAX);

	if (usage->standing < STANDS)
		return;
	if (queue->packet_ns)
		packet_ns = mean_step(queue->packet_ns, packet_ns);
	queue->packet_ns = packet_ns;
	if (!cut.level && !cut.share)
		queue->unshed_ns = packet_ns;
}

/*
 * What the most important receiver lacks of the packets that it once had, 0..65536. That is known
 * as soon as others have been shed for it as far as can be: then it lacked the least.
 */
static u32 queue_served_lacks(struct queue *queue, const struct order *order, struct pflow_cut cut,
			      u16 level, u32 elapsed_us)
{
	u32 rate = div_u64((u64)order_passed(order, level) * USEC_PER_SEC, max(elapsed_us, 1U));
	u32 reach = pflow_cut_reach(cut, order->level, order->n);

	queue->served = mean_step(queue->served, rate);
	if (!reach)
		queue->served_most = 0;
	if (!queue->served_most &&
	    (!reach || reach < order_most_below(order, level_beneath(level))))
		return PFLOW_ONE;
	queue->served_most -= queue->served_most / SERVED_FADES;
	queue->served_most = max3(queue->served_most, queue->served, 1U);
	return PFLOW_ONE - div_u64((u64)queue->served * PFLOW_ONE, queue->served_most);
}

/*
 * A queue that stands loses what the CPU has no time for. How many that are is often known
 * to nobody in the guest. But shedding helps by as much as it makes packets cheaper, and no more
 * than the most important receiver lacks.
 */
static u32 queue_harm(struct queue *queue, const struct usage *usage, const struct order *order,
		      struct pflow_cut cut, u16 level, u32 elapsed_us)
{
	u32 lacks = queue_served_lacks(queue, order, cut, level, elapsed_us);
	u32 harm = usage->standing;

	queue_note_packet_ns(queue, usage, cut, elapsed_us);
	if (queue->unshed_ns && queue->packet_ns < queue->unshed_ns)
		harm = div_u64((u64)harm * queue->packet_ns, queue->unshed_ns);
	return min(harm, lacks);
}

/*
 * Whose packets a queue loses nobody knows either, so the most important receiver's that is
 * served counts. Shedding begins with an overload that lasts; once begun, it answers at once.
 */
static void harm_weigh_queue(struct harm *worst, struct queue *queue, const struct usage *usage,
			     const struct order *order, struct pflow_cut cut, u16 served,
			     u32 elapsed_us)
{
	u16 level = served - 1;		/* where anybody is served */
	u32 harm;

	queue->stood_us = pflow_stood_step(queue->stood_us, usage->standing, elapsed_us);
	if (!served || !harm_can_be_helped(order, cut, level))
		return;
	harm = queue_harm(queue, usage, order, cut, level, elapsed_us);
	if (usage->standing)
		worst->spare = 0;
	if (cut.level || cut.share || pflow_stood_long(queue->stood_us))
		harm_keep_worst(worst, share_as_loss(harm, STOOD_BEARABLE), level,
				FILTER_DROP_OVERLOAD);
}
