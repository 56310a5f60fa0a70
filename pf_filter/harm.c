// SPDX-License-Identifier: GPL-2.0-only
/*
 * Harm: which receiver on a CPU has too little of it, and how much that costs it.
 *
 * *Loss.* A UDP receiver loses what finds its buffer full. Lost and arrived packets are
 * counted for each that loses any, over a window of 50 ms or 64 packets, whichever is longer,
 * less a handful, which moves nothing. It counts as harm only where the receiver is kept
 * from running: one that sleeps while its buffer is full is slow by itself, though it has to
 * wait for its turn now and then. Others are shed for it while it loses less for that, not while
 * it waits less.
 *
 * *Waiting.* A TCP receiver loses nothing when it has too little of the CPU: it waits, and
 * who asks it waits too. So does a UDP receiver before its buffer is full: its datagrams are read
 * late (judge.c). What counts is how much of the time it waits, and no more than
 * what less important receivers take of the CPU meanwhile and shedding would give back:
 * their own run time, and that part of softirqs which their packets would no longer cost.
 * So who waits for a disk, a peer or a task that computes is not harmed by packets.
 *
 * Context: harm_note() in softirq, on the CPU where a packet arrives; the rest by the
 * controllers' tick.
 */
#include "../common/compat/compat.h"
#include "filter.h"

#define VICTIMS		16	/* losing receivers that are watched, on each CPU */
#define WINDOW_US	50000u
#define WINDOW_MOST_US	2000000u
#define WINDOW_PACKETS	64u
#define HANDFUL		2u	/* lost packets in a window that move nothing */
#define POINT		8	/* binary places of counts that decay, by one at least */
#define KEPT_FROM	(PFLOW_ONE / 16)	/* who waits less is not kept from running */
#define AWAKE		(PFLOW_ONE / 3)		/* who is awake for less is slow by itself */
#define AWAKE_US	1000000u	/* so long, or to wait once would make it awake */
#define LOSS_BEARABLE	(PFLOW_ONE / 200)
#define WAIT_BEARABLE	100	/* less than this part of what it runs for */
#define WAIT_LEAST	(PFLOW_ONE / 500)
#define WAIT_BEGINS	(PFLOW_ONE / 8)	/* run times may count softirqs, too */
#define PACKETS_TELL	16	/* fewer in a tick tell nothing of what one costs */
#define STOOD_BEARABLE	(PFLOW_ONE / 64)	/* share of time for which a queue may stand */
#define STANDS		(PFLOW_ONE / 8 * 7)	/* the CPU was busy all the time, or nearly so */
#define SERVED_FADES	128	/* ticks: who is sent less is not harmed for longer */
#define LOST_FOR	(HZ / 5)	/* twice as long as the estimator takes to look again */

/**
 * struct victim - a receiver that loses packets
 * @sk: its socket, with @cookie an identity; NULL: this slot is free
 * @cookie: of the socket
 * @level: its level
 * @arrived_seen: pflow_sock.arrived at the last tick
 * @lost_seen: pflow_sock.lost at the last tick
 * @arrived: packets in the window, << POINT
 * @lost: those of them that were lost, << POINT
 * @lost_at: jiffies when it last lost any
 * @awake: 0..65536, share of the time for which its receiver ran or wanted to, a decaying mean
 * @awake_us: how long that is the mean of, from when it entered, at most %AWAKE_US
 * @shed_for: it was kept from running when it lost packets, and others have been shed since
 */
struct victim {
	const struct sock *sk;
	u64 cookie;
	u16 level;
	u32 arrived_seen;
	u32 lost_seen;
	u32 arrived;
	u32 lost;
	u32 lost_at;
	u32 awake;
	u32 awake_us;
	bool shed_for;
};

/**
 * struct harm - the worst that is lost on a CPU, and that something can be done about
 * @share: 0..65536, of a receiver's packets; of time on a scale on which as much is bearable
 * @level: the receiver's
 * @cause: what shedding for it counts as
 * @spare: 0..65536, of the time that the worst off of those who lost lately did not run, so much
 *	it slept, as it had caught up; where nobody did, the CPU's idle time
 */
