// SPDX-License-Identifier: GPL-2.0-only
/*
 * The levers: what raises a thread where it stands.
 *
 * Nice counts only between the threads of one scheduling group. Each session is such a group
 * (autogroup), and so is each cgroup with the cpu controller. Between groups nice does nothing, but
 * a real-time class comes before all groups. So "auto" lends nice in the root group, and a
 * real-time class elsewhere, or where nice was tried and the buffer stayed full. A session has a
 * nice level of its own. Only user space can change that (/proc/PID/autogroup), so a program pulls
 * this lever, and the module only tells it for whom and when.
 *
 * Nice is set in the packet path, as it needs raw locks only. The other levers sleep, or must not
 * be pulled with softirqs off. So pf_sched's own thread does that.
 *
 * Context: as each function says.
 */
#include <linux/cgroup.h>
#include <linux/sched/clock.h>
#include <linux/sched/deadline.h>
#include <linux/sched/prio.h>
#include <linux/sched/rt.h>
#include <linux/sched/signal.h>
#include <uapi/linux/sched/types.h>

#include "../common/compat/compat.h"
#include "sched.h"

#define PERIOD_NS	(10 * NSEC_PER_MSEC)	/* of a reservation */
#define PERIOD_LONG_NS	(1200 * NSEC_PER_MSEC)	/* more than RUNTIME_LEAST_NS << 20: share 0 */
#define LEAVE_WITHIN	msecs_to_jiffies(50)	/* a reservation is renewed in a fifth of it */
#define LEAVE_LOOKS	5	/* the thread hardly ever wakes or sleeps at the second */
#define RUNTIME_LEAST_NS	1024	/* the kernel takes no shorter one */
#define NEED_LEAST	5	/* percent of a CPU */

static const char * const names[LEVERS] = {
	[LEVER_NICE] = "nice",
	[LEVER_GROUP] = "group",
	[LEVER_DEADLINE] = "deadline",
	[LEVER_RR] = "rr",
};

/**
 * lever_name() - a lever's name
 * @lever: which
 *
 * Context: any. Return: its name.
 */
const char *lever_name(enum boost_lever lever)
{
	return names[lever];
}

/* Where a thread stands in the scheduler. */
enum place {
	ROOT,		/* beside all groups: nice counts */
	SESSION,	/* in an autogroup */
	CGROUP,		/* in a cgroup with the cpu controller, which may have a cpu.max */
};

/* See common/sockets/priority.c for how a task's group tells an autogroup. */
static enum place task_place(const struct task_struct *task)
{
	enum place place = ROOT;
#if defined(CONFIG_CGROUP_SCHED)
	const struct cgroup_subsys_state *css;

	rcu_read_lock();
	css = task_css((struct task_struct *)task, cpu_cgrp_id);
	if ((const void *)READ_ONCE(task->sched_task_group) != css)
		place = SESSION;
	else if (css->parent)
		place = CGROUP;
	rcu_read_unlock();
#endif
	return place;
}

/* Would a real-time class bring this thread to a limit, or past one, that holds for it? */
static bool task_realtime_barred(const struct task_struct *task, enum place place)
{
	if (READ_ONCE(task->signal->rlim[RLIMIT_RTTIME].rlim_cur) != RLIM_INFINITY)
		return true;
	return place == CGROUP && !sched_knob(SCHED_KNOB_ESCAPE);
}

/* Why round robin was taken where a reservation was asked for; indexes the counters. */
enum lesser {
	LESSER_AFFINITY,	/* it would have to reach all CPUs, and could not change that */
	LESSER_DEBT,
	LESSER_ADMISSION,	/* no bandwidth left to reserve */
	LESSERS,
};

static u64 lesser[LESSERS];	/* written by pf_sched's thread alone */

static const char * const lesser_names[LESSERS] = {
	[LESSER_AFFINITY] = "affinity",
	[LESSER_DEBT] = "debt",
	[LESSER_ADMISSION] = "admission",
};

/*
 * When a thread leaves the class, the kernel keeps its deadline and what is left of its runtime. A
 * child has a copy of both. A thread that comes back before that deadline has only what was left,
 * be it nothing, and then does not run until the deadline. The clock is the run queue's.
 */
static bool deadline_in_debt(const struct sched_dl_entity *dl)
{
	return dl->dl_throttled || (s64)(READ_ONCE(dl->deadline) - local_clock()) > 0;
}

