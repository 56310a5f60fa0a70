// SPDX-License-Identifier: GPL-2.0-only
/*
 * A measure on trial, as plain arithmetic: how far it reaches after each interval. ../trial.h tells
 * the rules. What was found about the constants is in docs/performance/steering.md.
 *
 * Context: any; nothing here sleeps, allocates or locks.
 */
#include "../trial.h"

#define SECOND_US	1000000u
#define TICK_MOST_US	100000u		/* a late tick counts no longer than this */

/* How it rises: harm h asks for h (1 + STEEP h) steps. */
#define STEEP		8		/* so little harm is answered gently */
#define RISE_US		24000u		/* the steps are made in so long */
#define SEEN_US		50000u		/* harm shows most of what a step does after so long */

/* How it holds and sinks. */
#define FALL_US		(20 * SECOND_US)	/* it sinks by a step in so long at the latest */
#define FALL_SPARE	8		/* steps that sink in a second if all time is to spare */
#define SPARE_NOISE	(PFLOW_ONE / 25)	/* of the time; so much always seems to spare */
#define HOLD_US		100000u
#define HOLD_MOST_US	(16 * HOLD_US)

/* How harm comes back: to what was enough, if it sank by NOTICED and harm is more than ONSET. */
#define NOTICED		(PFLOW_ONE / 2)	/* of a step */
#define ONSET		(PFLOW_ONE / 32)
#define GAVE_BACK	(PFLOW_ONE / 16)	/* of a step; after more it holds for longer */
#define FADE_US		(10 * SECOND_US)	/* what was enough fades by a step in so long */
#define BUSY		(PFLOW_ONE / 4)	/* of the time; calm with less to spare: less is enough */
#define LEARN_US	(SECOND_US / 3)	/* most of that is believed after so long */

/* When it is asked whether the last step helps, and what the answer is. */
#define FUTILE		2		/* harm is so many times what is bearable */
#define FUTILE_DRAIN	2		/* time without harm takes off so many times its length */
#define ASK_US		(SECOND_US / 2)	/* it is asked after so long of that, at first */
#define ASK_MOST_US	(60 * SECOND_US)
#define ASKING_US	80000u		/* several times what a mean of harm takes to follow */
#define BACKOFF_US	(2 * SECOND_US)	/* a vain step stays back so long, at first */
#define BACKOFF_MOST_US	(60 * SECOND_US)
#define BACKOFF_FADES	64		/* a pause takes 1/64 of its length off that */
#define DIFFERENCE	8		/* a change of harm by less than 1/8 makes none */
#define DIFFERENCE_LEAST (PFLOW_ONE / 64)	/* nor does so little of a receiver's packets */

static u32 less(u32 value, u32 by)
{
	return value > by ? value - by : 0;
}

static u32 capped(u32 value, u32 cap)
{
	return value < cap ? value : cap;
}

static u32 floored(u32 value, u32 floor)
{
	return value > floor ? value : floor;
}

/* The part of a value for this interval, if the whole value takes @whole_us. */
static u32 part(u64 value, u32 elapsed_us, u32 whole_us)
{
	return div_u64(value * capped(elapsed_us, whole_us), whole_us);
}

/*
 * How much further to reach. A share h of harm takes about h (1 + 8 h) steps. So little harm takes
 * much less than great harm: a receiver loses much as soon as it gets a little too little. Harm is
 * a mean over some time. What was reached lately does not show in it yet, and is taken off.
 */
static u32 trial_rise(const struct pflow_trial *trial, const struct pflow_trial_tick *tick,
		      u32 elapsed_us)
{
	u64 harm = less(capped(tick->harm, PFLOW_ONE), tick->bearable);
	u32 needed = harm + STEEP * harm * harm / PFLOW_ONE;

	return part(less(needed, trial->unseen), elapsed_us, RISE_US);
}

static u32 trial_fall(const struct pflow_trial *trial, const struct pflow_trial_tick *tick,
		      u32 elapsed_us)
{
	u32 slow = part(PFLOW_ONE, elapsed_us, FALL_US);

	if (trial->calm_us < floored(trial->hold_us, HOLD_US))
		return slow;
	return slow + part((u64)FALL_SPARE * less(tick->spare, SPARE_NOISE), elapsed_us, SECOND_US);
}