struct harm {
	u32 share;
	u16 level;
	enum filter_outcome cause;
	u32 spare;
};

static struct victim *victim_slot(struct victim *victims, u16 level)
{
	struct victim *lowest = NULL;
	unsigned int i;

	for (i = 0; i < VICTIMS; i++) {
		if (!READ_ONCE(victims[i].sk))
			return &victims[i];
		if (READ_ONCE(victims[i].level) < level &&
		    (!lowest || READ_ONCE(victims[i].level) < READ_ONCE(lowest->level)))
			lowest = &victims[i];
	}
	return lowest;
}

/* Of two CPUs that write one slot at once the tick may find a mixture: it is no socket's. */
static void victim_enter(struct victim *victims, struct pflow_sock *entry, u16 level,
			 unsigned int packets)
{
	struct victim *victim;
	unsigned int i;

	for (i = 0; i < VICTIMS; i++)
		if (READ_ONCE(victims[i].sk) == entry->sk)
			return;
	victim = victim_slot(victims, level);
	if (!victim)
		return;
	WRITE_ONCE(victim->cookie, entry->cookie);
	WRITE_ONCE(victim->level, level);
	WRITE_ONCE(victim->arrived_seen, READ_ONCE(entry->arrived) - packets);
	WRITE_ONCE(victim->lost_seen, READ_ONCE(entry->lost) - packets);
	WRITE_ONCE(victim->arrived, 0);
	WRITE_ONCE(victim->lost, 0);
	WRITE_ONCE(victim->lost_at, (u32)jiffies);
	/* At an onset nobody has to wait until it is known that he is awake. */
	WRITE_ONCE(victim->awake, PFLOW_ONE);
	WRITE_ONCE(victim->awake_us, WINDOW_US);
	WRITE_ONCE(victim->shed_for, false);
	WRITE_ONCE(victim->sk, entry->sk);
}

/**
 * harm_note() - a receiver loses packets
 * @victims: of the CPU that it runs on
 * @entry: the receiver
 * @level: its level
 * @packets: how many
 */
static void harm_note(struct victim *victims, struct pflow_sock *entry, u16 level,
		      unsigned int packets)
{
	WRITE_ONCE(entry->lost, READ_ONCE(entry->lost) + packets);
	victim_enter(victims, entry, level, packets);
}

static bool victims_any(const struct victim *victims)
{
	unsigned int i;

	for (i = 0; i < VICTIMS; i++)
		if (READ_ONCE(victims[i].sk))
			return true;
	return false;
}

/* The window of a receiver of this rate. */
static u32 window_us(u32 rate)
{
	u64 us = rate ? div_u64((u64)WINDOW_PACKETS * USEC_PER_SEC, rate) : WINDOW_MOST_US;

	return clamp_t(u64, us, WINDOW_US, WINDOW_MOST_US);
}

static u32 decayed(u32 count, u32 elapsed_us, u32 memory_us)
{
	u32 part = div_u64((u64)count * min(elapsed_us, memory_us), memory_us);

	return count - min(count, part + 1);
}

/* Count what a victim was sent and lost since the last tick; gives the share that it loses. */
static u32 victim_loss(struct victim *victim, const struct pflow_sock *entry, u32 elapsed_us)
{
	u32 memory_us = window_us(READ_ONCE(entry->rate));
	u32 arrived = READ_ONCE(entry->arrived), lost = READ_ONCE(entry->lost);
	u32 more_arrived = arrived - READ_ONCE(victim->arrived_seen);
	u32 more_lost = lost - READ_ONCE(victim->lost_seen);

	WRITE_ONCE(victim->arrived_seen, arrived);
	WRITE_ONCE(victim->lost_seen, lost);
	arrived = decayed(READ_ONCE(victim->arrived), elapsed_us, memory_us) +
		  (more_arrived << POINT);
	lost = decayed(READ_ONCE(victim->lost), elapsed_us, memory_us) + (more_lost << POINT);
	WRITE_ONCE(victim->arrived, arrived);
	WRITE_ONCE(victim->lost, lost);
	if (more_lost)
		WRITE_ONCE(victim->lost_at, (u32)jiffies);
	else if (time_after32((u32)jiffies, READ_ONCE(victim->lost_at) + PFLOW_HOLD))
		WRITE_ONCE(victim->sk, NULL);
	/* What was lost before has been answered. */
	if (!more_lost || lost <= HANDFUL << POINT)
		return 0;
	return min_t(u64, PFLOW_ONE, div_u64((u64)(lost - (HANDFUL << POINT)) * PFLOW_ONE,
					     max(arrived, WINDOW_PACKETS << POINT)));
}

