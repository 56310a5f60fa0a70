// SPDX-License-Identifier: GPL-2.0-only
/* Policy of pf_filter; see policy.h. */
#include "policy.h"

#define STOOD_LONG_US	250000u		/* a queue that clears sooner is a burst, caught up with */
#define STOOD_DRAIN	8		/* what it stood counts for so many times as long */
#define WORTH		8		/* one in so many: about what looking costs, in drops */
#define PFLOW_FLOOR_MOST	1000000u
#define CROWD_MS	256u		/* longer than most receivers' packets are apart */
#define FEW		256		/* packets that cost nothing to speak of */
#define STANDS		(PFLOW_ONE / 8 * 7)	/* the CPU was busy all the time, or nearly so */
#define BELIEVED_US	(60 * SECOND_US)	/* what the last step does is asked anew then */
#define CHEAPER		8		/* a step helps if packets cost less by one in so many */
#define SERVED_FADES	128		/* intervals: who is sent less is not harmed for longer */
#define SERVED_MEAN	16		/* likewise: fewer, and chance would be taken for lack */
#define SECOND_US	1000000u
#define WINDOW_MOST_US	(2 * SECOND_US)
#define WINDOW_PACKETS	64u
#define HANDFUL		2u		/* lost packets in a window that move nothing */
#define QUEUE_WINDOW_US	200000u		/* twice as long as the estimator takes to look again */
#define COUNTED_MOST	131072u		/* packets in an interval of 4 ms; more would not fit */
#define UNSHED_US	(SECOND_US / 2)	/* even a floor lets tens of packets through meanwhile */
#define UNSHED_MOST	32768u		/* packets in an interval of 4 ms; more would not fit */
#define UNSHED_TELL	16u		/* fewer packets tell nothing of what one costs */
#define POINT		8		/* binary places of counts that decay, by one at least */

static u32 min_u32(u32 a, u32 b)
{
	return a < b ? a : b;
}

static u32 max_u32(u32 a, u32 b)
{
	return a > b ? a : b;
}

/* An elected receiver and its equals are of one rank: a step of the order for all of them. */
static unsigned int levels_in_step(const u16 *levels, unsigned int nr_levels, unsigned int i)
{
	return i + 1 < nr_levels && levels[i] / 2 == levels[i + 1] / 2 ? 2 : 1;
}

/**
 * pflow_cut_most() - how far up the order a cut may reach
 * @levels: levels that may be shed, ascending, each once
 * @nr_levels: how many
 *
 * Context: any. Return: the most, in steps of PFLOW_ONE.
 */
u32 pflow_cut_most(const u16 *levels, unsigned int nr_levels)
{
	unsigned int i = 0, steps = 0;

	for (; i < nr_levels; i += levels_in_step(levels, nr_levels, i))
		steps++;
	return steps ? steps * PFLOW_ONE - 1 : 0;
}

/**
 * pflow_cut_reach() - how far up the order a cut stands
 * @cut: it
 * @levels: levels in use, ascending, each once
 * @nr_levels: how many
 *
 * Context: any. Return: ranks passed, in PFLOW_ONE, plus the share of the one it stands on.
 */
u32 pflow_cut_reach(struct pflow_cut cut, const u16 *levels, unsigned int nr_levels)
{
	unsigned int i = 0, n;
	u32 reach = 0;

	while (i < nr_levels && levels[i] / 2 < cut.level / 2) {
		i += levels_in_step(levels, nr_levels, i);
		reach += PFLOW_ONE;
	}
	if (i >= nr_levels || levels[i] / 2 > cut.level / 2)
		return reach;
	/* Alone in its rank, a receiver keeps the share with which it changed its level. */
	n = levels_in_step(levels, nr_levels, i);
	if (n == 1)
		return reach + cut.share;
	return reach + ((levels[i] < cut.level) * PFLOW_ONE + cut.share) / n;
}

/**
 * pflow_cut_at() - the cut that reaches so far
 * @reach: as of pflow_cut_reach()
 * @levels: levels in use, ascending, each once
 * @nr_levels: how many; with none there is nobody to shed and nothing is cut
 *
 * Of a rank those that are not elected are shed first.
 *
 * Context: any. Return: the cut, on one of @levels or zero.
 */