/* Is a receiver of higher priority harmed? One that was only elected since is the same one. */
static bool trial_harms_another(const struct pflow_trial *trial,
				const struct pflow_trial_tick *tick)
{
	return tick->harm > tick->bearable && pflow_level_outranks(tick->level, trial->level);
}

/*
 * Has the step that was taken back been missed? Then a receiver that lost little loses clearly more
 * without it. One that lost nearly all has clearly less left, while its loss hardly changes.
 */
static bool trial_step_was_missed(const struct pflow_trial *trial,
				  const struct pflow_trial_tick *tick)
{
	u32 left_with = less(PFLOW_ONE, trial->with);
	u32 left = less(PFLOW_ONE, tick->harm);

	if (tick->harm > (u64)trial->with + trial->with / DIFFERENCE)
		return true;
	return !tick->unbounded &&
	       left + floored(left_with / DIFFERENCE, DIFFERENCE_LEAST) < left_with;
}

/*
 * Has its receiver been elected since the question was asked? Then it may lose less because of
 * that, and what it lost before, with the step, tells nothing. So the question is asked anew, but
 * only once: for a receiver that is elected at every question there would never be an answer.
 */
static bool trial_must_ask_anew(const struct pflow_trial *trial,
				const struct pflow_trial_tick *tick)
{
	return !trial->asked_anew && tick->level > trial->level;
}

static void trial_ask_anew(struct pflow_trial *trial, const struct pflow_trial_tick *tick)
{
	trial->asked_anew = true;
	trial->asking_us = 0;
	trial->reach = capped(trial->reach + PFLOW_ONE, tick->most);
	/* The mean of harm has to follow first. */
	trial->futile_us = less(floored(trial->ask_us, ASK_US), 2 * ASKING_US);
}

/*
 * The step that was taken back stays back until it can be told whether it is missed. If a more
 * important receiver is harmed meanwhile, it is missed: that one was well with it. Otherwise a less
 * important one that is harmed, by whatever, would take it from that one again and again.
 */
static void trial_wait_for_answer(struct pflow_trial *trial, const struct pflow_trial_tick *tick,
				  u32 elapsed_us)
{
	bool for_another = trial_harms_another(trial, tick);

	if (!for_another && trial_must_ask_anew(trial, tick)) {
		trial_ask_anew(trial, tick);
		return;
	}
	trial->asking_us += elapsed_us;
	if (!for_another && trial->asking_us < ASKING_US)
		return;
	trial->asking_us = 0;
	trial->futile_us = 0;
	if (for_another || trial_step_was_missed(trial, tick)) {
		trial->asked_anew = false;
		trial->reach = capped(trial->reach + PFLOW_ONE, tick->most);
		/* That says nothing of the steps above, which were vain. */
		if (!trial->limit_us)
			trial->backoff_us = 0;
		trial->ask_us = capped(4 * floored(trial->ask_us, ASK_US), ASK_MOST_US);
		return;
	}
	trial->limit = trial->reach;
	trial->backoff_us = capped(2 * floored(trial->backoff_us, BACKOFF_US / 2),
				   BACKOFF_MOST_US);
	trial->limit_us = trial->backoff_us;
	trial->enough = capped(trial->enough, trial->limit);
	/* The step before is asked about next, at once. */
	if (trial->reach) {
		trial->reach = less(trial->reach, PFLOW_ONE);
		trial->asking_us = 1;
	}
}

