// SPDX-License-Identifier: GPL-2.0-only
/*
 * Harm by a receive queue that overflows. It loses packets of any receiver. So the most important
 * receiver served there is taken as the harmed one. The harm is no more than what it lacks.
 *
 * Context: the controllers' tick.
 */
#define STOOD_BEARABLE	(PFLOW_ONE / 64)	/* share of time for which a queue may stand */
#define LOST_FOR	(HZ / 5)	/* twice as long as the estimator takes to look again */

/**
 * struct queue - whether a CPU's receive queue stands
 * @standing_ns: pflow_load.standing_ns at the last tick
 * @lost: pflow_load.lost at the last tick
 * @lost_at: stamp of when it last rose; 0 for not lately
 * @losses: what it lost lately
 * @seen: 0..65536, share of the last tick for which it was seen to stand
 * @stood_us: how long it has stood, see pflow_stood_step()
 * @asking: the last step of shedding was taken back, to find out whether it helps
 * @known: what shedding has made of it so far
 */
struct queue {
	u64 standing_ns;
	u32 lost;
	u32 lost_at;
	struct pflow_losses losses;
	u32 seen;
	u32 stood_us;
	bool asking;
	struct pflow_queue known;
};

/*
 * A loss counts until the estimator has looked again, by how much was lost. Where the CPU has time
 * to spare it was a burst that did not fit, and no shedding would have made it fit.
 */
static u32 queue_standing_share(struct queue *queue, const struct pflow_load *load,
				const struct usage *usage, bool idle, u32 elapsed_us)
{
	u64 standing_ns = READ_ONCE(load->standing_ns);
	u32 lost = READ_ONCE(load->lost);
	u32 share = pflow_queue_lost_step(&queue->losses, lost - queue->lost, usage->polled,
					  elapsed_us);

	queue->seen = time_share_of(standing_ns - queue->standing_ns, elapsed_us);
	if (lost != queue->lost)
		queue->lost_at = pflow_stamp_now();
	else if (!pflow_within(queue->lost_at, LOST_FOR))
		queue->lost_at = 0;
	queue->standing_ns = standing_ns;
	queue->lost = lost;
	if (!queue->lost_at || idle)
		return queue->seen;
	share = min_t(u64, (u64)share * STOOD_BEARABLE / LOSS_BEARABLE, PFLOW_ONE);
	return max(queue->seen, share);
}

static u32 queue_harm(struct queue *queue, const struct usage *usage, const struct order *order,
		      struct pflow_cut cut, u16 level, u32 elapsed_us)
{
	const struct pflow_queue_tick seen = {
		.standing = usage->standing,
		.seen = queue->seen,
		.polled = usage->polled,
		.passed = order_passed(order, level),
		.shedding = cut.level || cut.share,
		.reach = pflow_cut_reach(cut, order->level, order->n),
		.most = order_most_below(order, level_beneath(level)),
		.elapsed_us = elapsed_us,
		.asking = queue->asking,
	};

	return pflow_queue_step(&queue->known, &seen);
}

/*
 * Nobody knows whose packets a queue loses. So the most important receiver that is served counts as
 * harmed. Shedding begins with an overload that lasts. Once it has begun, it answers at once.
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