struct pflow_cut pflow_cut_at(u32 reach, const u16 *levels, unsigned int nr_levels)
{
	struct pflow_cut cut = { 0, 0 };
	unsigned int i = 0;

	reach = min_u32(reach, pflow_cut_most(levels, nr_levels));
	if (!reach)
		return cut;
	for (; reach >= PFLOW_ONE; reach -= PFLOW_ONE)
		i += levels_in_step(levels, nr_levels, i);
	reach *= levels_in_step(levels, nr_levels, i);
	cut.level = levels[i + reach / PFLOW_ONE];
	cut.share = reach % PFLOW_ONE;
	return cut;
}

/**
 * pflow_stood_step() - add up for how long a queue has stood
 * @stood_us: the sum so far, microseconds
 * @stands: whether it did in this interval
 * @elapsed_us: length of the interval, microseconds
 *
 * What it stood is forgotten more slowly than it adds up, or a queue that stands half of the
 * time would never be answered.
 *
 * Context: any. Return: the new sum, bounded.
 */
u32 pflow_stood_step(u32 stood_us, bool stands, u32 elapsed_us)
{
	if (stands)
		return min_u32(stood_us + min_u32(elapsed_us, STOOD_LONG_US), 2 * STOOD_LONG_US);
	return stood_us - min_u32(stood_us, elapsed_us / STOOD_DRAIN + 1);
}

/**
 * pflow_stood_long() - has a queue stood for longer than a burst?
 * @stood_us: from pflow_stood_step()
 *
 * Context: any. Return: whether it has.
 */
bool pflow_stood_long(u32 stood_us)
{
	return stood_us >= STOOD_LONG_US;
}

static bool queue_seen_to_stand(const struct pflow_queue_tick *tick)
{
	return tick->seen >= STANDS;
}

/*
 * How long the CPU takes for a packet. While the queue is not seen to stand, the CPU waits for
 * packets or does something else, and that tells nothing.
 */
static void queue_note_packet_ns(struct pflow_queue *queue, const struct pflow_queue_tick *tick)
{
	u64 ns = div_u64((u64)tick->elapsed_us * 1000, max_u32(tick->polled, 1));
	u32 packet_ns = ns < U32_MAX ? ns : U32_MAX;

	if (!queue_seen_to_stand(tick))
		return;
	if (queue->packet_ns)
		packet_ns = pflow_mean_step(queue->packet_ns, packet_ns);
	queue->packet_ns = packet_ns;
	if (!tick->shedding)
		queue->unshed_ns = packet_ns;
}

/* A slower mean, of what is a mean itself; the first is all that is known. */
static u32 slow_mean(u32 mean, u32 sample)
{
	return mean ? mean - mean / 8 + sample / 8 : sample;
}

/*
 * Does the last step of shedding make packets cheaper? It is known from before the step was taken,
 * for a while. If it is not known, or it does not, that is to be asked (common/trial.h).
 */
static void queue_doubt(struct pflow_queue *queue, const struct pflow_queue_tick *tick)
{
	if (queue->less_us < BELIEVED_US)
		queue->less_us += min_u32(tick->elapsed_us, SECOND_US);
	if (!queue_seen_to_stand(tick))
		return;
	if (tick->reach + PFLOW_ONE / 2 <= tick->most) {
		queue->less_ns = slow_mean(queue->less_ns, queue->packet_ns);
		queue->less_us = 0;
	}
	if (tick->reach < tick->most)
		return;
	queue->most_ns = slow_mean(queue->most_ns, queue->packet_ns);
	queue->doubted = queue->less_us >= BELIEVED_US ||
			 (queue->less_ns &&
			  queue->most_ns > queue->less_ns - queue->less_ns / CHEAPER);
}

/* Is the last step being asked about? What a packet costs with it and without it tells. */
static bool queue_asks(const struct pflow_queue *queue, const struct pflow_queue_tick *tick)
{
	return queue->doubted && queue->most_ns && queue_seen_to_stand(tick) &&
	       (tick->asking || tick->reach >= tick->most);
}

