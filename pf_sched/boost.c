// SPDX-License-Identifier: GPL-2.0-only
/*
 * Boosts, from their election to the moment when nothing is left of them.
 *
 * One thread of pf_sched does it. It looks every 10 ms at all threads that are raised: it charges
 * what they took, ends the boosts that have a reason to end, and restores these threads. It has a
 * real-time priority, so those whom it raised cannot keep it from its work. Its clock is a timer in
 * hard interrupt for the same reason.
 *
 * Context: that thread, unless a function says otherwise.
 */
#include <linux/delay.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/sched/task.h>

#include "../common/compat/compat.h"
#include "slots.h"
#include "trace.h"

#define SLOTS_SPARE	(SLOTS / 2)	/* with so few free a ghost makes room, slot_find_free() */
#define TICK_IDLE_MS	250	/* only ghosts are left */
#define GHOST_FOR	(10 * HZ)	/* a ghost is kept so long */
#define GHOST_LEAST	HZ		/* so long even if room is wanted */
#define UNDER_WAY_MS	100	/* a fork seldom takes longer */
#define KNOWN_NEED	5	/* ticks of a boost that tell how much a thread needs */
#define WEAK_AFTER	5	/* ticks in which the buffer stayed full although raised */
#define OTHER_AFTER	10	/* ticks in which somebody else was the receiver */

static bool stopping;
static struct kthread_worker *thread;
static void boost_tick(struct kthread_work *work);
static struct kthread_work tick_work;
static struct hrtimer tick_timer;
static u64 tick_at_ns;

/**
 * boost_wake() - let the thread have a look
 *
 * Context: any but NMI.
 */
void boost_wake(void)
{
	kthread_queue_work(thread, &tick_work);
}

/* In hard interrupt: a raised thread can keep softirqs, and their timers, waiting. */
static enum hrtimer_restart boost_on_timer(struct hrtimer *timer)
{
	boost_wake();
	return HRTIMER_NORESTART;
}

/**
 * boost_stopping() - is nobody to be raised any more?
 *
 * Context: under slots_lock. Return: whether pf_sched is about to stop.
 */
bool boost_stopping(void)
{
	lockdep_assert_held(&slots_lock);
	return stopping;
}

/* Was the lever not enough, and is there another one that might be? */
static bool slot_boost_too_weak(struct slot *slot)
{
	enum boost_lever lever;

	/* It was reserved less than it needs now: next time, all there is. */
	if (slot->boost.lever == LEVER_DEADLINE && slot->boost.scant &&
	    slot->full_ticks >= WEAK_AFTER) {
		slot->boost.need = 0;
		return true;
	}
	if (slot->boost.lever != LEVER_NICE || slot->full_ticks < WEAK_AFTER ||
	    sched_knob(SCHED_KNOB_LEVER) ||
	    lever_choose(slot->boost.task, true, &lever) || lever == LEVER_NICE)
		return false;
	slot->boost.weak = true;
	return true;
}

/* Is the socket still there for this thread? */
static bool slot_still_receives(struct slot *slot, enum boost_end *end)
{
	const struct pflow_sock *entry;
	bool open;

	rcu_read_lock();
	entry = pflow_sock_find_as(slot->sk, slot->cookie);
	open = entry && !pflow_sock_dead(slot->sk);
	if (open && READ_ONCE(entry->pid) != slot->pid)
		slot->other_ticks++;
	else
		slot->other_ticks = 0;
	rcu_read_unlock();
	*end = open ? END_OTHER : END_CLOSED;
	return open && slot->other_ticks < OTHER_AFTER;
}

/* Did the administrator or the thread's limits change against its being raised? */
static bool slot_boost_barred(const struct slot *slot)
{
	bool exempt;

	rcu_read_lock();
	exempt = boost_exempt(slot->boost.task);
	rcu_read_unlock();
	return exempt || lever_barred(&slot->boost);
}

static bool slot_budget_spent(struct slot *slot, int cpu)
{
	struct asker asker = { .user = slot->user, .rank = slot->rank, .cpu = cpu };

	slot->spent_cpu = cpu;
	return share_spent(&asker, 0);
}

/* The budget of the CPU where the thread is to which it lends its class (lend.c). */
static bool slot_lent_budget_spent(struct slot *slot)
{
	return lever_above_groups(slot->boost.lever) && READ_ONCE(slot->lend.since) &&
	       slot_budget_spent(slot, READ_ONCE(slot->lend.cpu));
}

