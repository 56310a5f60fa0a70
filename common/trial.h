/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A measure on trial: taken for a receiver that is harmed, kept while it helps.
 *
 * Whatever the suite does for a more important receiver costs somebody else something. So
 * each measure is a trial. It *reaches* as far as it must, from 0 (nothing is done) to a
 * most that its owner gives, in steps of PFLOW_ONE:
 *
 *  - The receiver is harmed more than is bearable: the measure reaches further. It takes as
 *    many steps as such harm likely needs, less those that harm cannot show yet. At an onset
 *    nothing is taken off: until harm falls by an eighth of its worst, what was done did not help.
 *  - The receiver is not harmed: the measure holds what it has, for 0.1 s at first. It gives
 *    back hardly anything meanwhile, since it may be the reason. Then it gives back. The more time
 *    the CPU has to spare, the faster, since nobody needs to be kept from spare time.
 *  - Harm comes back after the measure gave back some: it holds for twice as long the next time,
 *    up to 1.6 s. If it gave back much, and harm is great, it goes back at once to where it was
 *    enough. What was enough fades, and is learnt anew where the receiver is well although the
 *    CPU is busy.
 *  - The measure reaches as far as it can, and the receiver is still harmed: the last step is
 *    taken back for a moment. If that makes no difference the step was vain. It stays back for
 *    2 s, each time twice as long, up to a minute, and the step before it is looked at in the
 *    same way. If it does make a difference, the question is asked again, four times as late.
 *    What is vain for one receiver is tried anew for one of higher priority. If such a one is
 *    harmed while the question is asked, that is the answer. If the receiver itself is elected
 *    meanwhile, it is asked once more.
 *
 * Plain numbers only; compiled unchanged into the user-space tests.
 *
 * Context: any; nothing here sleeps, allocates or locks.
 */
#ifndef _PFLOW_TRIAL_H
#define _PFLOW_TRIAL_H

#include "policy.h"

/**
 * struct pflow_trial - one measure
 * @reach: how far it goes now
 * @enough: how far it went when harm ended lately; fades, and is learnt anew
 * @limit: it was found vain beyond this
 * @limit_us: for how long that still counts, microseconds
 * @backoff_us: how long the next limit lasts
 * @hold_us: how long after the last harm it begins to give back
 * @calm_us: time since the last harm
 * @futile_us: time for which harm has lasted although it reaches as far as it can
 * @ask_us: after so much of @futile_us it is asked whether the last step helps
 * @asking_us: time since the last step was taken back to find out; 0: it is not
 * @with: harm before it was taken back, as in pflow_trial_tick
 * @level: of the receiver for whom the last step was taken back
 * @unseen: steps reached so lately that harm does not show yet what they do
 * @worst: the greatest harm since the measure was last forgotten, as in pflow_trial_tick
 * @asked_anew: it was asked once more, as the receiver was elected meanwhile; until a yes
 *
 * All zero is a measure that was never taken.
 */
struct pflow_trial {
	u32 reach;
	u32 enough;
	u32 limit;
	u32 limit_us;
	u32 backoff_us;
	u32 hold_us;
	u32 calm_us;
	u32 futile_us;
	u32 ask_us;
	u32 asking_us;
	u32 with;
	u32 level;
	u32 unseen;
	u32 worst;
	bool asked_anew;
};

/**
 * struct pflow_trial_tick - what one interval saw
 * @harm: 0..65536, share of its time or packets that the worst hit receiver lost; or @unbounded
 * @bearable: so much harm is left alone
 * @spare: 0..65536, share of time that the CPU had to spare
 * @most: how far the measure may reach; 0: there is nothing to be done
 * @elapsed_us: length of the interval, microseconds
 * @level: of that receiver; the larger, the more important
 * @unbounded: harm is a number, and no share of anything
 */
struct pflow_trial_tick {
	u32 harm;
	u32 bearable;
	u32 spare;
	u32 most;
	u32 elapsed_us;
	u32 level;
	bool unbounded;
};

void pflow_trial_step(struct pflow_trial *trial, const struct pflow_trial_tick *tick);
void pflow_trial_pause(struct pflow_trial *trial, u32 pause_us);

#endif
