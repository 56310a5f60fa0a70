/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Policy of pf_filter: who is harmed, how much to shed, from whom, and with what probability.
 *
 * Receivers on a CPU stand in order of their level (common/policy.h). A *cut*
 * is a place in that order: receivers below it are held at the floor, the
 * receivers on it are shed in part, those above it not at all. How far a cut
 * reaches up the order is a measure on trial (common/trial.h). A rank is a step of it,
 * whether some of its receivers are elected or not.
 *
 * Plain numbers only; compiled unchanged into the user-space tests.
 *
 * Context: any; nothing here sleeps, allocates or locks.
 */
#ifndef _PFLOW_FILTER_POLICY_H
#define _PFLOW_FILTER_POLICY_H

#include "../common/policy.h"

#define PFLOW_LOSS_WINDOW_US	50000u		/* losses are counted over so long, or longer */
#define PFLOW_KEPT_FROM		(PFLOW_ONE / 16)	/* who waits less does not want for CPU */
#define PFLOW_FLOORS		16u	/* one for each peer of a program that has a few */
#define PFLOW_AWAKE		(PFLOW_ONE / 3)	/* who is awake for less is slow by itself */

/* What became of a packet that was looked at; indexes the counters. */
enum filter_outcome {
	FILTER_DROP_OVERLOAD = PFLOW_DROP_OVERLOAD,
	FILTER_DROP_HARM = PFLOW_DROP_HARM,
	FILTER_DROP_FULL = PFLOW_DROP_FULL,
	FILTER_PASS,			/* judged, and let through */
	FILTER_PASS_EXEMPT,
	FILTER_PASS_OTHER_PROTOCOL,	/* condition A */
	FILTER_PASS_NOT_HOST,		/* broadcast, multicast */
	FILTER_PASS_FORWARDED,		/* another host's, or not known to be this one's */
	FILTER_PASS_NOT_PLAIN,		/* fragment, IP options, bridged, malformed, IPVS */
	FILTER_PASS_NO_RECEIVER,
	FILTER_PASS_KERNEL_SOCKET,	/* a tunnel's */
	FILTER_PASS_UNTRACKED,
	FILTER_PASS_TRACED,		/* to see where it ends */
	FILTER_PASS_BEFORE,		/* judged already, in another namespace */
	FILTER_OUTCOMES,
};

/**
 * struct pflow_cut - how far shedding reaches up the order of receivers
 * @level: receivers below are held at the floor
 * @share: 0..65535, how much of the receivers on @level is shed
 *
 * All zero sheds nothing.
 */
struct pflow_cut {
	u16 level;
	u16 share;
};

/**
 * struct pflow_crowd - how many sockets of a user are sent packets that may be shed
 * @window: number of the present window, in which they are counted
 * @now_ms: what they add to it so far, by their time: one adds as much as the window lasts
 * @before_ms: what they added to the window before
 * @sockets: how many they are
 *
 * All zero is none.
 */
struct pflow_crowd {
	u32 window;
	u32 now_ms;
	u32 before_ms;
	u32 sockets;
};

/**
 * struct pflow_losses - what a receiver was sent and lost lately
 * @arrived: packets in the window, in 256ths
 * @lost: those of them that were lost, in 256ths
 *
 * All zero is one that was sent nothing.
 */
struct pflow_losses {
	u32 arrived;
	u32 lost;
};

/**
 * struct pflow_unshed - what those who are shed are sent, and what they cost
 * @sent: packets lately, in 256ths
 * @passed: those of them that were let through, in 256ths
 * @cost_us: of those, in 256ths of a microsecond
 * @elapsed_us: time that all this is of, in 256ths of a microsecond
 *
 * All zero is what is not known yet.
 */
struct pflow_unshed {
	u32 sent;
	u32 passed;
	u32 cost_us;
	u32 elapsed_us;
};

/**
 * struct pflow_unshed_tick - what one interval saw of it
 * @sent: packets
 * @passed: those of them that were let through
 * @share: 0..65536, of the time that those took
 * @elapsed_us: length of the interval, microseconds
 */