/* Is it in somebody's way? If so, this CPU is noted: the scheduler may move it there again. */
static bool slot_in_the_way(struct slot *slot, int cpu)
{
	if (!elect_outranked(slot->boost.task, slot->rank, slot->met))
		return false;
	slot->met |= elect_met(cpu);
	return true;
}

/* Has this boost a reason to end? */
static bool slot_boost_ends(struct slot *slot, enum boost_end *end)
{
	const struct task_struct *task = slot->boost.task;
	int cpu = task_cpu(task);

	lockdep_assert_held(&slots_lock);
	if (task_flags(task) & PF_EXITING)
		*end = END_EXITED;
	else if (READ_ONCE(task->self_exec_id) != slot->exec_id)
		*end = END_EXEC;
	else if (stopping || sched_knob(SCHED_KNOB_MODE) == SCHED_MODE_OBSERVE)
		*end = END_STOPPED;
	else if (slot->state == SLOT_RAISED &&
		 (!lever_untouched(&slot->boost) || lever_reniced(&slot->boost)))
		*end = END_CHANGED;
	else if (slot_boost_barred(slot))
		*end = END_BARRED;
	else if (slot_budget_spent(slot, cpu) || slot_lent_budget_spent(slot))
		*end = END_CAP;
	else if (time_after32((u32)jiffies, slot->until))
		*end = END_EXPIRED;
	else if (slot_in_the_way(slot, cpu))
		*end = END_DISPLACED;
	else if (slot_boost_too_weak(slot))
		*end = END_WEAK;
	else if (slot->asking)
		*end = END_TRIAL;
	else
		return !slot_still_receives(slot, end);
	return true;
}

/* What a thread took since the last tick, and what that tells of its boost. */
static void slot_account(struct slot *slot, u32 elapsed_us)
{
	u64 took_ns = share_charge(slot);
	bool full = slot->also;

	slot->took_ns = took_ns;
	slot->also = false;
	if (slot->state != SLOT_RAISED)
		return;
	slot->boosted_ns += took_ns;
	if (++slot->ticks >= KNOWN_NEED) {
		u64 raised_ns = jiffies_to_nsecs((u32)jiffies - slot->changed) ?: 1;

		slot->boost.need = clamp_t(u64, div64_u64(slot->boosted_ns * 100, raised_ns),
					   1, 100);
	}
	/* A thread that does not run waits for something else, however full its buffer is. */
	full = hook_wants_boost(slot->sk) || full;
	trial_ask(slot, full, elapsed_us);
	if (!full) {
		slot->full_ticks = 0;
	} else if (took_ns) {
		slot->full_ticks++;
		slot->until = elect_hold_until();
	}
}

/* Charge what threads took since the last tick: those that are raised, and the ghosts. */
static void slots_account(u32 elapsed_us)
{
	unsigned int i;

	lockdep_assert_held(&slots_lock);
	for (i = 0; i < SLOTS; i++)
		if (slots[i].state != SLOT_FREE)
			slot_account(&slots[i], elapsed_us);
}

/* Let go of a ghost, unless it was elected again this moment. */
static void slot_put(struct slot *slot)
{
	struct task_struct *task = NULL;
	struct sock *sk = NULL;
	unsigned long irq;

	raw_spin_lock_irqsave(&slots_lock, irq);
	if (slot->state == SLOT_GHOST) {
		task = slot->boost.task;
		sk = slot->asking ? slot->sk : NULL;
		trial_forget(slot);
		WRITE_ONCE(slot->boost.task, NULL);
		WRITE_ONCE(slot->state, SLOT_FREE);
	}
	raw_spin_unlock_irqrestore(&slots_lock, irq);
	if (sk)
		sock_put(sk);
	if (task)
		put_task_struct(task);
}

/* Let go of a slot's socket as soon as it is known whether the boost helped, or cannot be. */
static void slot_await_answer(struct slot *slot, u32 elapsed_us)
{
	struct sock *sk = NULL;
	unsigned long irq;

	raw_spin_lock_irqsave(&slots_lock, irq);
	if (stopping || pflow_sock_dead(slot->sk) || trial_answered(slot, elapsed_us)) {
		slot->asking = false;
		sk = slot->sk;
	}
	raw_spin_unlock_irqrestore(&slots_lock, irq);
	if (sk)
		sock_put(sk);
}

/*
 * The degree of a boost depends on who else is raised. So it is set anew as others come and go. The
 * degree of a session stays, as it was told to a program. No lock is needed to read rank and lever:
 * only this thread changes those of a raised thread.
 */