static u32 awake_share(const struct pflow_thread *thread)
{
	return min(READ_ONCE(thread->wait) + READ_ONCE(thread->run), PFLOW_ONE);
}

/* Follow how much of the time a victim's receiver is awake. */
static void note_awake(struct victim *victim, const struct pflow_thread *thread, u32 elapsed_us)
{
	u32 before = READ_ONCE(victim->awake);
	u32 of_us = min(READ_ONCE(victim->awake_us) + elapsed_us, AWAKE_US);
	s64 step = ((s64)awake_share(thread) - before) * min(elapsed_us, of_us);

	WRITE_ONCE(victim->awake, before + (s32)div_s64(step, of_us));
	WRITE_ONCE(victim->awake_us, of_us);
}

/*
 * Does the receiver lose for want of CPU? While others are shed for it, it waits less, which
 * says nothing: whether it loses less does.
 */
static bool kept_from_running(const struct victim *victim, const struct pflow_thread *thread,
			      struct pflow_cut cut)
{
	if (min(awake_share(thread), READ_ONCE(victim->awake)) < AWAKE)
		return false;
	return READ_ONCE(thread->wait) >= KEPT_FROM ||
	       ((cut.level || cut.share) && READ_ONCE(victim->shed_for));
}

/* The same for the controller. Of who is not known yet it is assumed. */
static bool to_be_shed_for(struct victim *victim, const struct pflow_thread *thread,
			   struct pflow_cut cut, u32 elapsed_us)
{
	bool kept;

	if (!thread)
		return true;
	note_awake(victim, thread, elapsed_us);
	kept = kept_from_running(victim, thread, cut);
	WRITE_ONCE(victim->shed_for, kept);
	return kept;
}

/* Of the time that a receiver did not run, how much it slept, having caught up. */
static u32 slept(const struct pflow_thread *thread)
{
	u32 wait, awake;

	if (!thread)
		return 0;
	wait = READ_ONCE(thread->wait);
	awake = wait + READ_ONCE(thread->run);
	if (awake >= PFLOW_ONE)
		return 0;
	return div_u64((u64)(PFLOW_ONE - awake) * PFLOW_ONE, PFLOW_ONE - awake + wait);
}

/*
 * Those on which the cut stands, or below it, are shed, not harmed; and where nobody is below
 * a receiver nothing can be done for it.
 */
static bool to_be_helped(const struct order *order, struct pflow_cut cut, u16 level)
{
	return level > cut.level && order->n && order->level[0] < beneath(level);
}

/*
 * Of those that are harmed the most important counts, not who loses most: whatever is shed for
 * the latter may be too little for the former, who must not be left waiting.
 */
static void worst_of(struct harm *worst, u32 share, u16 level, enum filter_outcome cause)
{
	if (share <= LOSS_BEARABLE || (worst->share && level < worst->level))
		return;
	if (level == worst->level && share <= worst->share)
		return;
	worst->share = share;
	worst->level = level;
	worst->cause = cause;
}

/* The thread that receives for an entry, as far as it is known. */
static const struct pflow_thread *thread_of(const struct pflow_sock *entry)
{
	const struct pflow_thread *thread = pflow_thread_find(READ_ONCE(entry->pid));

	return thread && READ_ONCE(thread->born) == READ_ONCE(entry->born) ? thread : NULL;
}

