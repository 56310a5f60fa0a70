// SPDX-License-Identifier: GPL-2.0-only
/*
 * A child does not inherit its parent's boost: it gets the scheduling that its parent had before
 * the boost.
 *
 * The tracepoint task_newtask shows each child when it is complete and does not run yet. It shows
 * the workers, too, that the kernel makes on behalf of a process (io_uring). If the parent has a
 * slot, the child's nice level, slice and timer slack are set as they were before the boost. If the
 * copying took so long that the slot is gone, the child gets at least no better nice level than its
 * parent has by now.
 *
 * Context: the parent's, preemption off.
 */
#include "../common/compat/compat.h"
#include "slots.h"

static void boost_repair_child(const struct slot *slot, const struct task_struct *parent,
			       struct task_struct *child)
{
	const struct boost_before *before = &slot->boost.before;
	bool ghost = slot->state == SLOT_GHOST, nice_lever = slot->boost.lever == LEVER_NICE;
	int nice = task_nice(parent);
	bool reset;

	lockdep_assert_held(&slots_lock);
	if (slot->boost.lever == LEVER_GROUP)
		return;	/* the thread itself was not changed */
	/* Somebody else has given the parent another class since. The child keeps that. */
	if (ghost && READ_ONCE(parent->policy) != SCHED_NORMAL)
		return;
	if (nice_lever && !ghost && nice == slot->boost.nice)
		nice = before->nice;
	reset = ghost || nice_lever ? parent->sched_reset_on_fork : before->reset_on_fork;
	set_user_nice(child, reset && nice < 0 ? 0 : nice);
	if (!nice_lever && before->slice_ns && !reset)
		pflow_set_custom_slice(child, before->slice_ns);
	if (!child->default_timer_slack_ns) {
		child->timer_slack_ns = before->timer_slack_ns;
		child->default_timer_slack_ns = before->timer_slack_ns;
	}
}

/* The parent was raised when the child was copied, or has been reniced meanwhile. */
static void child_cap_nice(const struct task_struct *parent, struct task_struct *child)
{
	if (READ_ONCE(parent->policy) == SCHED_NORMAL && READ_ONCE(child->policy) == SCHED_NORMAL &&
	    task_nice(child) < task_nice(parent))
		set_user_nice(child, task_nice(parent));
}

/*
 * Ghosts count, since the child may have been copied just before its parent's boost ended. If the
 * parent itself asked for reset-on-fork, what that did stays.
 */
static void boost_restore_child(const struct task_struct *parent, struct task_struct *child)
{
	unsigned long irq;
	unsigned int i;

	for (i = 0; i < SLOTS; i++)
		if (READ_ONCE(slots[i].boost.task) == parent)
			break;
	if (i == SLOTS) {
		child_cap_nice(parent, child);
		return;
	}
	raw_spin_lock_irqsave(&slots_lock, irq);
	if (slots[i].boost.task == parent && READ_ONCE(child->policy) == SCHED_NORMAL)
		boost_repair_child(&slots[i], parent, child);
	raw_spin_unlock_irqrestore(&slots_lock, irq);
}

static void on_fork(PFLOW_NEWTASK_ARGS)
{
	boost_restore_child(current, child);
}

static struct pflow_trace forked = {
	"task_newtask", on_fork, "children would inherit boosts; refusing to start",
};

/**
 * fork_setup() - watch for children
 *
 * Context: process, may sleep. Return: 0 or a negative error.
 */
int fork_setup(void)
{
	int err = pflow_trace_attach(&forked);

	return err || forked.point ? err : -ENOENT;
}

/**
 * fork_teardown() - stop watching
 *
 * Context: process, may sleep. The probe runs nowhere any more on return.
 */
void fork_teardown(void)
{
	pflow_trace_detach(&forked);
}
