// SPDX-License-Identifier: GPL-2.0-only
/*
 * The election: of the threads whose buffer fills, the most important few are
 * raised, for as long as it fills and a while longer (section 3.2, conditions (a) and (b)).
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
#define AWAKE		(PFLOW_ONE / 64)	/* who runs and waits for less is in nobody's way */
#define BUSY		(PFLOW_ONE / 2)		/* who does for less can spare some of its CPU */
#define UNSERVED_FOR	HZ			/* who reads nothing for longer does not want to */
#define UNSERVED_SEEN	max(HZ / 10, 1)
#define UNSERVED_AGAIN	(10 * HZ)

/**
 * struct unserved - a socket that fills, and nobody is seen receiving there
 * @sk: it; compared, never followed
 * @user: whose it is, pflow_sock_user()
 * @rank: of who holds it
 * @begun: stamp of when it was found first of a socket of this user
 * @since: the same of this socket, and earlier by as long as others of the user counted
 * @at: stamp of when it was found last
 *
 * Its receiver may be kept from the CPU, and so was never seen. By the CPU on which its packets
 * arrive; under slots_lock. All sockets of one user together count for %UNSERVED_FOR in
 * %UNSERVED_AGAIN: who opens one such socket after the other would otherwise keep others from being
 * raised.
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
 * The thread that received on this socket lately, if it is still there. Where nobody
 * was seen receiving, a process of one thread that has the socket open: there it may
 * be too late to wait for its next receive call.
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

/* Of several the most important counts. Under RCU. */
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

/* Raised, and that is enough: its buffer fills no longer. */
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

/* Is it harmed if a thread that is raised comes to its CPU? */
static bool thread_in_the_way(const struct pflow_thread *other, const struct task_struct *task,
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
 * That is a receiver that is not raised, or raised and not helped by it. Who is raised runs before
 * all that are not, and takes from all that are. So nobody is raised past the one, nor beside the
 * other. The scheduler moves who is raised to other CPUs, also to one that is taken; then the boost
 * ends, and as long as that is remembered somebody more important counts there who needs most of
 * it. Without having been moved there a thread is in nobody's way on another CPU: whoever keeps
 * one busy would otherwise keep all from being raised who might run there. Who holds a socket that
 * fills, and was not seen receiving yet, may be kept from it by just those who are raised.
 *
 * Context: under slots_lock; the caller holds the task. Return: whether somebody does.
 */
bool elect_outranked(const struct task_struct *task, u8 rank, u64 met)
{
	unsigned int i;

	if (unserved_outranks(task_cpu(task), rank))
		return true;
	for (i = 0; i < PFLOW_THREADS; i++) {
		const struct pflow_thread *other = &pflow_threads[i];

		if (READ_ONCE(other->pid) && READ_ONCE(other->rank) > rank &&
		    thread_in_the_way(other, task, met) &&
		    (pflow_lately(READ_ONCE(other->datagrams_at)) ||
		     pflow_lately(READ_ONCE(other->streams_at))) &&
		    !thread_is_helped(READ_ONCE(other->pid)))
			return true;
	}
	return false;
}

/*
 * For how long a thread is left alone after its last boost. One that did not run although it was
 * raised waits for something else than its turn. A lever that was not enough and the next one are
 * one change.
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
 * Has the CPU too little left for it? Whose boost ended as the budget was spent waits for a tenth
 * of it. It may have gone to another CPU meanwhile; raised, it would go back at once to that one.
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

/* The slot is a thread's from here on. What that took until now is not of its boost. */
static void slot_take(struct slot *slot, struct task_struct *task, const struct asker *asker)
{
	lockdep_assert_held(&slots_lock);
	/* A ghost's own slot holds its task. */
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
	slot->boost.levels = lever_above_groups(lever) ? 0 : field_levels(others, slot->rank);
	lever_save(&slot->boost);
	if (lever == LEVER_NICE)
		lever_nice(&slot->boost);
	slot_set_state(slot, lever_above_groups(lever) ? SLOT_CHOSEN : SLOT_RAISED);
	slot_mark_socket(slot, true);
	trace_boost(&slot->boost, slot->rank);
	slot_counts.elected++;
	boost_wake();
}

/* Under RCU. Return: why not, or -1. */
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

/* Who has no place, or is not known yet, may be raised a moment later. */
static bool refusal_lasts(int refusal)
{
	return refusal == REFUSED_OUTRANKED || refusal == REFUSED_VAIN ||
	       refusal == REFUSED_CLASS || refusal == REFUSED_TOP || refusal == REFUSED_EXEMPT ||
	       refusal == REFUSED_LEVER;
}

/**
 * boost_consider() - a socket's buffer is fuller than the threshold
 * @sk: it; the caller holds it
 *
 * Context: softirq, or process with softirqs off; no run-queue lock held.
 * Return: what came of it; %CONSIDERED_NOT where somebody else considers just now.
 */
enum considered boost_consider(struct sock *sk)
{
	enum considered considered = CONSIDERED_DONE;
	struct pflow_sock *entry;
	unsigned long irq;
	int refusal;

	rcu_read_lock();
	entry = pflow_sock_find(sk);
	/* The thread looks after who is raised already. */
	if (!entry || test_bit(PFLOW_SOCK_PP, &entry->flags))
		goto out;
	/* Nobody waits here. */
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
