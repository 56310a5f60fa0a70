// SPDX-License-Identifier: GPL-2.0-only
/*
 * Harm: which receiver on a CPU has too little of it, and how much that costs it.
 *
 * There are four kinds: a receiver loses packets for want of CPU (loss.c); it waits (wait.c);
 * it does so on another CPU, where nothing more can be done for it (elsewhere.c); or the receive
 * queue overflows, and nobody knows whose packets are lost (queue.c). Each is brought on one
 * scale, the share of a receiver's packets. The most important receiver that is harmed counts.
 *
 * Context: by the controllers' tick, but for what loss.c says.
 */
#include "../common/compat/compat.h"
#include "filter.h"

#define LOSS_BEARABLE	(PFLOW_ONE / 200)
#define PACKETS_TELL	16	/* fewer in a tick tell nothing of what one costs */

/**
 * struct harm - the worst that is lost on a CPU, and that something can be done about
 * @share: 0..65536, of a receiver's packets; of time on a scale on which as much is bearable
 * @level: the receiver's
 * @cause: what shedding for it counts as
 * @ceased: level plus one of the most important receiver that lost, and turned out to be none, or
 *	to be less important; 0: of nobody
 * @spare: 0..65536, of the time that the worst off of those who lost lately did not run, so much
 *	it slept, as it had caught up; where nobody did, the CPU's idle time
 */
struct harm {
	u32 share;
	u16 level;
	enum filter_outcome cause;
	u16 ceased;
	u32 spare;
};

/**
 * struct usage - what takes a CPU's time
 * @cpu: which
 * @idle: 0..65536, share of it that is left
 * @softirq: the same that softirqs take for receiving
 * @standing: the same for which a receive queue stood
 * @polled: packets that were taken from devices since the last tick
 */
struct usage {
	int cpu;
	u32 idle;
	u32 softirq;
	u32 standing;
	u32 polled;
};

/*
 * By level: how much a receiver lacks of its own CPU that shedding there cannot give it, 0..65536;
 * the most of all its receivers. As the last tick found it, and as this one has until now
 * (elsewhere.c).
 */
static u32 lacked[PFLOW_LEVELS], lacked_now[PFLOW_LEVELS];

/* A receiver that lost packets was taken to be of this level, and is not. */
static void harm_note_ceased(struct harm *worst, u16 level)
{
	worst->ceased = max_t(u16, worst->ceased, level + 1);
}

static void harm_note_lack(u16 level, u32 share)
{
	lacked_now[level] = max(lacked_now[level], share);
}

/*
 * A receiver above the cut waits here. If all below it are shed, it waits for softirqs, or for
 * tasks that receive nothing; the latter do not count. Return: whether all below it are shed.
 */
static bool harm_note_wait(const struct usage *usage, const struct order *order,
			   struct pflow_cut cut, u16 level, u32 wait)
{
	if (pflow_cut_reach(cut, order->level, order->n) <
	    order_most_below(order, level_beneath(level)))
		return false;
	harm_note_lack(level, min(wait, usage->softirq));
	return true;
}

/*
 * A receiver on the cut, or below it, is shed, not harmed. If nobody is below a receiver, nothing
 * can be done for it.
 */
static bool harm_can_be_helped(const struct order *order, struct pflow_cut cut, u16 level)
{
	return level > cut.level && order->n && order->level[0] < level_beneath(level);
}

/*
 * The most important of the harmed receivers counts, not the one that loses most. What is shed for
 * a less important one may be too little for the most important one, which must not be left
 * waiting.
 */
static void harm_keep_worst(struct harm *worst, u32 share, u16 level, enum filter_outcome cause)
{
	if (share <= LOSS_BEARABLE || (worst->share && level < worst->level))
		return;
	if (level == worst->level && share <= worst->share)
		return;
	worst->share = share;
	worst->level = level;
	worst->cause = cause;
}

/* A share of time, on the scale of packets. */
static u32 share_as_loss(u32 share, u32 bearable)
{
	return min_t(u64, div_u64((u64)share * LOSS_BEARABLE, bearable), PFLOW_ONE);
}

static u32 time_share_of(u64 part_ns, u32 whole_us)
{
	return min_t(u64, div_u64(div_u64(part_ns, NSEC_PER_USEC) * PFLOW_ONE, whole_us),
		     PFLOW_ONE);
}

static u32 thread_awake_share(const struct pflow_thread *thread)
{
	return min(READ_ONCE(thread->wait) + READ_ONCE(thread->run), PFLOW_ONE);
}
