// SPDX-License-Identifier: GPL-2.0-only
/*
 * The election: of the threads whose buffer fills, the most important few are raised, for as long
 * as it fills and a while longer (the paper's section 3.2, conditions (a) and (b)).
 *
 * A packet that finds its socket's buffer too full comes here by elect_consider(). The receiver is
 * looked up. It is refused if it may not be raised, if a more important one would suffer from that,
 * or if there is no place or CPU time for it. Otherwise it gets a slot, and nice is lent at once.
 * All other levers are left to pf_sched's thread (boost.c).
 *
 * Context: softirq, the packet path, under slots_lock.
 */
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/sched/task.h>

#include "../common/compat/compat.h"
#include "slots.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

#define RECEIVED_FOR	(2 * PFLOW_HOLD)	/* they are looked at for a part of each second */

/* For what part of the time a receiver runs or waits. With less it does not mind ... */
#define AWAKE		(PFLOW_ONE / 64)	/* ... a thread that is raised on its CPU */
#define BUSY		(PFLOW_ONE / 2)		/* ... one that may be moved there */

/* In jiffies; see struct unserved. */
#define UNSERVED_FOR	HZ			/* who reads nothing for longer does not want to */
#define UNSERVED_SEEN	max(HZ / 10, 1)		/* a socket not met for longer fills no more */
#define UNSERVED_AGAIN	(10 * HZ)		/* then the user's sockets count anew */

/**
 * struct unserved - a socket that fills, and nobody is seen receiving there
 * @sk: it; compared, never followed
 * @user: whose it is, pflow_sock_user()
 * @rank: of who holds it
 * @begun: stamp of when it was found first of a socket of this user
 * @since: stamp of when this socket was found first, less the time for which others of the user
 *	counted
 * @at: stamp of when it was found last
 *
 * Its receiver may be kept from the CPU, and so was never seen. There is one for each CPU: of a
 * socket whose packets arrive there. All sockets of one user together count for %UNSERVED_FOR in
 * %UNSERVED_AGAIN. Otherwise a user who opens one such socket after the other would keep others
 * from being raised. Protected by slots_lock.
 */
struct unserved {
	const struct sock *sk;
	u32 user;
	u8 rank;
	u32 begun;
	u32 since;
	u32 at;
};

static DEFINE_PER_CPU(struct unserved, unserved);

/**
 * elect_hold_until() - how long a boost lasts that begins now, or is needed still
 *
 * Context: any. Return: jiffies at which it ends.
 */
u32 elect_hold_until(void)
{
	return (u32)jiffies + max(msecs_to_jiffies(sched_knob(SCHED_KNOB_HOLD)), 1UL);
}

/*
 * The thread that received on this socket lately, if it is still there. If nobody was seen
 * receiving, it is the process that has the socket open, provided that it has one thread only. To
 * wait for its next receive call may be too late.
 */
static struct task_struct *entry_receiver(const struct pflow_sock *entry)
{
	bool lately = READ_ONCE(entry->learnt) == PFLOW_RECEIVES &&
		      pflow_recent(READ_ONCE(entry->last_received), RECEIVED_FOR);
	struct task_struct *task;

	if (!lately)
		pflow_load_learn();
	if (!lately && READ_ONCE(entry->learnt) == PFLOW_RECEIVES)
		return NULL;
	task = pid_task(find_pid_ns(READ_ONCE(entry->pid), &init_pid_ns), PIDTYPE_PID);
	if (!task || pflow_task_born(task) != READ_ONCE(entry->born) ||
	    (task_flags(task) & (PF_EXITING | PF_KTHREAD)) || (!lately && get_nr_threads(task) > 1))
		return NULL;
	return task;
}

static bool unserved_counts(const struct unserved *unserved)
{
	return pflow_within(unserved->at, UNSERVED_SEEN) &&
	       pflow_within(unserved->since, UNSERVED_FOR);
}

/* Note a socket of which nobody is seen receiving. The most important one counts. Under RCU. */
static void unserved_note(const struct sock *sk, const struct pflow_sock *entry)
{
	struct unserved *here = this_cpu_ptr(&unserved);
	u8 rank = READ_ONCE(entry->rank);

	lockdep_assert_held(&slots_lock);
	if (here->sk != sk) {
		u32 user = pflow_sock_user(entry, sk);

		if (unserved_counts(here) && here->rank >= rank)
			return;
		if (here->user == user && pflow_within(here->begun, UNSERVED_AGAIN)) {
			here->since = pflow_stamp((u32)jiffies - (here->at - here->since));
		} else {
			here->begun = pflow_stamp_now();
			here->since = here->begun;
		}
		here->user = user;
		here->sk = sk;
	}
	here->rank = rank;
	here->at = pflow_stamp_now();
}

static bool unserved_outranks(int cpu, u8 rank)
{
	const struct unserved *there = per_cpu_ptr(&unserved, cpu);

	lockdep_assert_held(&slots_lock);
	return there->rank > rank && unserved_counts(there);
}