static void trial_answer_harm(struct pflow_trial *trial, const struct pflow_trial_tick *tick,
			      u32 most, u32 elapsed_us)
{
	u32 before = trial->reach;

	/* It sank too soon. If it sank by much, and harm is great, all of it is needed now. */
	if (trial->reach + GAVE_BACK < trial->enough &&
	    trial->calm_us >= floored(trial->hold_us, HOLD_US))
		trial->hold_us = capped(2 * floored(trial->hold_us, HOLD_US), HOLD_MOST_US);
	if (trial->reach + NOTICED < trial->enough && tick->harm > ONSET)
		trial->reach = floored(trial->reach, capped(trial->enough, most));
	trial->calm_us = 0;
	/* Until harm falls, what was done lately has done nothing that could still show. */
	if (tick->harm >= trial->worst - trial->worst / DIFFERENCE)
		trial->unseen = 0;
	trial->worst = floored(trial->worst, tick->harm);
	trial->reach = floored(trial->reach,
			       capped(trial->reach + trial_rise(trial, tick, elapsed_us), most));
	trial->unseen += trial->reach - before;
	/* If it does not reach as far as it can, there is nothing to ask. */
	if (!trial->reach || trial->reach < most)
		trial->futile_us = 0;
	else if (tick->harm / FUTILE > tick->bearable)
		trial->futile_us += elapsed_us;
	if (trial->futile_us < floored(trial->ask_us, ASK_US))
		return;
	trial->with = tick->harm;
	trial->level = tick->level;
	trial->reach = less(trial->reach, PFLOW_ONE);
	trial->asking_us = 1;
}

static void trial_answer_calm(struct pflow_trial *trial, const struct pflow_trial_tick *tick,
			      u32 elapsed_us)
{
	if (trial->calm_us < HOLD_US && trial->calm_us + elapsed_us >= HOLD_US)
		trial->enough = floored(trial->enough, trial->reach);
	trial->calm_us = capped(trial->calm_us + elapsed_us, FADE_US);
	trial->reach = less(trial->reach, trial_fall(trial, tick, elapsed_us));
	trial->enough = less(trial->enough, part(PFLOW_ONE, elapsed_us, FADE_US));
	if (tick->spare < BUSY)
		trial->enough -= part(less(trial->enough, trial->reach), elapsed_us, LEARN_US);
	trial->futile_us = less(trial->futile_us, FUTILE_DRAIN * elapsed_us);
	if (trial->enough || trial->reach)
		return;
	/* Whatever comes now is something new. */
	trial->hold_us = 0;
	trial->ask_us = 0;
	trial->worst = 0;
	trial->asked_anew = false;
}

/**
 * pflow_trial_step() - move a measure by what one interval saw
 * @trial: the measure; @reach is what is to be done from now on
 * @tick: what was seen
 *
 * Context: any.
 */
void pflow_trial_step(struct pflow_trial *trial, const struct pflow_trial_tick *tick)
{
	u32 elapsed_us = capped(tick->elapsed_us, TICK_MOST_US);
	u32 most = tick->most;

	/* The limit ends: what was vain is tried anew, and asked about soon. */
	if (trial->limit_us && trial->limit_us <= elapsed_us)
		trial->ask_us = 0;
	trial->limit_us = less(trial->limit_us, elapsed_us);
	/* What was vain for one is tried at once for one of higher priority. */
	if (trial->limit_us && trial_harms_another(trial, tick)) {
		trial->limit_us = 0;
		trial->ask_us = 0;
	}
	if (trial->limit_us)
		most = capped(most, trial->limit);
	trial->reach = capped(trial->reach, tick->most);
	trial->unseen -= part(trial->unseen, elapsed_us, SEEN_US);
	if (trial->asking_us)
		trial_wait_for_answer(trial, tick, elapsed_us);
	else if (tick->harm > tick->bearable)
		trial_answer_harm(trial, tick, most, elapsed_us);
	else
		trial_answer_calm(trial, tick, elapsed_us);
}
EXPORT_SYMBOL_GPL(pflow_trial_step);

/**
 * pflow_trial_pause() - forget a measure, except what was vain
 * @trial: the measure; nothing is done from now on
 * @pause_us: how long nobody looked, microseconds
 *
 * What comes now is another overload. But a step that was vain stays back for as long as it would
 * have without the pause. How often it was vain is forgotten slowly. Otherwise a receiver that
 * harms itself would only have to pause to be believed anew.
 *
 * Context: any.
 */
void pflow_trial_pause(struct pflow_trial *trial, u32 pause_us)
{
	*trial = (struct pflow_trial) {
		.limit = trial->limit,
		.limit_us = less(trial->limit_us, pause_us),
		.backoff_us = less(trial->backoff_us,
				   less(pause_us, trial->limit_us) / BACKOFF_FADES),
		.level = trial->level,
	};
}
EXPORT_SYMBOL_GPL(pflow_trial_pause);