/* Return: why a thread must not have a reservation, or LESSERS. */
static enum lesser task_deadline_barred(const struct task_struct *task)
{
	if (!cpumask_subset(cpu_online_mask, task->cpus_ptr))
		return LESSER_AFFINITY;
	return deadline_in_debt(&task->dl) ? LESSER_DEBT : LESSERS;
}

/**
 * lever_choose() - what to raise a thread by
 * @task: it; the caller holds it or RCU
 * @weak: nice was seen not to be enough
 * @lever: filled in
 *
 * If a real-time class is barred, nice is taken instead, but only where it counts. The same holds
 * for the session's level, if the thread is in no session.
 *
 * Context: any. Return: 0, or -EPERM where none may be used.
 */
int lever_choose(const struct task_struct *task, bool weak, enum boost_lever *lever)
{
	unsigned int asked = sched_knob(SCHED_KNOB_LEVER);
	enum place place = task_place(task);

	*lever = asked ? asked - 1 : place == ROOT && !weak ? LEVER_NICE : LEVER_RR;
	if (lever_above_groups(*lever) && task_realtime_barred(task, place))
		*lever = LEVER_NICE;
	/* Only a thread in an autogroup has a session that can be raised. */
	if (*lever == LEVER_GROUP && place != SESSION)
		*lever = LEVER_NICE;
	/* If nice was asked for by name, it is taken anywhere. */
	if (*lever == LEVER_NICE && place != ROOT && asked != lever_by_name(LEVER_NICE))
		return -EPERM;
	return 0;
}

/**
 * lever_barred() - has a thread come under a limit that bars the lever by which it is raised?
 * @boost: elected
 *
 * Context: any. Return: whether it has.
 */
bool lever_barred(const struct boost *boost)
{
	return lever_above_groups(boost->lever) &&
	       task_realtime_barred(boost->task, task_place(boost->task));
}

/**
 * lever_save() - note how a thread is scheduled
 * @boost: @task is set
 *
 * Context: any.
 */
void lever_save(struct boost *boost)
{
	const struct task_struct *task = boost->task;

	boost->before = (struct boost_before){
		.nice = task_nice(task),
		.reset_on_fork = task->sched_reset_on_fork,
		.timer_slack_ns = task->timer_slack_ns,
		.slice_ns = pflow_custom_slice(task),
	};
}

/**
 * lever_raise_nice() - raise by nice
 * @boost: saved, its levels set
 *
 * Context: any but NMI, no run-queue lock held.
 */
void lever_raise_nice(struct boost *boost)
{
	boost->nice = max(boost->before.nice - (int)boost->levels, MIN_NICE);
	set_user_nice(boost->task, boost->nice);
}

static int task_reserve(struct task_struct *task, u64 runtime_ns, u64 period_ns)
{
	struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = SCHED_DEADLINE,
		.sched_flags = SCHED_FLAG_RESET_ON_FORK,
		.sched_runtime = runtime_ns,
		.sched_deadline = period_ns,
		.sched_period = period_ns,
	};

	return sched_setattr_nocheck(task, &attr);
}

static int lever_set_deadline(struct boost *boost, unsigned int cap)
{
	/* A quarter more than it was seen to use, or all there is. */
	unsigned int share = boost->need ? max(boost->need * 5 / 4, NEED_LEAST) : cap;

	boost->priority = 0;	/* no round robin's is lent */
	boost->runtime_ns = PERIOD_NS * min(share, cap) / 100;
	boost->scant = share < cap;
	return task_reserve(boost->task, boost->runtime_ns, PERIOD_NS);
}

static int lever_set_rr(struct boost *boost, unsigned int priority)
{
	struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = SCHED_RR,
		.sched_priority = priority,
		.sched_flags = SCHED_FLAG_RESET_ON_FORK,
	};

	boost->priority = priority;
	return sched_setattr_nocheck(boost->task, &attr);
}

/**
 * lever_raise_realtime() - raise by a class above all groups
 * @boost: saved, its lever deadline or round robin; deadline may become round robin
 * @cap: percent of a CPU that it may take
 * @priority: its place among those raised by round robin
 *
 * Reset-on-fork is set, since a deadline task cannot fork at all without it.
 * boost_repair_child() gives each child what it would have had.
 *
 * Context: process, may sleep. Return: 0 or a negative error, nothing changed.
 */
int lever_raise_realtime(struct boost *boost, unsigned int cap, unsigned int priority)
{
	if (boost->lever == LEVER_DEADLINE) {
		enum lesser why = task_deadline_barred(boost->task);

		if (why == LESSERS) {
			if (!lever_set_deadline(boost, cap))
				return 0;
			why = LESSER_ADMISSION;
		}
		WRITE_ONCE(lesser[why], lesser[why] + 1);
		boost->lever = LEVER_RR;
	}
	return lever_set_rr(boost, priority);
}