/*
 * What the most important receiver lacks of the most packets that it got, 0..65536. That is first
 * known when all are shed that can be. It may also be sent fewer. That shows only while all are
 * shed, since it gets fewer anyway as shedding is given back.
 */
static u32 queue_served_lacks(struct pflow_queue *queue, const struct pflow_queue_tick *tick)
{
	u32 rate = div_u64((u64)tick->passed * SECOND_US, max_u32(tick->elapsed_us, 1));
	bool all_shed = tick->reach && tick->reach >= tick->most;

	queue->served += rate - queue->served / SERVED_MEAN;
	if (!tick->reach)
		queue->served_most = 0;
	if (!queue->served_most && !all_shed)
		return PFLOW_ONE;
	if (all_shed)
		queue->served_most -= (queue->served_most + SERVED_FADES - 1) / SERVED_FADES;
	queue->served_most = max_u32(max_u32(queue->served_most, queue->served), 1);
	return PFLOW_ONE - div_u64((u64)queue->served * PFLOW_ONE, queue->served_most);
}

/**
 * pflow_queue_step() - how much harm a receive queue does that stands
 * @queue: what is known of it; moved on
 * @tick: what the last interval saw
 *
 * It loses what the CPU has no time for. How many packets that are is often known to nobody in
 * the guest. But shedding helps by as much as it makes packets cheaper, and no more than the most
 * important receiver lacks.
 *
 * Context: any. Return: 0..65536, of the time.
 */
u32 pflow_queue_step(struct pflow_queue *queue, const struct pflow_queue_tick *tick)
{
	u32 lacks = queue_served_lacks(queue, tick);
	u32 harm = tick->standing;

	queue_note_packet_ns(queue, tick);
	queue_doubt(queue, tick);
	if (queue_asks(queue, tick))
		return min_u32(harm, div_u64((u64)PFLOW_ONE / 2 * queue->packet_ns,
					     queue->most_ns));
	if (queue->unshed_ns && queue->packet_ns < queue->unshed_ns)
		harm = div_u64((u64)harm * queue->packet_ns, queue->unshed_ns);
	return min_u32(harm, lacks);
}

/**
 * pflow_looked_in_vain() - did a packet cost a look, and nothing was saved by it?
 * @outcome: what became of it
 *
 * Whatever was looked up did. What its header told, or what was done to find out, cost little.
 *
 * Context: any. Return: whether it did.
 */
bool pflow_looked_in_vain(enum filter_outcome outcome)
{
	switch (outcome) {
	case FILTER_PASS:
	case FILTER_PASS_EXEMPT:
	case FILTER_PASS_FORWARDED:
	case FILTER_PASS_NO_RECEIVER:
	case FILTER_PASS_KERNEL_SOCKET:
	case FILTER_PASS_UNTRACKED:
		return true;
	default:
		return false;
	}
}

/**
 * pflow_worth() - does it pay to look at every packet?
 * @dropped: packets that were dropped early
 * @passed: packets that were looked at in vain
 *
 * An early drop saves about half of what a packet costs that the socket drops, a
 * look costs about a twentieth. Where few packets come it is no matter.
 *
 * Context: any. Return: whether it does.
 */
bool pflow_worth(u64 dropped, u64 passed)
{
	return dropped + passed < FEW || dropped > (dropped + passed) / WORTH;
}

/**
 * pflow_floor() - the floor: what a socket keeps however unimportant its receiver is
 * @floor: packets/s that each socket keeps (filter/floor)
 * @percent: it also keeps this percentage of its share by weight (filter/floor_share)
 * @weight: its own
 * @weights: of all receivers on the CPU together
 * @packet_ns: what a packet of it costs the CPU, its own work included; 0: not known
 *
 * Context: any. Return: packets/s.
 */
u32 pflow_floor(u32 floor, u32 percent, u32 weight, u32 weights, u32 packet_ns)
{
	u64 share_ns;

	if (!percent || !packet_ns || !weights)
		return floor;
	share_ns = div_u64((u64)10000000 * min_u32(percent, 100) * min_u32(weight, weights),
			   weights);
	share_ns = div_u64(share_ns, packet_ns);
	return share_ns > floor ? min_u32(share_ns, PFLOW_FLOOR_MOST) : floor;
}