static void slot_reorder(struct slot *slot)
{
	struct boost *boost = &slot->boost;
	bool by_rr = boost->lever == LEVER_RR;
	unsigned int degree;
	struct field others;
	unsigned long irq;

	if (!by_rr && boost->lever != LEVER_NICE)
		return;
	field_gather(&others, slot, slot->home);
	degree = by_rr ? slot_rr_priority(slot) : field_levels(&others, slot->rank);
	if (degree == (by_rr ? boost->priority : boost->levels) ||
	    !time_after32((u32)jiffies, slot->ordered +
			  msecs_to_jiffies(sched_knob(SCHED_KNOB_APART))))
		return;
	slot->ordered = jiffies;
	if (by_rr) {
		lever_reorder(boost, degree);
		return;
	}
	/* fork.c goes by what was lent, and a child may be born just now. */
	raw_spin_lock_irqsave(&slots_lock, irq);
	lever_set_degree(boost, degree);
	raw_spin_unlock_irqrestore(&slots_lock, irq);
}

/* Only this thread takes a slot from CHOSEN, OVER and GHOST further. */
static void slot_raise(struct slot *slot)
{
	const struct task_struct *task = slot->boost.task;
	unsigned long irq;
	int err = -ESRCH;

	/* Somebody may have been quicker since the election. */
	if (READ_ONCE(task->policy) == SCHED_NORMAL && !(task_flags(task) & PF_EXITING)) {
		lever_save(&slot->boost);
		err = lever_raise_realtime(&slot->boost, sched_knob(SCHED_KNOB_CAP),
					   slot_rr_priority(slot));
	}

	raw_spin_lock_irqsave(&slots_lock, irq);
	slot->changed = jiffies;
	if (err) {
		slot_counts.refused[REFUSED_LEVER]++;
		slot_finish(slot, END_CHANGED);
	} else {
		slot_set_state(slot, SLOT_RAISED);
	}
	raw_spin_unlock_irqrestore(&slots_lock, irq);
}

static void slot_restore(struct slot *slot)
{
	enum boost_lever lever = slot->boost.lever;
	unsigned long irq;

	/* A thread that is about to exit is restored. A dead one has left its class already. */
	if (lever != LEVERS && !READ_ONCE(slot->boost.task->exit_state))
		lever_restore(&slot->boost);
	slot_mark_socket(slot, false);
	/* Nothing is asked if it was never raised, or if its boost ended for another reason. */
	slot->asking = slot->asking && slot->end == END_TRIAL;
	if (!slot->asking)
		sock_put(slot->sk);
	trace_restore(slot->boost.task, slot->pid, lever, slot->end);
	pflow_rank_unpin(slot->boost.task);
	raw_spin_lock_irqsave(&slots_lock, irq);
	slot_counts.ended[slot->end]++;
	slot->changed = jiffies;
	WRITE_ONCE(slot->state, SLOT_GHOST);
	raw_spin_unlock_irqrestore(&slots_lock, irq);
}

/* How many slots its user has. */
static unsigned int slot_siblings(const struct slot *slot)
{
	unsigned int number = 0, i;

	for (i = 0; i < SLOTS; i++)
		number += slots[i].state != SLOT_FREE && slots[i].user == slot->user;
	return number;
}

/* The ghost that makes room: the oldest one of the user who has most slots. */
static const struct slot *ghosts_find_last(void)
{
	const struct slot *last = NULL;
	unsigned int most = 0, i;

	for (i = 0; i < SLOTS; i++) {
		unsigned int siblings;

		if (slots[i].state != SLOT_GHOST)
			continue;
		siblings = slot_siblings(&slots[i]);
		if (siblings < most ||
		    (last && siblings == most && !time_before32(slots[i].changed, last->changed)))
			continue;
		most = siblings;
		last = &slots[i];
	}
	return last;
}

/* Ghosts go when they are old. If there is little room, one goes sooner, unless it is too young. */
static void ghosts_put(void)
{
	const struct slot *last = NULL;
	unsigned int spare = 0, i;

	for (i = 0; i < SLOTS; i++)
		spare += slots[i].state == SLOT_FREE;
	if (spare <= SLOTS_SPARE)
		last = ghosts_find_last();
	for (i = 0; i < SLOTS; i++) {
		u32 age = (u32)jiffies - slots[i].changed;

		if (slots[i].state == SLOT_GHOST &&
		    (task_flags(slots[i].boost.task) & PF_EXITING ||
		     age > max_t(u32, GHOST_FOR, trial_memory(&slots[i])) ||
		     (&slots[i] == last && age > GHOST_LEAST)))
			slot_put(&slots[i]);
	}
}