/**
 * lever_reorder() - give a thread another place among those raised by round robin
 * @boost: raised by round robin
 * @priority: the place
 *
 * Context: process, may sleep.
 */
void lever_reorder(struct boost *boost, unsigned int priority)
{
	struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = -1,	/* whichever it has: refused unless real-time */
		.sched_priority = priority,
	};

	if (lever_untouched(boost) && !sched_setattr_nocheck(boost->task, &attr))
		boost->priority = priority;
}

/**
 * lever_set_degree() - raise a thread by more nice levels, or by less
 * @boost: raised by nice
 * @levels: how many
 *
 * Context: any but NMI, no run-queue lock held.
 */
void lever_set_degree(struct boost *boost, unsigned int levels)
{
	if (!lever_untouched(boost))
		return;
	boost->levels = levels;
	lever_raise_nice(boost);
}

/**
 * lever_untouched() - is a thread still as the lever left it?
 * @boost: raised
 *
 * If somebody else sets the very same values, that cannot be seen.
 *
 * Context: any. Return: false where somebody else changed it meanwhile.
 */
bool lever_untouched(const struct boost *boost)
{
	const struct task_struct *task = boost->task;
	unsigned int policy = READ_ONCE(task->policy);

	switch (boost->lever) {
	case LEVER_NICE:
		return policy == SCHED_NORMAL && task_nice(task) == boost->nice;
	case LEVER_GROUP:
		return policy == SCHED_NORMAL;
	case LEVER_DEADLINE:
		return policy == SCHED_DEADLINE &&
		       READ_ONCE(task->dl.dl_runtime) == boost->runtime_ns;
	default:
		return policy == SCHED_RR && READ_ONCE(task->rt_priority) == boost->priority;
	}
}

/**
 * lever_reniced() - did somebody renice a thread while a class above groups raises it?
 * @boost: raised
 *
 * Context: any. Return: whether somebody did.
 */
bool lever_reniced(const struct boost *boost)
{
	return boost->lever != LEVER_NICE && task_nice(boost->task) != boost->before.nice;
}

/* Is it awake, and kept from running until it has paid for what it took; or almost so? */
static bool task_overdrawn(const struct task_struct *task)
{
	return READ_ONCE(task->on_rq) &&
	       (task->dl.dl_throttled ||
		(s64)(READ_ONCE(task->dl.deadline) - local_clock()) > 2 * PERIOD_NS);
}

/*
 * If a deadline task leaves its class while it sleeps, its bandwidth stays reserved for ever (seen
 * on 6.1, 6.12 and 7.2), and a task that runs may fall asleep at any moment. So before it leaves,
 * it gives back all of its bandwidth but so little that it counts as nothing.
 *
 * With so little, a task that has overrun its time, or that begins a period, would be in debt for
 * minutes. So another change comes first, which brings its account up to date. A task that is in
 * debt then, or wakes up just now, keeps a little more. The kernel takes that back when the debt is
 * paid. But if the task falls asleep before, the little more stays reserved. So the task is looked
 * at until two looks say the same. Only what happens between the last look and the change of class
 * is left to chance.
 *
 * The task leaves by way of round robin, as that does not touch nice. The way out of deadline may
 * sleep, and somebody may renice the task meanwhile.
 */
static void lever_leave_deadline(struct boost *boost)
{
	struct task_struct *task = boost->task;
	unsigned int looks = LEAVE_LOOKS;
	bool debt;

	task_reserve(task, boost->runtime_ns - 1, PERIOD_NS);
	do {
		debt = task_overdrawn(task);
		task_reserve(task, debt ? boost->runtime_ns : RUNTIME_LEAST_NS, PERIOD_LONG_NS);
	} while (task_overdrawn(task) != debt && --looks);
	if (!lever_set_rr(boost, 1))
		boost->lever = LEVER_RR;
}

/**
 * lever_holds() - must a thread that is to be restored be left as it is for a moment?
 * @boost: raised
 *
 * A thread that fell asleep with its reservation used up has a timer that renews it. If it leaves
 * its class before, the timer does nothing, and it would never run in that class again.
 *
 * Context: any. Return: whether it must.
 */