/**
 * pflow_keep() - probability that a packet is let through
 * @share: 0..65536, from pflow_cut_share()
 * @rate: what the receiver is sent, packets/s
 * @top_rate: what the busiest receiver of its level is sent, packets/s
 * @floor: of its level, packets/s, from pflow_floor()
 * @sockets: of its user that are shed beside it, itself included, from pflow_crowd_note()
 *
 * Within a level the water falls from the top: the busiest receiver is cut by
 * @share, and whoever is sent less than what that leaves it is not cut at all. It is rounded
 * up: in a great flood a floor is a smaller part than can be told.
 *
 * One user can open thousands of sockets. All that are shed keep no more than %PFLOW_FLOORS floors
 * together.
 *
 * Context: any. Return: 0..65536.
 */
u32 pflow_keep(u32 share, u32 rate, u32 top_rate, u32 floor, u32 sockets)
{
	u64 allowed = (u64)top_rate * (PFLOW_ONE - min_u32(share, PFLOW_ONE));
	u64 least = (u64)floor * PFLOW_ONE;

	if (!share)
		return PFLOW_ONE;
	if (sockets > PFLOW_FLOORS)
		least = div_u64(least * PFLOW_FLOORS, sockets);
	if (allowed < least)
		allowed = least;
	if ((u64)rate * PFLOW_ONE <= allowed)
		return PFLOW_ONE;
	return div_u64(allowed + rate - 1, rate);
}

/**
 * pflow_crowd_note() - count a socket that is sent packets which may be shed
 * @crowd: of its user
 * @now_ms: any clock, ms
 * @lasted_ms: since it was counted last
 *
 * Context: any. Return: how many sockets they are.
 */
u32 pflow_crowd_note(struct pflow_crowd *crowd, u32 now_ms, u32 lasted_ms)
{
	u32 window = now_ms / CROWD_MS, most_ms;

	if (window != crowd->window) {
		crowd->before_ms = window == crowd->window + 1 ? crowd->now_ms : 0;
		crowd->now_ms = 0;
		crowd->window = window;
	}
	crowd->now_ms += min_u32(lasted_ms, CROWD_MS);
	most_ms = crowd->now_ms > crowd->before_ms ? crowd->now_ms : crowd->before_ms;
	crowd->sockets = (most_ms + CROWD_MS - 1) / CROWD_MS;
	return crowd->sockets;
}

/* The window of a receiver of this rate. */
static u32 losses_window_us(u32 rate)
{
	u32 us = rate ? div_u64((u64)WINDOW_PACKETS * SECOND_US, rate) : WINDOW_MOST_US;

	return min_u32(max_u32(us, PFLOW_LOSS_WINDOW_US), WINDOW_MOST_US);
}

static u32 count_decayed(u32 count, u32 elapsed_us, u32 memory_us)
{
	u32 part = div_u64((u64)count * min_u32(elapsed_us, memory_us), memory_us);

	return count - min_u32(count, part + 1);
}

/**
 * pflow_losses_step() - count what a receiver was sent and lost in an interval
 * @losses: as counted until then
 * @arrived: packets that it was sent in the interval
 * @lost: those of them that it lost
 * @rate: what it is sent, packets/s
 * @elapsed_us: length of the interval, microseconds
 *
 * Where nothing was lost in the interval, what was lost before has been answered.
 *
 * Context: any. Return: 0..65536, the share that it loses.
 */
u32 pflow_losses_step(struct pflow_losses *losses, u32 arrived, u32 lost, u32 rate,
		      u32 elapsed_us)
{
	u32 memory_us = losses_window_us(rate);
	u64 share;

	losses->arrived = count_decayed(losses->arrived, elapsed_us, memory_us) +
			  (arrived << POINT);
	losses->lost = count_decayed(losses->lost, elapsed_us, memory_us) + (lost << POINT);
	if (!lost || losses->lost <= HANDFUL << POINT)
		return 0;
	share = div_u64((u64)(losses->lost - (HANDFUL << POINT)) * PFLOW_ONE,
			max_u32(losses->arrived, WINDOW_PACKETS << POINT));
	return share < PFLOW_ONE ? share : PFLOW_ONE;
}