static void boost_tick(struct kthread_work *work)
{
	u64 now = ktime_get_ns();
	u32 elapsed_us = min_t(u64, div_u64(now - tick_at_ns, NSEC_PER_USEC), USEC_PER_SEC);
	unsigned int used = 0, busy = 0, i;
	bool raised = false;
	unsigned long irq;
	s32 left, purse;

	pflow_step_aside();
	tick_at_ns = now;
	pflow_threads_sample();
	share_take_stock(elapsed_us);
	raw_spin_lock_irqsave(&slots_lock, irq);
	slots_account(elapsed_us);
	purse = share_settle_purses();
	raw_spin_unlock_irqrestore(&slots_lock, irq);
	left = share_settle();

	raw_spin_lock_irqsave(&slots_lock, irq);
	for (i = 0; i < SLOTS; i++) {
		enum boost_end end;

		if (slot_is_active(&slots[i]) && slot_boost_ends(&slots[i], &end))
			slot_finish(&slots[i], end);
	}
	places_adapt(left < 0);
	places_displace();
	raw_spin_unlock_irqrestore(&slots_lock, irq);

	for (i = 0; i < SLOTS; i++) {
		struct slot *slot = &slots[i];

		if (slot_state(slot) == SLOT_CHOSEN)
			slot_raise(slot);
		if (slot_state(slot) == SLOT_RAISED)
			slot_reorder(slot);
		if (slot_state(slot) == SLOT_OVER && !lever_holds(&slot->boost))
			slot_restore(slot);
		else if (slot_state(slot) == SLOT_GHOST && slot->asking)
			slot_await_answer(slot, elapsed_us);
	}
	ghosts_put();
	for (i = 0; i < SLOTS; i++) {
		raised |= slot_is_active(&slots[i]);
		used += slots[i].state != SLOT_FREE;
		busy += slot_is_active(&slots[i]) || slots[i].state == SLOT_OVER ||
			slots[i].asking;
	}
	/* Who waits behind them, and is not known to receive, is seen as soon as he runs. */
	if (raised)
		pflow_load_learn_news();
	/* Go on until the budgets are full, even if nobody is left: somebody may wait for that. */
	busy += min(left, purse) < share_part(100);
	if ((used || busy) && !stopping)
		hrtimer_start(&tick_timer, ms_to_ktime(busy ? TICK_MS : TICK_IDLE_MS),
			      HRTIMER_MODE_REL_HARD);
}

/**
 * boost_setup() - make the thread; nobody is raised yet
 *
 * Context: process, may sleep. Return: 0 or a negative error.
 */
int boost_setup(void)
{
	thread = kthread_run_worker(0, "pf_sched");
	if (IS_ERR(thread))
		return PTR_ERR(thread);
	sched_set_fifo(thread->task);
	kthread_init_work(&tick_work, boost_tick);
	pflow_hrtimer_setup(&tick_timer, boost_on_timer, HRTIMER_MODE_REL_HARD);
	stopping = false;
	share_setup();
	places_setup();
	tick_at_ns = ktime_get_ns();
	/* Only the tick fills the budgets, and they begin empty. */
	boost_wake();
	return 0;
}

static bool slots_any_over(void)
{
	unsigned int i;

	for (i = 0; i < SLOTS; i++)
		if (slot_state(&slots[i]) == SLOT_OVER)
			return true;
	return false;
}

/**
 * boost_teardown() - restore everybody and end the thread
 *
 * Context: process, may sleep; the hook is gone. Nobody is raised on return, and
 * no task is held.
 */
void boost_teardown(void)
{
	unsigned long irq;
	unsigned int i;

	raw_spin_lock_irqsave(&slots_lock, irq);
	stopping = true;
	raw_spin_unlock_irqrestore(&slots_lock, irq);
	boost_wake();
	/* One round ends all boosts. Where lever_holds() puts an end off, it takes a few rounds. */
	for (kthread_flush_work(&tick_work); slots_any_over(); kthread_flush_work(&tick_work)) {
		msleep(TICK_MS);
		boost_wake();
	}
	hrtimer_cancel(&tick_timer);
	kthread_cancel_work_sync(&tick_work);
	kthread_destroy_worker(thread);
	/* Children that were copied just before are still looked after. */
	msleep(UNDER_WAY_MS);
	for (i = 0; i < SLOTS; i++)
		slot_put(&slots[i]);
}
