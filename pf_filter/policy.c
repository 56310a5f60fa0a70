// SPDX-License-Identifier: GPL-2.0-only
/*
 * Policy of pf_filter; see policy.h.
 *
 * The controller is an integrator with a leak. Full pressure drives the cut up
 * one level in RISE_US; it sinks all the time, one level in FALL_US. The climb
 * is fast because a full receive queue costs everybody its packets; the slow way
 * down is the damping, and the ratio of the two is the pressure at which the cut
 * comes to rest: RISE_US / FALL_US, a little more than one percent. So the cut
 * stands where the more important receivers lose about that much, and where they
 * lose less to begin with nobody is shed. A CPU with time to spare needs no
 * shedding at all, and is let go in a fraction of the time.
 */
#include "policy.h"

#define RISE_US		50000u		/* one level up at full pressure */
#define FALL_US		4000000u	/* one level down */
#define FALL_SPARE_US	250000u		/* the same, with time to spare */
#define STEP_MAX_US	100000u		/* a late tick counts no longer than this */
#define BEARABLE	(PFLOW_ONE / 10)	/* share of what a receiver is sent */
#define HARMED_US	50000u
#define WORTH		8		/* one in so many: about what looking costs, in drops */
#define FEW		256		/* packets that cost nothing to speak of */

static u32 min_u32(u32 a, u32 b)
{
	return a < b ? a : b;
}

/* How far up the order the cut stands: levels passed, plus the share. */
static u32 cut_position(struct pflow_cut cut, const u16 *levels, unsigned int nr_levels)
{
	unsigned int i = 0;

	while (i < nr_levels && levels[i] < cut.level)
		i++;
	if (i < nr_levels && levels[i] == cut.level)
		return i * PFLOW_ONE + cut.share;
	return i * PFLOW_ONE;
}

/**
 * pflow_cut_step() - move the cut by what one control interval saw
 * @cut: where it stands
 * @pressure: 0..65536, share of the interval, or of what a receiver was sent,
 *	that was lost to overload
 * @spare: the CPU has time to spare
 * @elapsed_us: length of the interval, microseconds
 * @levels: levels that may be shed, ascending, each once
 * @nr_levels: how many; with none there is nobody to shed and nothing is cut
 *
 * The probability of a drop follows the amount of receive-time drops, as in
 * section 3.1.1 of the paper, but through its integral, and level by level.
 *
 * Context: any. Return: the new cut, on one of @levels or zero.
 */
struct pflow_cut pflow_cut_step(struct pflow_cut cut, u32 pressure, bool spare, u32 elapsed_us,
				const u16 *levels, unsigned int nr_levels)
{
	u32 top = nr_levels * PFLOW_ONE;
	u32 position = cut_position(cut, levels, nr_levels);
	u32 dt = min_u32(elapsed_us, STEP_MAX_US);
	struct pflow_cut next = { 0, 0 };
	u32 rise, fall;

	rise = div_u64((u64)min_u32(pressure, PFLOW_ONE) * dt, RISE_US);
	fall = div_u64((u64)PFLOW_ONE * dt, spare ? FALL_SPARE_US : FALL_US);
	position += min_u32(rise, PFLOW_ONE);
	position -= min_u32(position, fall);
	if (!nr_levels || !position)
		return next;
	if (position >= top)
		position = top - 1;
	next.level = levels[position / PFLOW_ONE];
	next.share = position % PFLOW_ONE;
	return next;
}

/**
 * pflow_harm_step() - add up what a receiver loses beyond what is bearable
 * @harm_us: the sum so far, microseconds
 * @loss: 0..65536, share that it lost in this interval
 * @elapsed_us: length of the interval, microseconds
 *
 * A cumulative sum: what is lost beyond a tenth adds to it, what stays below takes
 * from it. So a great loss counts at once and one just beyond in a second, and one
 * that only now and then goes beyond does not count.
 *
 * Context: any. Return: the new sum, bounded.
 */
u32 pflow_harm_step(u32 harm_us, u32 loss, u32 elapsed_us)
{
	u32 dt = min_u32(elapsed_us, STEP_MAX_US);
	u32 more = div_u64((u64)min_u32(loss, PFLOW_ONE) * dt, PFLOW_ONE);
	u32 less = div_u64((u64)BEARABLE * dt, PFLOW_ONE);

	harm_us = min_u32(harm_us, 2 * HARMED_US) + more;
	harm_us -= min_u32(harm_us, less);
	return min_u32(harm_us, 2 * HARMED_US);
}

/**
 * pflow_harmed() - does a receiver lose enough to shed others for it?
 * @harm_us: from pflow_harm_step()
 *
 * Context: any. Return: whether it does.
 */
bool pflow_harmed(u32 harm_us)
{
	return harm_us >= HARMED_US;
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
 * pflow_relieved() - has shedding others helped a receiver?
 * @before: 0..65536, share that it lost when it began
 * @after: 0..65536, share that it loses now
 *
 * It has if it loses half as much, or receives a tenth more.
 *
 * Context: any. Return: whether it has.
 */
bool pflow_relieved(u32 before, u32 after)
{
	u32 got = PFLOW_ONE - min_u32(before, PFLOW_ONE);
	u32 gets = PFLOW_ONE - min_u32(after, PFLOW_ONE);

	return after <= before / 2 || gets > got + got / 10;
}

/**
 * pflow_keep() - probability that a packet is let through
 * @share: 0..65536, from pflow_cut_share()
 * @rate: what the receiver is sent, packets/s
 * @top_rate: what the busiest receiver of its level is sent, packets/s
 * @floor: packets/s that everybody may have
 *
 * Within a level the water falls from the top: the busiest receiver is cut by
 * @share, and whoever is sent less than what that leaves it is not cut at all.
 *
 * Context: any. Return: 0..65536.
 */
u32 pflow_keep(u32 share, u32 rate, u32 top_rate, u32 floor)
{
	u64 allowed = ((u64)top_rate * (PFLOW_ONE - min_u32(share, PFLOW_ONE))) / PFLOW_ONE;

	if (!share)
		return PFLOW_ONE;
	if (allowed < floor)
		allowed = floor;
	if (rate <= allowed)
		return PFLOW_ONE;
	return div_u64(allowed * PFLOW_ONE, rate);
}