/**
 * pflow_queue_lost_step() - count what a receive queue lost in an interval
 * @losses: as counted until then
 * @lost: packets that it was found to have lost
 * @polled: packets that were taken from it
 * @elapsed_us: length of the interval, microseconds
 *
 * It is looked at rarer than once in an interval, so this is counted over several.
 *
 * Context: any. Return: 0..65536, the share that it lost lately.
 */
u32 pflow_queue_lost_step(struct pflow_losses *losses, u32 lost, u32 polled, u32 elapsed_us)
{
	lost = min_u32(lost, COUNTED_MOST);
	losses->arrived = count_decayed(losses->arrived, elapsed_us, QUEUE_WINDOW_US) +
			  ((lost + min_u32(polled, COUNTED_MOST)) << POINT);
	losses->lost = count_decayed(losses->lost, elapsed_us, QUEUE_WINDOW_US) + (lost << POINT);
	return min_u32(div_u64((u64)losses->lost * PFLOW_ONE, max_u32(losses->arrived, 1)),
		       PFLOW_ONE);
}

/**
 * pflow_unshed_step() - what would those who are shed cost if they were not?
 * @unshed: what is known of it; moved on
 * @tick: what the last interval saw
 *
 * A packet that is shed is taken to cost as much as one of theirs that is let through.
 *
 * Context: any. Return: 0..65536, the share of the time that all of their packets would take;
 * where too few are let through to tell, all of it.
 */
u32 pflow_unshed_step(struct pflow_unshed *unshed, const struct pflow_unshed_tick *tick)
{
	u32 elapsed_us = min_u32(tick->elapsed_us, UNSHED_US);
	u32 cost_us = div_u64((u64)tick->share * elapsed_us, PFLOW_ONE >> POINT);
	u64 cost;

	unshed->sent = count_decayed(unshed->sent, elapsed_us, UNSHED_US) +
		       (min_u32(tick->sent, UNSHED_MOST) << POINT);
	unshed->passed = count_decayed(unshed->passed, elapsed_us, UNSHED_US) +
			 (min_u32(tick->passed, UNSHED_MOST) << POINT);
	unshed->cost_us = count_decayed(unshed->cost_us, elapsed_us, UNSHED_US) + cost_us;
	unshed->elapsed_us = count_decayed(unshed->elapsed_us, elapsed_us, UNSHED_US) +
			     (elapsed_us << POINT);
	if (unshed->passed < UNSHED_TELL << POINT || !unshed->elapsed_us)
		return PFLOW_ONE;
	cost = div_u64((u64)unshed->cost_us * unshed->sent, unshed->passed);
	cost = div_u64(cost, max_u32(unshed->elapsed_us / PFLOW_ONE, 1));
	return cost < PFLOW_ONE ? cost : PFLOW_ONE;
}

/**
 * pflow_kept_from_running() - does a receiver lose packets for want of CPU?
 * @awake: 0..65536, share of the time for which it ran or wanted to
 * @wait: 0..65536, share of the time for which it waited for the CPU
 *
 * Context: any. Return: whether it does.
 */
bool pflow_kept_from_running(u32 awake, u32 wait)
{
	return awake >= PFLOW_AWAKE && wait >= PFLOW_KEPT_FROM;
}

/**
 * pflow_slept() - of the time that a receiver did not run, how much it slept, having caught up
 * @wait: 0..65536, share of the time for which it waited for the CPU
 * @run: 0..65536, share of the time for which it ran
 *
 * Context: any. Return: 0..65536.
 */
u32 pflow_slept(u32 wait, u32 run)
{
	u32 awake = wait + run;

	if (awake >= PFLOW_ONE)
		return 0;
	return div_u64((u64)(PFLOW_ONE - awake) * PFLOW_ONE, PFLOW_ONE - awake + wait);
}