bool lever_holds(struct boost *boost)
{
	const struct task_struct *task = boost->task;
	u32 now = jiffies;

	if (boost->lever != LEVER_DEADLINE || !task->dl.dl_throttled ||
	    READ_ONCE(task->on_rq) || !lever_untouched(boost))
		return false;
	if (!boost->held)
		boost->held = pflow_stamp(now);
	return time_before32(now, boost->held + LEAVE_WITHIN);
}

static void lever_leave_realtime(const struct boost *boost)
{
	struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = SCHED_NORMAL,
		.sched_flags = boost->before.reset_on_fork ? SCHED_FLAG_RESET_ON_FORK : 0,
		.sched_runtime = boost->before.slice_ns,
		.sched_nice = task_nice(boost->task),
	};

	/* Refused only of a task that is gone. */
	sched_setattr_nocheck(boost->task, &attr);
}

/*
 * Is a nice level still lent, in whole or in part? The thread's owner may lower it freely. So a
 * level between the one that was lent and the one before may be what he kept of the loan. It is
 * left if he might have set it without the loan, else it is taken back. An administrator's renice
 * into that range cannot be told apart, and is taken back, too.
 */
static bool lever_nice_lent(const struct boost *boost)
{
	int nice = task_nice(boost->task);

	if (nice <= boost->nice || nice >= boost->before.nice)
		return nice == boost->nice;
	return nice_to_rlimit(nice) > task_rlimit(boost->task, RLIMIT_NICE);
}

/*
 * Is a real-time class still lent, in whole or in part? As with nice, the owner may lower the
 * priority freely, and one that he could not have set without the loan is still the loan.
 */
static bool lever_realtime_lent(const struct boost *boost)
{
	const struct task_struct *task = boost->task;
	unsigned int policy = READ_ONCE(task->policy), priority = READ_ONCE(task->rt_priority);

	if (lever_untouched(boost))
		return true;
	return (policy == SCHED_RR || policy == SCHED_FIFO) && priority <= boost->priority &&
	       priority > task_rlimit(task, RLIMIT_RTPRIO);
}

/* The policy tells. The priority does not: a lock that a real-time thread waits for lends one. */
static bool task_has_realtime(const struct task_struct *task)
{
	unsigned int policy = READ_ONCE(task->policy);

	return policy == SCHED_FIFO || policy == SCHED_RR || policy == SCHED_DEADLINE;
}

/**
 * lever_restore() - schedule a thread as before
 * @boost: raised
 *
 * What somebody else set meanwhile stays: another class, or a nice level, even one that had no
 * effect beside a real-time class. All else that the boost did is undone even then.
 *
 * Context: process, may sleep.
 */
void lever_restore(struct boost *boost)
{
	struct task_struct *task = boost->task;

	if (boost->lever == LEVER_NICE) {
		if (lever_nice_lent(boost))
			set_user_nice(task, boost->before.nice);
		return;
	}
	if (!lever_above_groups(boost->lever))
		return;
	if (boost->lever == LEVER_DEADLINE && lever_untouched(boost))
		lever_leave_deadline(boost);
	if (lever_realtime_lent(boost))
		lever_leave_realtime(boost);
	/* A thread that comes back from a real-time class has been given the default. */
	if (!task_has_realtime(task) && task->timer_slack_ns == task->default_timer_slack_ns)
		task->timer_slack_ns = boost->before.timer_slack_ns;
}

/**
 * lever_status() - where a lesser lever was taken, for people
 * @m: where to
 *
 * Context: process.
 */
void lever_status(struct seq_file *m)
{
	u64 affinity = READ_ONCE(lesser[LESSER_AFFINITY]), debt = READ_ONCE(lesser[LESSER_DEBT]),
	    admission = READ_ONCE(lesser[LESSER_ADMISSION]);

	if (affinity || debt || admission)
		seq_printf(m, "no deadline: %llu times for affinity, %llu so soon after the last, %llu for want of bandwidth; round robin was taken\n",
			   affinity, debt, admission);
}

/**
 * lever_metrics() - where a lesser lever was taken, for machines
 * @m: where to
 *
 * Context: process.
 */
void lever_metrics(struct seq_file *m)
{
	unsigned int i;

	seq_puts(m, "# TYPE packetflow_sched_lesser counter\n"
		    "# HELP packetflow_sched_lesser Reservations that could not be had; round robin was taken.\n");
	for (i = 0; i < LESSERS; i++)
		seq_printf(m, "packetflow_sched_lesser_total{reason=\"%s\"} %llu\n",
			   lesser_names[i], READ_ONCE(lesser[i]));
}