static void worst_loss(struct harm *worst, struct victim *victims, int cpu,
		       const struct order *order, struct pflow_cut cut, u32 elapsed_us)
{
	u32 spare = PFLOW_ONE;
	bool any = false;
	unsigned int i;

	for (i = 0; i < VICTIMS; i++) {
		struct victim *victim = &victims[i];
		const struct sock *sk = READ_ONCE(victim->sk);
		const struct pflow_thread *thread;
		const struct pflow_sock *entry;
		u16 level;
		u32 loss;

		if (!sk)
			continue;
		entry = pflow_sock_find_as(sk, READ_ONCE(victim->cookie));
		thread = entry ? thread_of(entry) : NULL;
		/* Of one that has gone to another CPU what it loses there counts there. */
		if (!entry || (thread && !pflow_thread_on(thread, cpu))) {
			WRITE_ONCE(victim->sk, NULL);
			continue;
		}
		level = filter_level(entry);
		WRITE_ONCE(victim->level, level);
		loss = victim_loss(victim, entry, elapsed_us);
		if (!to_be_helped(order, cut, level))
			continue;
		spare = min(spare, slept(thread));
		any = true;
		if (to_be_shed_for(victim, thread, cut, elapsed_us))
			worst_of(worst, loss, level, FILTER_DROP_HARM);
	}
	if (any)
		worst->spare = spare;
}

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

static bool receives_datagrams(const struct pflow_thread *thread, int cpu)
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

/* For how much of the time those of a rank run who receive datagrams, wherever they run. */
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
 * What shedding all below a level would still give back, 0..65536. Before shedding begins a few
 * packets are none: beside a few of a bulk transfer, of 64 KiB each, they would seem to cost much.
 */
static u32 to_be_saved(const struct usage *usage, const struct order *order, u16 level,
		       bool begun)
{
	u32 passed = order_passed_below(order, level);
	u64 saved = 0;
	unsigned int i;

	/* An early drop costs half of what softirqs take for a packet that is let through. */
	passed = min(passed, usage->polled);
	if (passed >= (begun ? 1 : PACKETS_TELL))
		saved = div_u64((u64)usage->softirq * passed, usage->polled + passed);
	for (i = 0; i < PFLOW_THREADS; i++) {
		const struct pflow_thread *thread = &pflow_threads[i];

		if (receives_datagrams(thread, usage->cpu) &&
		    pflow_level(READ_ONCE(thread->rank), false) < level)
			saved += READ_ONCE(thread->run);
	}
	return min_t(u64, saved, PFLOW_ONE);
}

/* A share of time, on the scale of packets. */
static u32 as_loss(u32 share, u32 bearable)
{
	return min_t(u64, div_u64((u64)share * LOSS_BEARABLE, bearable), PFLOW_ONE);
}

/*
 * Does waiting keep this thread from what it is asked for? Who reads datagrams late and sleeps
 * is slow by itself.
 */
static bool waiting_tells(const struct pflow_thread *thread)
{
	return pflow_lately(READ_ONCE(thread->streams_at)) ||
	       (pflow_within(READ_ONCE(thread->late_at), PFLOW_LATE_SEEN) &&
		awake_share(thread) >= AWAKE);
}

static void worst_wait(struct harm *worst, const struct usage *usage, const struct order *order,
		       struct pflow_cut cut)
{
	bool begun = cut.level || cut.share;
	unsigned int i;

	for (i = 0; i < PFLOW_THREADS; i++) {
		const struct pflow_thread *thread = &pflow_threads[i];
		u16 level = pflow_level(READ_ONCE(thread->rank), false);
		u32 wait = READ_ONCE(thread->wait);
		u32 bearable = max(READ_ONCE(thread->run) / WAIT_BEARABLE, WAIT_LEAST);

		if (!pflow_thread_on(thread, usage->cpu) || wait <= bearable ||
		    !to_be_helped(order, cut, level) || !waiting_tells(thread))
			continue;
		/* Idle moments in between are none that it could use. */
		if (wait > KEPT_FROM)
			worst->spare = 0;
		/* What all may have at the floor is not to be saved. */
		if (pflow_cut_reach(cut, order->level, order->n) >=
		    order_most_below(order, beneath(level)))
			continue;
		wait = min(wait, to_be_saved(usage, order, level, begun));
		/* A little is left alone until it is more; what is shed is shed to the end. */
		if (!begun && wait < WAIT_BEGINS)
			continue;
		worst_of(worst, as_loss(wait, bearable), level, FILTER_DROP_HARM);
	}
}