/* Is it raised, and is that enough, so that its buffer fills no longer? */
static bool thread_is_helped(pid_t pid)
{
	unsigned int i;

	for (i = 0; i < SLOTS; i++)
		if (slot_is_active(&slots[i]) && slots[i].pid == pid && !slots[i].full_ticks)
			return true;
	return false;
}

/**
 * elect_met() - a CPU in the set of those where a thread was in somebody's way
 * @cpu: it
 *
 * Context: any. Return: its bit; CPUs whose numbers differ by 64 share one.
 */
u64 elect_met(int cpu)
{
	return BIT_ULL(cpu % BITS_PER_LONG_LONG);
}

/* Is the other one harmed if this thread is raised? */
static bool thread_harmed_by(const struct pflow_thread *other, const struct task_struct *task,
			     u64 met)
{
	unsigned int cpu = READ_ONCE(other->cpu);
	u32 awake = READ_ONCE(other->run) + READ_ONCE(other->wait);

	if (cpu == task_cpu(task))
		return awake > AWAKE;
	return (met & elect_met(cpu)) && awake > BUSY && cpumask_test_cpu(cpu, &task->cpus_mask);
}

/**
 * elect_outranked() - does somebody more important have too little where a thread may run?
 * @task: the thread, which is raised or might be
 * @rank: its rank
 * @met: CPUs where it was in somebody's way, elect_met()
 *
 * Such a receiver is not raised, or is raised and not helped by that. A raised thread runs before
 * all that are not raised, and takes CPU time from those that are. So none is raised past such a
 * receiver.
 *
 * The receiver counts if it is on the thread's CPU. The scheduler may move a raised thread to
 * another CPU, also to one that is taken. Then the boost ends. As long as that is remembered, a
 * more important receiver that needs most of that CPU counts, too. On a CPU to which the thread
 * was never moved no receiver counts. Otherwise one that keeps a CPU busy would keep all threads
 * from being raised that may run there.
 *
 * A thread that holds a socket that fills, and was not seen receiving yet, counts as well: the very
 * threads that are raised may keep it from receiving.
 *
 * Context: under slots_lock; the caller holds the task. Return: whether somebody does.
 */
bool elect_outranked(const struct task_struct *task, u8 rank, u64 met)
{
	unsigned int i;

	lockdep_assert_held(&slots_lock);
	if (unserved_outranks(task_cpu(task), rank))
		return true;
	for (i = 0; i < PFLOW_THREADS; i++) {
		const struct pflow_thread *other = &pflow_threads[i];

		if (READ_ONCE(other->pid) && READ_ONCE(other->rank) > rank &&
		    thread_harmed_by(other, task, met) && !thread_is_helped(READ_ONCE(other->pid)))
			return true;
	}
	return false;
}

/*
 * For how long a thread is left alone after its last boost, in jiffies. A thread that did not run
 * although it was raised waits for something else than its turn, so that time is long. If a lever
 * was not enough, the next one follows at once, since both are one change.
 */
static u32 slot_apart(const struct slot *last)
{
	if (last->end == END_WEAK)
		return 0;
	if (last->end == END_EXPIRED && !last->boosted_ns)
		return HZ;
	return msecs_to_jiffies(sched_knob(SCHED_KNOB_APART));
}

/*
 * Has the CPU too little left for it? If its last boost ended because the budget was spent, a tenth
 * of that has to be left, also on the CPU where it was spent. The thread may have left that CPU,
 * but would go back there at once if it were raised.
 */
static bool asker_capped(const struct asker *asker, const struct slot *last)
{
	struct asker there = *asker;

	if (!last || last->end != END_CAP)
		return share_spent(asker, 0);
	there.cpu = last->spent_cpu;
	return share_spent(asker, 10) || share_spent(&there, 10);
}

/* May this thread be raised, and by what? Under RCU. Return: why not, or -1. */
static int task_may_be_raised(const struct task_struct *task, const struct asker *asker,
			      const struct slot *last, enum boost_lever *lever)
{
	lockdep_assert_held(&slots_lock);
	if (READ_ONCE(task->policy) != SCHED_NORMAL)
		return REFUSED_CLASS;
	if (asker->rank == PFLOW_RANK_RT_BASE)
		return REFUSED_TOP;
	if (boost_exempt(task))
		return REFUSED_EXEMPT;
	if (last && time_before32((u32)jiffies, last->changed + slot_apart(last)))
		return REFUSED_APART;
	if (last && trial_is_vain(last))
		return REFUSED_VAIN;
	if (elect_outranked(task, asker->rank, last ? last->met : 0))
		return REFUSED_OUTRANKED;
	if (asker_capped(asker, last))
		return REFUSED_CAP;
	if (lever_choose(task, last && last->boost.weak, lever))
		return REFUSED_LEVER;
	return -1;
}