struct pflow_unshed_tick {
	u32 sent;
	u32 passed;
	u32 share;
	u32 elapsed_us;
};

/**
 * struct pflow_queue - what shedding has made of a receive queue that stands
 * @packet_ns: how long the CPU takes for a packet of it while it stands, a decaying mean; 0: it
 *	was not seen to stand yet
 * @unshed_ns: the same when nobody was shed
 * @most_ns: the same while all are shed that can be, a slower mean
 * @less_ns: the same while half a step less was shed, or still less
 * @less_us: for how long that has been so no more, microseconds
 * @doubted: it is not known that the last step makes packets cheaper
 * @served: packets/s of the most important receivers served here, a decaying sum over intervals
 * @served_most: the most that was lately, while others are shed; 0: not known
 *
 * All zero is a queue that has not stood yet.
 */
struct pflow_queue {
	u32 packet_ns;
	u32 unshed_ns;
	u32 most_ns;
	u32 less_ns;
	u32 less_us;
	bool doubted;
	u32 served;
	u32 served_most;
};

/**
 * struct pflow_queue_tick - what one interval saw of it
 * @standing: 0..65536, share of time for which it stood
 * @seen: the same, but only as far as it was seen to stand, not where it is taken to as it lost
 * @polled: packets that were taken from it
 * @passed: packets that the most important receivers served here were let through
 * @shedding: somebody is shed
 * @reach: how far the cut reaches, see pflow_cut_reach()
 * @most: how far it may reach for those receivers
 * @elapsed_us: length of the interval, microseconds
 * @asking: its last step was taken back, to find out whether it helps
 */
struct pflow_queue_tick {
	u32 standing;
	u32 seen;
	u32 polled;
	u32 passed;
	bool shedding;
	u32 reach;
	u32 most;
	u32 elapsed_us;
	bool asking;
};

/**
 * pflow_mean_step() - a decaying mean
 * @mean: so far
 * @sample: the next
 *
 * Context: any. Return: the mean, a quarter of it @sample.
 */
static inline u32 pflow_mean_step(u32 mean, u32 sample)
{
	return mean - mean / 4 + sample / 4;
}

u32 pflow_cut_reach(struct pflow_cut cut, const u16 *levels, unsigned int nr_levels);
struct pflow_cut pflow_cut_at(u32 reach, const u16 *levels, unsigned int nr_levels);
u32 pflow_cut_most(const u16 *levels, unsigned int nr_levels);
u32 pflow_stood_step(u32 stood_us, bool stands, u32 elapsed_us);
bool pflow_stood_long(u32 stood_us);
u32 pflow_queue_lost_step(struct pflow_losses *losses, u32 lost, u32 polled, u32 elapsed_us);
u32 pflow_queue_step(struct pflow_queue *queue, const struct pflow_queue_tick *tick);
bool pflow_looked_in_vain(enum filter_outcome outcome);
bool pflow_worth(u64 dropped, u64 passed);
u32 pflow_floor(u32 floor, u32 percent, u32 weight, u32 weights, u32 packet_ns);
u32 pflow_keep(u32 share, u32 rate, u32 top_rate, u32 floor, u32 sockets);
u32 pflow_crowd_note(struct pflow_crowd *crowd, u32 now_ms, u32 lasted_ms);
u32 pflow_losses_step(struct pflow_losses *losses, u32 arrived, u32 lost, u32 rate,
		      u32 elapsed_us);
u32 pflow_unshed_step(struct pflow_unshed *unshed, const struct pflow_unshed_tick *tick);
bool pflow_kept_from_running(u32 awake, u32 wait);
u32 pflow_slept(u32 wait, u32 run);

/**
 * pflow_cut_share() - how much of a receiver's excess is shed
 * @cut: where shedding stands
 * @level: the receiver's
 *
 * Context: any. Return: 0..65536; never rises with @level.
 */
static inline u32 pflow_cut_share(struct pflow_cut cut, u16 level)
{
	if (level > cut.level)
		return 0;
	return level < cut.level ? PFLOW_ONE : cut.share;
}

#endif