/**
 * struct queue - whether a CPU's receive queue stands
 * @standing_ns: pflow_load.standing_ns at the last tick
 * @lost: pflow_load.lost at the last tick
 * @lost_at: jiffies when it last rose, with the lowest bit set; 0 for not lately
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

static u32 share_of(u64 part_ns, u32 whole_us)
{
	return min_t(u64, div_u64(div_u64(part_ns, NSEC_PER_USEC) * PFLOW_ONE, whole_us),
		     PFLOW_ONE);
}

/* A loss counts until the estimator has looked again. */
static u32 queue_stands(struct queue *queue, const struct pflow_load *load, u32 elapsed_us)
{
	u64 standing_ns = READ_ONCE(load->standing_ns);
	u32 lost = READ_ONCE(load->lost);
	u32 stands = share_of(standing_ns - queue->standing_ns, elapsed_us);
	u32 now = jiffies;

	if (lost != queue->lost)
		queue->lost_at = now | 1;
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
static void note_packet_ns(struct queue *queue, const struct usage *usage, struct pflow_cut cut,
			   u32 elapsed_us)
{
	u32 packet_ns = min_t(u64, (u64)elapsed_us * NSEC_PER_USEC / max(usage->polled, 1U),
			      U32_MAX);

	if (usage->standing < STANDS)
		return;
	if (queue->packet_ns)
		packet_ns = queue->packet_ns - queue->packet_ns / 4 + packet_ns / 4;
	queue->packet_ns = packet_ns;
	if (!cut.level && !cut.share)
		queue->unshed_ns = packet_ns;
}

/*
 * What the most important receiver lacks of the packets that it once had, 0..65536. That is known
 * as soon as others have been shed for it as far as can be: then it lacked the least.
 */
static u32 served_lacks(struct queue *queue, const struct order *order, struct pflow_cut cut,
			u16 level, u32 elapsed_us)
{
	u32 rate = div_u64((u64)order_passed(order, level) * USEC_PER_SEC, max(elapsed_us, 1U));
	u32 reach = pflow_cut_reach(cut, order->level, order->n);

	queue->served = queue->served - queue->served / 4 + rate / 4;
	if (!reach)
		queue->served_most = 0;
	if (!queue->served_most && (!reach || reach < order_most_below(order, beneath(level))))
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
	u32 lacks = served_lacks(queue, order, cut, level, elapsed_us);
	u32 harm = usage->standing;

	note_packet_ns(queue, usage, cut, elapsed_us);
	if (queue->unshed_ns && queue->packet_ns < queue->unshed_ns)
		harm = div_u64((u64)harm * queue->packet_ns, queue->unshed_ns);
	return min(harm, lacks);
}

/*
 * Whose packets a queue loses nobody knows either, so the most important receiver's that is
 * served counts. Shedding begins with an overload that lasts; once begun, it answers at once.
 */
static void worst_queue(struct harm *worst, struct queue *queue, const struct usage *usage,
			const struct order *order, struct pflow_cut cut, u16 served,
			u32 elapsed_us)
{
	u32 harm;

	queue->stood_us = pflow_stood_step(queue->stood_us, usage->standing, elapsed_us);
	if (!served || !to_be_helped(order, cut, served - 1))
		return;
	harm = queue_harm(queue, usage, order, cut, served - 1, elapsed_us);
	if (usage->standing)
		worst->spare = 0;
	if (cut.level || cut.share || pflow_stood_long(queue->stood_us))
		worst_of(worst, as_loss(harm, STOOD_BEARABLE), served - 1, FILTER_DROP_OVERLOAD);
}
