// SPDX-License-Identifier: GPL-2.0-only
/*
 * A measure: a cut (policy.h) on trial (common/trial.h), and for whom it was taken.
 *
 * Context: the controllers' tick.
 */
#include "../common/trial.h"
#include "filter.h"

/**
 * struct measure - a cut on trial
 * @cut: where it stands
 * @trial: how far it reaches
 * @cause: what it was last raised for, %FILTER_DROP_OVERLOAD or %FILTER_DROP_HARM
 * @level: of the receiver for whom that was
 * @ceased: that receiver turned out to receive nothing, or to be less important
 */
struct measure {
	struct pflow_cut cut;
	struct pflow_trial trial;
	u32 cause;
	u16 level;
	bool ceased;
};

/*
 * Which of two measures on a CPU is in force: the higher one. But while one of them asks whether
 * its last step helps, it is that one, or the other would hide the answer.
 */
static const struct measure *measure_in_force(const struct measure *a, const struct measure *b)
{
	if (!a->trial.asking_us != !b->trial.asking_us)
		return a->trial.asking_us ? a : b;
	if (a->cut.level != b->cut.level)
		return a->cut.level > b->cut.level ? a : b;
	return a->cut.share >= b->cut.share ? a : b;
}

/**
 * measure_step() - take a cut as far as its trial goes from here
 * @measure: it
 * @worst: the harm that it answers
 * @order: the levels in use
 * @for_nobody: those for whom it was taken are gone
 * @elapsed_us: since the last tick, microseconds
 *
 * Return: whether it rose.
 */
static bool measure_step(struct measure *measure, const struct harm *worst,
			 const struct order *order, bool for_nobody, u32 elapsed_us)
{
	struct pflow_trial_tick seen = {
		.bearable = LOSS_BEARABLE,
		.spare = worst->spare,
		.most = pflow_cut_most(order->level, order->n),
		.elapsed_us = elapsed_us,
	};
	struct pflow_trial *trial = &measure->trial;
	u32 before;

	if (worst->share > LOSS_BEARABLE) {
		seen.harm = worst->share;
		seen.level = worst->level;
		seen.most = order_most_below(order, level_beneath(worst->level));
	}
	/* What harmed them when it was given back tells nothing any more. */
	if (for_nobody) {
		seen.spare = PFLOW_ONE;
		trial->hold_us = 0;
	}
	/* The order may have changed under it. */
	trial->reach = pflow_cut_reach(measure->cut, order->level, order->n);
	before = trial->reach;
	pflow_trial_step(trial, &seen);
	measure->cut = pflow_cut_at(trial->reach, order->level, order->n);
	if (trial->reach <= before)
		return false;
	measure->cause = worst->cause;
	measure->level = worst->level;
	measure->ceased = false;
	return true;
}

/* Nobody has looked for so long. */
static void measure_pause(struct measure *measure, s64 pause_us)
{
	struct pflow_trial trial = measure->trial;

	pflow_trial_pause(&trial, min_t(s64, pause_us, U32_MAX));
	*measure = (struct measure){ .trial = trial };
}

/* Nothing is cut. What was found vain, or enough, becomes old meanwhile. */
static void measure_rest(struct measure *measure, u32 elapsed_us)
{
	pflow_trial_step(&measure->trial, &(struct pflow_trial_tick) {
		.spare = PFLOW_ONE, .elapsed_us = elapsed_us });
}
