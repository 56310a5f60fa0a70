// SPDX-License-Identifier: GPL-2.0-only
/*
 * Harm by waiting. A TCP receiver loses nothing when it has too little of the CPU: it waits, and
 * who asks it waits too. So does a UDP receiver that answers. One that only takes what comes waits
 * before its buffer is full: its datagrams are read late (judge.c). The harm is the time for which
 * it waits, but at most the time that shedding less important receivers would give back: their own
 * run time, and that part of softirqs which their packets would no longer cost. So who waits for a
 * disk, a peer or a task that computes is not harmed by packets.
 *
 * Shedding begins where that is much, and then goes on to the end. It ends where those who are shed
 * would cost little even if nobody shed them. Otherwise a short flood would be paid for as long
 * as the receiver is busy.
 *
 * Context: the controllers' tick.
 */
#define WAIT_BEARABLE	100	/* less than this part of what it runs for */
#define WAIT_LEAST	(PFLOW_ONE / 500)
#define WAIT_BEGINS	(PFLOW_ONE / 8)	/* run times may count softirqs, too */
#define WAIT_ENDS	(WAIT_BEGINS / 2)

static bool thread_receives_datagrams(const struct pflow_thread *thread, int cpu)
{
	return pflow_thread_on(thread, cpu) && pflow_lately(READ_ONCE(thread->datagrams_at));
}

/* What all receivers on a CPU weigh, those of streams included. */
static u32 receivers_weight(int cpu)
{
	u32 weight = 0;
	unsigned int i;

	for (i = 0; i < PFLOW_THREADS; i++)
		if (pflow_thread_on(&pflow_threads[i], cpu))
			weight += pflow_rank_weight(READ_ONCE(pflow_threads[i].rank));
	return weight;
}

/* Does anybody receive on a CPU who is more important than that? */
static bool receivers_above(int cpu, u16 level)
{
	unsigned int i;

	for (i = 0; i < PFLOW_THREADS; i++)
		if (pflow_thread_on(&pflow_threads[i], cpu) &&
		    pflow_level(READ_ONCE(pflow_threads[i].rank), true) > level)
			return true;
	return false;
}

/* The share of a CPU that all receivers of datagrams of a rank take, wherever they run. */
static u32 receivers_run(u8 rank)
{
	unsigned int i;
	u32 run = 0;

	for (i = 0; i < PFLOW_THREADS; i++)
		if (READ_ONCE(pflow_threads[i].pid) && READ_ONCE(pflow_threads[i].rank) == rank &&
		    pflow_lately(READ_ONCE(pflow_threads[i].datagrams_at)))
			run += READ_ONCE(pflow_threads[i].run);
	return run;
}

/*
 * What shedding all below a level would still give back, 0..65536. Before shedding begins, a few
 * packets count as none: beside a few large ones of a bulk transfer, of 64 KiB each, they would
 * seem to cost much.
 */
static u32 shedding_would_save(const struct usage *usage, const struct order *order, u16 level,
			       bool begun)
{
	u32 passed = order_below(order, order->passed, level);
	u64 saved = 0;
	unsigned int i;

	/* An early drop costs half of what softirqs take for a packet that is let through. */
	passed = min(passed, usage->polled);
	if (passed >= (begun ? 1 : PACKETS_TELL))
		saved = div_u64((u64)usage->softirq * passed, usage->polled + passed);
	for (i = 0; i < PFLOW_THREADS; i++) {
		const struct pflow_thread *thread = &pflow_threads[i];

		if (thread_receives_datagrams(thread, usage->cpu) &&
		    pflow_level(READ_ONCE(thread->rank), false) < level)
			saved += READ_ONCE(thread->run);
	}
	return min_t(u64, saved, PFLOW_ONE);
}

/**
 * struct unshed - what those who are shed would cost if they were not
 * @known: what is known of it so far
 * @far_sent: packets of theirs that arrived on other CPUs, about; any CPU counts them
 * @far_passed: those of them that were let through
 * @far_sent_seen: @far_sent at the last tick
 * @far_passed_seen: likewise
 */
struct unshed {
	struct pflow_unshed known;
	u32 far_sent;
	u32 far_passed;
	u32 far_sent_seen;
	u32 far_passed_seen;
};

/* Several CPUs may count at the same time. Then some counts are lost. */
static void unshed_note_far(struct unshed *unshed, u32 sent, u32 keep)
{
	u32 passed = (u64)sent * keep / PFLOW_ONE;

	WRITE_ONCE(unshed->far_sent, READ_ONCE(unshed->far_sent) + sent);
	WRITE_ONCE(unshed->far_passed, READ_ONCE(unshed->far_passed) + passed);
}

/* Would those who are shed cost so little if they were not that nobody has to wait for them? */
static bool shedding_saves_little(struct unshed *unshed, const struct usage *usage,
				  const struct order *order, struct pflow_cut cut, u32 elapsed_us)
{
	u32 far_sent = READ_ONCE(unshed->far_sent), far_passed = READ_ONCE(unshed->far_passed);
	u16 above = cut.level + 1;
	struct pflow_unshed_tick seen = {
		.sent = far_sent - unshed->far_sent_seen + order_below(order, order->sent, above),
		.passed = far_passed - unshed->far_passed_seen +
			  order_below(order, order->passed, above),
		.elapsed_us = elapsed_us,
	};

	unshed->far_sent_seen = far_sent;
	unshed->far_passed_seen = far_passed;
	if (!cut.level && !cut.share) {
		unshed->known = (struct pflow_unshed){ 0 };
		return false;
	}
	seen.share = shedding_would_save(usage, order, above, true);
	return pflow_unshed_step(&unshed->known, &seen) < WAIT_ENDS;
}

/*
 * Does waiting keep this thread from what it is asked for? Who reads datagrams late and sleeps
 * is slow by itself. Who only answers what may be his own is not kept by packets.
 */
static bool thread_waiting_tells(const struct pflow_thread *thread)
{
	return pflow_lately(READ_ONCE(thread->streams_at)) ||
	       pflow_thread_answers_others(thread) ||
	       (pflow_within(READ_ONCE(thread->late_at), PFLOW_LATE_SEEN) &&
		thread_awake_share(thread) >= PFLOW_AWAKE);
}

static void harm_weigh_waits(struct harm *worst, const struct usage *usage,
			     const struct order *order, struct pflow_cut cut)
{
	bool begun = cut.level || cut.share;
	unsigned int i;

	for (i = 0; i < PFLOW_THREADS; i++) {
		const struct pflow_thread *thread = &pflow_threads[i];
		u16 level = pflow_level(READ_ONCE(thread->rank), false);
		u32 wait = READ_ONCE(thread->wait);
		u32 bearable = max(READ_ONCE(thread->run) / WAIT_BEARABLE, WAIT_LEAST);

		if (!pflow_thread_on(thread, usage->cpu) || wait <= bearable ||
		    level <= cut.level || !thread_waiting_tells(thread))
			continue;
		/* Idle moments in between are none that it could use. */
		if (wait > PFLOW_KEPT_FROM && harm_can_be_helped(order, cut, level))
			worst->spare = 0;
		/* If all below it are shed, nothing more can be saved. */
		if (harm_note_wait(usage, order, cut, level, wait))
			continue;
		wait = min(wait, shedding_would_save(usage, order, level, begun));
		/* A little is left alone until it is more; what is shed is shed to the end. */
		if (!begun && wait < WAIT_BEGINS)
			continue;
		harm_keep_worst(worst, share_as_loss(wait, bearable), level, FILTER_DROP_HARM);
	}
}