/* Give the slot to a thread. What the thread took until now is not charged to this boost. */
static void slot_take(struct slot *slot, struct task_struct *task, const struct asker *asker)
{
	lockdep_assert_held(&slots_lock);
	/* A slot that has a task is the ghost of this thread. */
	if (slot->boost.task)
		share_charge(slot);
	slot->user = asker->user;
	slot->rank = asker->rank;
	slot->home = asker->cpu;
	if (slot->boost.task)
		return;
	slot->met = 0;
	slot->boost = (struct boost){ .task = get_task_struct(task) };
	share_begin(slot);
}

static void slot_begin_boost(struct slot *slot, struct task_struct *task,
			     const struct pflow_sock *entry, struct sock *sk,
			     enum boost_lever lever, const struct field *others)
{
	lockdep_assert_held(&slots_lock);
	slot->boost.lever = lever;
	slot->boost.held = 0;
	slot->cookie = entry->cookie;
	slot->sk = sk;
	slot->until = elect_hold_until();
	slot->also = false;
	slot->changed = jiffies;
	slot->ordered = jiffies;
	slot->exec_id = READ_ONCE(task->self_exec_id);
	slot->pid = task->pid;
	slot->boosted_ns = 0;
	slot->ticks = 0;
	slot->full_ticks = 0;
	slot->other_ticks = 0;
	trial_begin(slot);
	lend_begin(slot);
	slot->boost.levels = lever_above_groups(lever) ? 0 : field_levels(others, slot->rank);
	lever_save(&slot->boost);
	if (lever == LEVER_NICE)
		lever_raise_nice(&slot->boost);
	slot_set_state(slot, lever_above_groups(lever) ? SLOT_CHOSEN : SLOT_RAISED);
	slot_mark_socket(slot, true);
	trace_boost(&slot->boost, slot->rank);
	slot_counts.elected++;
	boost_wake();
}

/* Elect the receiver of a socket, if it may be raised. Under RCU. Return: why not, or -1. */
static int elect_receiver(struct pflow_sock *entry, struct sock *sk)
{
	struct task_struct *task = entry_receiver(entry);
	enum boost_lever lever;
	struct asker asker;
	struct field others;
	struct slot *slot;
	int refusal;

	lockdep_assert_held(&slots_lock);
	if (!task) {
		unserved_note(sk, entry);
		return REFUSED_UNKNOWN;
	}
	slot = slot_find(task);
	if (slot && slot->state != SLOT_GHOST) {
		slot->also = true;
		return -1;
	}
	asker.user = pflow_task_user(task);
	asker.rank = pflow_task_rank(task);
	asker.cpu = task_cpu(task);
	refusal = task_may_be_raised(task, &asker, slot, &lever);
	if (refusal >= 0)
		return refusal;
	slot = slot ?: slot_find_free(asker.user);
	field_gather(&others, NULL, asker.cpu);
	if (boost_stopping() || !slot || !place_for(&others, &asker))
		return REFUSED_PLACE;
	if (sched_knob(SCHED_KNOB_MODE) == SCHED_MODE_OBSERVE) {
		slot_counts.observed++;
		return -1;
	}
	if (pflow_rank_pin(task, asker.rank))
		return REFUSED_PLACE;
	if (!refcount_inc_not_zero(&sk->sk_refcnt)) {
		pflow_rank_unpin(task);	/* being closed: UDP delivers under RCU alone */
		return REFUSED_UNKNOWN;
	}
	slot_take(slot, task, &asker);
	slot_begin_boost(slot, task, entry, sk, lever, &others);
	return -1;
}

/* One that has no place, or is not known yet, may be raised a moment later. */
static bool refusal_lasts(int refusal)
{
	return refusal == REFUSED_OUTRANKED || refusal == REFUSED_VAIN ||
	       refusal == REFUSED_CLASS || refusal == REFUSED_TOP || refusal == REFUSED_EXEMPT ||
	       refusal == REFUSED_LEVER;
}

/**
 * elect_consider() - a socket's buffer is fuller than the threshold
 * @sk: it; the caller holds it
 *
 * Context: softirq, or process with softirqs off; no run-queue lock held.
 * Return: what came of it; %CONSIDERED_NOT where somebody else considers just now.
 */
enum considered elect_consider(struct sock *sk)
{
	enum considered considered = CONSIDERED_DONE;
	struct pflow_sock *entry;
	unsigned long irq;
	int refusal;

	rcu_read_lock();
	entry = pflow_sock_find(sk);
	/* If its receiver is raised already, pf_sched's thread looks after it. */
	if (!entry || test_bit(PFLOW_SOCK_PP, &entry->flags))
		goto out;
	/* The packet path does not wait for a lock. */
	if (!raw_spin_trylock_irqsave(&slots_lock, irq)) {
		considered = CONSIDERED_NOT;
		goto out;
	}
	refusal = elect_receiver(entry, sk);
	if (refusal >= 0)
		slot_counts.refused[refusal]++;
	if (refusal_lasts(refusal))
		considered = CONSIDERED_REFUSED;
	raw_spin_unlock_irqrestore(&slots_lock, irq);
out:
	rcu_read_unlock();
	return considered;
}
