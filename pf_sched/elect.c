// SPDX-License-Identifier: GPL-2.0-only
/*
 * The election: of the threads whose buffer fills, the most important few are
 * raised, for as long as it fills and a while longer.
 *
 * A boost lives in a slot. The packet path takes a free slot and, where nice is
 * the lever, raises at once; everything else is done by one thread of pf_sched,
 * of real-time priority so that those whom it raised cannot keep it from its work:
 *
 *	FREE -> CHOSEN -> RAISED -> OVER -> GHOST -> FREE
 *	  packet path  thread  both   thread   thread
 *
 * A slot changes state under one raw lock, which is taken only for a socket that
 * is over the threshold and not elected yet, once a jiffy for each at most. A slot
 * holds its task from CHOSEN to FREE, so a reused process id is never taken for
 * it, and its socket as long as it is raised, to see whether it still fills: a
 * closed one is let go within a tick. A ghost remembers for a while whom the boost
 * was for: the parent of a child still under way, how much it ran, and when it was
 * changed last.
 *
 * What the raised take of each CPU is counted, ghosts included, against a budget;
 * when it is spent their boosts end, those of the less important first.
 */
#include <linux/delay.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/sched/task.h>

#include "../common/compat/compat.h"
#include "sched.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

#define SLOTS		32
#define SLOTS_SPARE	8	/* ghosts make room below that */
#define TICK_MS		10
#define TICK_IDLE_MS	250	/* only ghosts are left */
#define RECEIVED_FOR	(2 * PFLOW_HOLD)	/* receive calls are looked at every 5 s */
#define GHOST_FOR	(10 * HZ)
#define GHOST_LEAST	HZ		/* even if room is wanted */
#define UNDER_WAY_MS	100	/* a fork is seldom longer */
#define ADAPT		HZ	/* between two steps of an automatic number of elected */
#define KNOWN_NEED	5	/* ticks of a boost that tell how much a thread needs */
#define WEAK_AFTER	5	/* ticks in which the buffer stayed full although raised */
#define VAIN_AFTER	100	/* the same, where others want the place */
#define OTHER_AFTER	10	/* ticks in which somebody else was the receiver */
#define AWAKE		(PFLOW_ONE / 64)	/* who runs and waits for less is in nobody's way */

enum state {
	FREE,
	CHOSEN,
	RAISED,
	OVER,
	GHOST,
};

/* Why a worthy thread was not elected; indexes the counters. */
enum refusal {
	REFUSED_CLASS,		/* real-time, deadline, batch or idle already */
	REFUSED_TOP,		/* the paper's (a): nothing above it to be raised to */
	REFUSED_EXEMPT,
	REFUSED_PLACE,		/* the paper's N */
	REFUSED_CAP,
	REFUSED_LEVER,
	REFUSED_APART,
	REFUSED_OUTRANKED,	/* somebody more important there is not raised, or in vain */
	REFUSED_UNKNOWN,	/* who receives was not seen lately */
	REFUSALS,
};

/**
 * struct slot - a boost and its life
 * @state: see above
 * @boost: the thread, and how it is raised
 * @sk: the socket that fills, held from CHOSEN to OVER
 * @cookie: its cookie
 * @rank: of the thread before
 * @until: jiffies at which the boost ends unless the socket, or another, still fills
 * @also: another socket of the thread's own was full since the last tick
 * @changed: jiffies of the last change of the thread
 * @ordered: jiffies of its last change of place among those raised
 * @exec_id: of the program that it ran when elected
 * @pid: the thread's id then
 * @end: why it is over
 * @ran_ns: CPU time of the thread at the last tick
 * @stolen_ns: of it, time of softirqs on top of the thread
 * @cpu: where the thread was at the last tick
 * @boosted_ns: CPU time it took in this boost
 * @ticks: of this boost so far
 * @full_ticks: ticks in a row in which the buffer was over the threshold
 * @other_ticks: ticks in a row in which somebody else received on the socket
 */
struct slot {
	enum state state;
	struct boost boost;
	struct sock *sk;
	u64 cookie;
	u8 rank;
	u32 until;
	bool also;
	u32 changed;
	u32 ordered;
	u32 exec_id;
	pid_t pid;
	enum boost_end end;
	u64 ran_ns;
	u64 stolen_ns;
	int cpu;
	u64 boosted_ns;
	unsigned int ticks;
	unsigned int full_ticks;
	unsigned int other_ticks;
};

static struct slot slots[SLOTS];
static DEFINE_RAW_SPINLOCK(slots_lock);
static u64 elected, observed;
static u64 refused[REFUSALS], ended[ENDS];
static bool place_wanted, budget_spent;
static unsigned int most = 2;	/* where their number is automatic */
static u32 adapted;		/* jiffies */
static bool stopping;
static DEFINE_PER_CPU(s32, budget_us);
static DEFINE_PER_CPU(atomic_t, used_us);	/* of it; added to under the lock, taken without */

static struct kthread_worker *thread;
static void tick(struct kthread_work *work);
static struct kthread_work tick_work;
static struct hrtimer tick_timer;
static u64 tick_at_ns;

static const char * const refusal_names[REFUSALS] = {
	[REFUSED_CLASS] = "class",
	[REFUSED_TOP] = "top",
	[REFUSED_EXEMPT] = "exempt",
	[REFUSED_PLACE] = "place",
	[REFUSED_CAP] = "cap",
	[REFUSED_LEVER] = "lever",
	[REFUSED_APART] = "apart",
	[REFUSED_OUTRANKED] = "outranked",
	[REFUSED_UNKNOWN] = "unknown",
};

static const char * const end_names[ENDS] = {
	[END_EXPIRED] = "expired",
	[END_CLOSED] = "closed",
	[END_EXITED] = "exited",
	[END_EXEC] = "exec",
	[END_OTHER] = "other",
	[END_BARRED] = "barred",
	[END_VAIN] = "vain",
	[END_DISPLACED] = "displaced",
	[END_STOPPED] = "stopped",
	[END_CHANGED] = "changed",
	[END_CAP] = "cap",
	[END_WEAK] = "weak",
};

/* What was written to a slot before its state is seen by who sees the state without the lock. */
static void set_state(struct slot *slot, enum state state)
{
	smp_store_release(&slot->state, state);	/* pairs with state_of() */
}

static enum state state_of(const struct slot *slot)
{
	return smp_load_acquire(&slot->state);	/* pairs with set_state() */
}

static bool active(const struct slot *slot)
{
	enum state state = READ_ONCE(slot->state);

	return state == CHOSEN || state == RAISED;
}

static u32 hold_until(void)
{
	return (u32)jiffies + max(msecs_to_jiffies(sched_knob(SCHED_KNOB_HOLD)), 1UL);
}

/* Safe in any context but NMI. */
static void kick(void)
{
	kthread_queue_work(thread, &tick_work);
}

/* In hard interrupt: a raised thread can keep softirqs, and their timers, waiting. */
static enum hrtimer_restart on_timer(struct hrtimer *timer)
{
	kick();
	return HRTIMER_NORESTART;
}

static void set_elected(const struct slot *slot, bool on)
{
	struct pflow_sock *entry;

	rcu_read_lock();
	entry = pflow_sock_find_as(slot->sk, slot->cookie);
	if (entry && on)
		set_bit(PFLOW_SOCK_PP, &entry->flags);
	else if (entry)
		clear_bit(PFLOW_SOCK_PP, &entry->flags);
	rcu_read_unlock();
}

/* Under the lock. */
static void finish(struct slot *slot, enum boost_end end)
{
	if (slot->state == CHOSEN)
		slot->boost.lever = LEVERS;	/* never pulled */
	slot->end = end;
	set_state(slot, OVER);
}

static unsigned int places(void)
{
	return sched_knob(SCHED_KNOB_ELECT) ?: READ_ONCE(most);
}

/* The elected, but for one of them; their ranks are what the policy goes by. */
struct field {
	unsigned int number;
	struct slot *slots[SLOTS];
	u8 ranks[SLOTS];
};

static void gather(struct field *field, const struct slot *except)
{
	unsigned int i;

	field->number = 0;
	for (i = 0; i < SLOTS; i++) {
		if (!active(&slots[i]) || &slots[i] == except)
			continue;
		field->slots[field->number] = &slots[i];
		field->ranks[field->number++] = slots[i].rank;
	}
}

/*
 * Is there a place for a thread of this rank? If all are taken, the least
 * important one that is less important than it, and had its hold, makes room for
 * the next time.
 */
static bool place_for(const struct field *field, u8 rank)
{
	struct slot *least;
	int who;

	if (field->number < places())
		return true;
	place_wanted = true;
	who = pflow_least(field->ranks, field->number, rank);
	if (who < 0)
		return false;
	least = field->slots[who];
	if (least->state == RAISED &&
	    time_after32((u32)jiffies, least->changed +
			 msecs_to_jiffies(sched_knob(SCHED_KNOB_HOLD)))) {
		finish(least, END_DISPLACED);
		kick();
	}
	return false;
}

/* There may be fewer places than there were. Whoever is elected ranks below U8_MAX. */
static void displace(void)
{
	struct field field;

	for (gather(&field, NULL); field.number > places(); gather(&field, NULL))
		finish(field.slots[pflow_least(field.ranks, field.number, U8_MAX)],
		       END_DISPLACED);
}

static unsigned int levels_of(const struct field *others, u8 rank)
{
	return pflow_boost_levels(sched_knob(SCHED_KNOB_LEVELS),
				  pflow_place(others->ranks, others->number, rank),
				  others->number + 1);
}

/* A thread has one slot at most; NULL finds a free one. */
static struct slot *slot_of(const struct task_struct *task)
{
	unsigned int i;

	for (i = 0; i < SLOTS; i++)
		if (slots[i].boost.task == task)
			return &slots[i];
	return NULL;
}

static unsigned int flags_of(const struct task_struct *task)
{
	/*
	 * Only the task itself writes them, plainly, and for many reasons. One that has just
	 * begun to exit is found out by the next tick.
	 */
	return data_race(READ_ONCE(task->flags));
}

/*
 * The thread that received on this socket lately, if it is still there. Where nobody
 * was seen receiving, a process of one thread that has the socket open: there it may
 * be too late to wait for its next receive call.
 */
static struct task_struct *receiver(const struct pflow_sock *entry)
{
	bool lately = READ_ONCE(entry->learnt) == PFLOW_RECEIVES &&
		      time_before32((u32)jiffies, READ_ONCE(entry->last_received) + RECEIVED_FOR);
	struct task_struct *task;

	if (!lately)
		pflow_load_learn();
	if (!lately && READ_ONCE(entry->learnt) == PFLOW_RECEIVES)
		return NULL;
	task = pid_task(find_pid_ns(READ_ONCE(entry->pid), &init_pid_ns), PIDTYPE_PID);
	if (!task || pflow_task_born(task) != READ_ONCE(entry->born) ||
	    (flags_of(task) & (PF_EXITING | PF_KTHREAD)) || (!lately && get_nr_threads(task) > 1))
		return NULL;
	return task;
}

/* Raised, and that is enough: its buffer fills no longer. */
static bool helped(pid_t pid)
{
	unsigned int i;

	for (i = 0; i < SLOTS; i++)
		if (active(&slots[i]) && slots[i].pid == pid && !slots[i].full_ticks)
			return true;
	return false;
}

/*
 * Does somebody more important receive on that CPU by its own means, or have too little although
 * raised? Who is raised runs before all that are not, and takes from all that are; so nobody is
 * raised past the one, nor beside the other.
 */
static bool outranked(int cpu, u8 rank)
{
	unsigned int i;

	for (i = 0; i < PFLOW_THREADS; i++) {
		const struct pflow_thread *other = &pflow_threads[i];

		if (pflow_thread_on(other, cpu) && READ_ONCE(other->rank) > rank &&
		    READ_ONCE(other->run) + READ_ONCE(other->wait) > AWAKE &&
		    (pflow_lately(READ_ONCE(other->datagrams_at)) ||
		     pflow_lately(READ_ONCE(other->streams_at))) &&
		    !helped(READ_ONCE(other->pid)))
			return true;
	}
	return false;
}

/* Percent of a full budget. */
static s32 budget_part(unsigned int percent)
{
	return PFLOW_BUDGET_US / 10000 * sched_knob(SCHED_KNOB_CAP) * percent;
}

/* Of a CPU's budget, what is left to whoever is more important and was raised lately. */
static s32 left_to_others(u8 rank, int cpu)
{
	unsigned int i;

	for (i = 0; i < SLOTS; i++)
		if (slots[i].state != FREE && slots[i].cpu == cpu && slots[i].rank > rank)
			return budget_part(50);
	return 0;
}

/*
 * One that did not run although raised waits for something else than its turn, and for
 * one that others had to make room for it is their turn. From a lever that was not
 * enough to the next is one change.
 */
static u32 apart_from(const struct slot *last)
{
	if (last->end == END_WEAK)
		return 0;
	if (last->end == END_VAIN || (last->end == END_EXPIRED && !last->boosted_ns))
		return HZ;
	return msecs_to_jiffies(sched_knob(SCHED_KNOB_APART));
}

/* May this thread be raised, and by what? Under the lock and RCU. */
static int worthy(const struct task_struct *task, u8 rank, const struct slot *last,
		  enum boost_lever *lever)
{
	bool capped = last && last->end == END_CAP;
	int cpu = task_cpu(task);

	if (READ_ONCE(task->policy) != SCHED_NORMAL)
		return REFUSED_CLASS;
	if (rank == PFLOW_RANK_RT_BASE)
		return REFUSED_TOP;
	if (boost_exempt(task))
		return REFUSED_EXEMPT;
	if (last && time_before32((u32)jiffies, last->changed + apart_from(last)))
		return REFUSED_APART;
	if (outranked(cpu, rank))
		return REFUSED_OUTRANKED;
	/* Whose boost ended as the budget was spent waits for a tenth of it. */
	if (READ_ONCE(per_cpu(budget_us, cpu)) <
	    left_to_others(rank, cpu) + (capped ? budget_part(10) : 0))
		return REFUSED_CAP;
	if (lever_choose(task, last && last->boost.weak, lever))
		return REFUSED_LEVER;
	return -1;
}

/* For how long softirqs have received on top of a thread, as far as that is measured. */
static u64 stolen_from(const struct task_struct *task)
{
	const struct pflow_thread *thread = pflow_thread_find(task->pid);

	return thread ? READ_ONCE(thread->stolen_ns) : 0;
}

/*
 * The scheduler takes a softirq's time for that of the thread underneath, which can be most of it.
 *
 * Under the lock. Return: what a thread took itself since it was last looked at, in ns.
 */
static u64 charge_slot(struct slot *slot)
{
	u64 ran_ns = READ_ONCE(slot->boost.task->se.sum_exec_runtime);
	u64 stolen_ns = stolen_from(slot->boost.task);
	u64 took_ns = ran_ns - slot->ran_ns;
	int cpu = task_cpu(slot->boost.task);

	/* Who is forgotten among the receivers, and met again, begins at 0. */
	if (stolen_ns > slot->stolen_ns)
		took_ns -= min(took_ns, stolen_ns - slot->stolen_ns);
	slot->stolen_ns = stolen_ns;
	slot->ran_ns = ran_ns;
	/* Of one that moved it is not known where it ran: both may have borne it. */
	atomic_add(div_u64(took_ns, NSEC_PER_USEC), per_cpu_ptr(&used_us, cpu));
	if (cpu != slot->cpu)
		atomic_add(div_u64(took_ns, NSEC_PER_USEC), per_cpu_ptr(&used_us, slot->cpu));
	slot->cpu = cpu;
	return took_ns;
}

static void promote(struct slot *slot, struct task_struct *task, const struct pflow_sock *entry,
		    struct sock *sk, enum boost_lever lever, const struct field *others)
{
	/* A ghost's own slot holds its task. What that took until now is not of this boost. */
	if (slot->boost.task) {
		charge_slot(slot);
	} else {
		slot->boost = (struct boost){ .task = get_task_struct(task) };
		slot->ran_ns = READ_ONCE(task->se.sum_exec_runtime);
		slot->stolen_ns = stolen_from(task);
		slot->cpu = task_cpu(task);
	}
	slot->boost.lever = lever;
	slot->boost.held = 0;
	slot->cookie = entry->cookie;
	slot->sk = sk;
	slot->until = hold_until();
	slot->also = false;
	slot->changed = jiffies;
	slot->ordered = jiffies;
	slot->exec_id = READ_ONCE(task->self_exec_id);
	slot->pid = task->pid;
	slot->boosted_ns = 0;
	slot->ticks = 0;
	slot->full_ticks = 0;
	slot->other_ticks = 0;
	slot->boost.levels = above_groups(lever) ? 0 : levels_of(others, slot->rank);
	lever_save(&slot->boost);
	if (lever == LEVER_NICE)
		lever_nice(&slot->boost);
	set_state(slot, above_groups(lever) ? CHOSEN : RAISED);
	set_elected(slot, true);
	trace_boost(&slot->boost, slot->rank);
	elected++;
	kick();
}

/* Under the lock and RCU. Return: why not, or -1. */
static int elect(struct pflow_sock *entry, struct sock *sk)
{
	struct task_struct *task = receiver(entry);
	enum boost_lever lever;
	struct field others;
	struct slot *slot;
	int refusal;
	u8 rank;

	if (!task)
		return REFUSED_UNKNOWN;
	slot = slot_of(task);
	if (slot && slot->state != GHOST) {
		slot->also = true;
		return -1;
	}
	rank = pflow_task_rank(task);
	refusal = worthy(task, rank, slot, &lever);
	if (refusal >= 0)
		return refusal;
	if (sched_knob(SCHED_KNOB_MODE) == SCHED_MODE_OBSERVE) {
		observed++;
		return -1;
	}
	slot = slot ?: slot_of(NULL);
	gather(&others, NULL);
	if (stopping || !place_for(&others, rank) || !slot || pflow_rank_pin(task, rank))
		return REFUSED_PLACE;
	if (!refcount_inc_not_zero(&sk->sk_refcnt)) {
		pflow_rank_unpin(task);	/* being closed: UDP delivers under RCU alone */
		return REFUSED_UNKNOWN;
	}
	slot->rank = rank;
	promote(slot, task, entry, sk, lever, &others);
	return -1;
}

/**
 * boost_consider() - a socket's buffer is fuller than the threshold
 * @sk: it; the caller holds it
 *
 * Context: softirq, or process with softirqs off; no run-queue lock held.
 * Return: whether it was considered; not where somebody else considers just now.
 */
bool boost_consider(struct sock *sk)
{
	struct pflow_sock *entry;
	bool considered = true;
	unsigned long irq;
	int refusal;

	rcu_read_lock();
	entry = pflow_sock_find(sk);
	/* The thread looks after who is raised already. */
	if (!entry || test_bit(PFLOW_SOCK_PP, &entry->flags))
		goto out;
	/* Nobody waits here. */
	if (!raw_spin_trylock_irqsave(&slots_lock, irq)) {
		considered = false;
		goto out;
	}
	refusal = elect(entry, sk);
	if (refusal >= 0)
		refused[refusal]++;
	raw_spin_unlock_irqrestore(&slots_lock, irq);
out:
	rcu_read_unlock();
	return considered;
}

static void repair_child(const struct slot *slot, const struct task_struct *parent,
			 struct task_struct *child)
{
	const struct boost_before *before = &slot->boost.before;
	bool ghost = slot->state == GHOST, nice_lever = slot->boost.lever == LEVER_NICE;
	int nice = task_nice(parent);
	bool reset;

	if (slot->boost.lever == LEVER_GROUP)
		return;	/* the thread itself was not changed */
	/* A class that the parent was given since, by somebody else: not our doing. */
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

/**
 * boost_child() - a child is born; it gets its parent's scheduling from before
 * @parent: current
 * @child: complete, and not running yet
 *
 * Ghosts count: the child may have been copied just before its parent's boost
 * ended. What reset-on-fork did where the parent asked for it itself stays done.
 *
 * Context: the parent's, preemption off.
 */
void boost_child(const struct task_struct *parent, struct task_struct *child)
{
	unsigned long irq;
	unsigned int i;

	for (i = 0; i < SLOTS; i++)
		if (READ_ONCE(slots[i].boost.task) == parent)
			break;
	if (i == SLOTS)
		return;
	raw_spin_lock_irqsave(&slots_lock, irq);
	if (slots[i].boost.task == parent && READ_ONCE(child->policy) == SCHED_NORMAL)
		repair_child(&slots[i], parent, child);
	raw_spin_unlock_irqrestore(&slots_lock, irq);
}

/* The lever was not enough, and there is something that might be. */
static bool too_weak(struct slot *slot)
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
static bool still_receives(struct slot *slot, enum boost_end *end)
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
static bool barred(const struct slot *slot)
{
	bool exempt;

	rcu_read_lock();
	exempt = boost_exempt(slot->boost.task);
	rcu_read_unlock();
	return exempt || lever_barred(&slot->boost);
}

/* Has this boost a reason to end? */
static bool ends(struct slot *slot, enum boost_end *end)
{
	const struct task_struct *task = slot->boost.task;
	int cpu = task_cpu(task);

	if (flags_of(task) & PF_EXITING)
		*end = END_EXITED;
	else if (READ_ONCE(task->self_exec_id) != slot->exec_id)
		*end = END_EXEC;
	else if (stopping || sched_knob(SCHED_KNOB_MODE) == SCHED_MODE_OBSERVE)
		*end = END_STOPPED;
	else if (slot->state == RAISED &&
		 (!lever_untouched(&slot->boost) || lever_reniced(&slot->boost)))
		*end = END_CHANGED;
	else if (barred(slot))
		*end = END_BARRED;
	else if (per_cpu(budget_us, cpu) < left_to_others(slot->rank, cpu))
		*end = END_CAP;
	else if (time_after32((u32)jiffies, slot->until))
		*end = END_EXPIRED;
	else if (outranked(cpu, slot->rank))
		*end = END_DISPLACED;
	else if (too_weak(slot))
		*end = END_WEAK;
	else if (place_wanted && slot->full_ticks >= VAIN_AFTER)
		*end = END_VAIN;
	else
		return !still_receives(slot, end);
	return true;
}

/* What a thread took since the last tick, and what that tells of its boost. */
static void account_slot(struct slot *slot)
{
	u64 took_ns = charge_slot(slot);
	bool also = slot->also;

	slot->also = false;
	if (slot->state != RAISED)
		return;
	slot->boosted_ns += took_ns;
	if (++slot->ticks >= KNOWN_NEED) {
		u64 raised_ns = jiffies_to_nsecs((u32)jiffies - slot->changed) ?: 1;

		slot->boost.need = clamp_t(u64, div64_u64(slot->boosted_ns * 100, raised_ns),
					   1, 100);
	}
	/* Who does not run meanwhile waits for something else, however full it all is. */
	if (!also && !boost_wanted(slot->sk)) {
		slot->full_ticks = 0;
	} else if (took_ns) {
		slot->full_ticks++;
		slot->until = hold_until();
	}
}

/* What the raised, and those raised a moment ago, took of each CPU since the last tick. */
static void charge(void)
{
	unsigned int i;

	for (i = 0; i < SLOTS; i++)
		if (slots[i].state != FREE)
			account_slot(&slots[i]);
}

/* Only this thread writes budgets. Return: what is left of the one that is used most. */
static s32 settle(u32 elapsed_us)
{
	unsigned int cap = sched_knob(SCHED_KNOB_CAP);
	s32 least = S32_MAX;
	int cpu;

	for_each_possible_cpu(cpu) {
		u32 used = atomic_xchg(per_cpu_ptr(&used_us, cpu), 0);
		s32 budget = pflow_budget_step(per_cpu(budget_us, cpu), used, elapsed_us, cap);

		WRITE_ONCE(per_cpu(budget_us, cpu), budget);
		least = min(least, budget);
	}
	return least;
}

static void adapt(void)
{
	if ((u32)jiffies - adapted < ADAPT)
		return;
	WRITE_ONCE(most, pflow_elect_most(most, place_wanted, budget_spent, num_online_cpus()));
	place_wanted = false;
	budget_spent = false;
	adapted = jiffies;
}

/* Let go of a ghost, unless it was elected again this moment. */
static void put(struct slot *slot)
{
	struct task_struct *task = NULL;
	unsigned long irq;

	raw_spin_lock_irqsave(&slots_lock, irq);
	if (slot->state == GHOST) {
		task = slot->boost.task;
		WRITE_ONCE(slot->boost.task, NULL);
		WRITE_ONCE(slot->state, FREE);
	}
	raw_spin_unlock_irqrestore(&slots_lock, irq);
	if (task)
		put_task_struct(task);
}

/*
 * The degree of the boost by rank, where the lever is round robin: who ranks higher
 * runs before who ranks lower, equals take turns.
 */
static unsigned int priority_of(const struct slot *slot)
{
	unsigned int priority = 1, i;

	for (i = 0; i < SLOTS; i++)
		priority += active(&slots[i]) && slots[i].boost.lever == LEVER_RR &&
			    slots[i].rank < slot->rank;
	return priority;
}

/*
 * Who is raised may have changed, and with it the degree of who still is. A session's
 * was told to a program, and stays. Rank and lever change in this thread alone.
 */
static void reorder(struct slot *slot)
{
	struct boost *boost = &slot->boost;
	bool by_rr = boost->lever == LEVER_RR;
	unsigned int degree;
	struct field others;
	unsigned long irq;

	if (!by_rr && boost->lever != LEVER_NICE)
		return;
	gather(&others, slot);
	degree = by_rr ? priority_of(slot) : levels_of(&others, slot->rank);
	if (degree == (by_rr ? boost->priority : boost->levels) ||
	    !time_after32((u32)jiffies, slot->ordered +
			  msecs_to_jiffies(sched_knob(SCHED_KNOB_APART))))
		return;
	slot->ordered = jiffies;
	if (by_rr) {
		lever_reorder(boost, degree);
		return;
	}
	/* A child that is born meanwhile is told from its parent by what was lent. */
	raw_spin_lock_irqsave(&slots_lock, irq);
	lever_degree(boost, degree);
	raw_spin_unlock_irqrestore(&slots_lock, irq);
}

/* The thread's own: only it takes a slot from CHOSEN, OVER and GHOST further. */
static void pull(struct slot *slot)
{
	const struct task_struct *task = slot->boost.task;
	unsigned long irq;
	int err = -ESRCH;

	/* Somebody may have been quicker since the election. */
	if (READ_ONCE(task->policy) == SCHED_NORMAL && !(flags_of(task) & PF_EXITING)) {
		lever_save(&slot->boost);
		err = lever_realtime(&slot->boost, sched_knob(SCHED_KNOB_CAP), priority_of(slot));
	}

	raw_spin_lock_irqsave(&slots_lock, irq);
	slot->changed = jiffies;
	if (err) {
		refused[REFUSED_LEVER]++;
		finish(slot, END_CHANGED);
	} else {
		set_state(slot, RAISED);
	}
	raw_spin_unlock_irqrestore(&slots_lock, irq);
}

static void lay_down(struct slot *slot)
{
	enum boost_lever lever = slot->boost.lever;
	unsigned long irq;

	/* One that still exits is restored, a dead one has left its class already. */
	if (lever != LEVERS && !READ_ONCE(slot->boost.task->exit_state))
		lever_restore(&slot->boost);
	set_elected(slot, false);
	sock_put(slot->sk);
	trace_restore(slot->boost.task, slot->pid, lever, slot->end);
	pflow_rank_unpin(slot->boost.task);
	raw_spin_lock_irqsave(&slots_lock, irq);
	ended[slot->end]++;
	slot->changed = jiffies;
	WRITE_ONCE(slot->state, GHOST);
	raw_spin_unlock_irqrestore(&slots_lock, irq);
}

/* The oldest ghost makes room where there is little, if it is not too young. */
static void let_go(void)
{
	const struct slot *oldest = NULL;
	unsigned int spare = 0, i;

	for (i = 0; i < SLOTS; i++) {
		spare += slots[i].state == FREE;
		if (slots[i].state == GHOST &&
		    (!oldest || time_before32(slots[i].changed, oldest->changed)))
			oldest = &slots[i];
	}
	for (i = 0; i < SLOTS; i++) {
		u32 age = (u32)jiffies - slots[i].changed;

		if (slots[i].state == GHOST &&
		    (flags_of(slots[i].boost.task) & PF_EXITING || age > GHOST_FOR ||
		     (&slots[i] == oldest && spare < SLOTS_SPARE && age > GHOST_LEAST)))
			put(&slots[i]);
	}
}

static void tick(struct kthread_work *work)
{
	u64 now = ktime_get_ns();
	u32 elapsed_us = min_t(u64, div_u64(now - tick_at_ns, NSEC_PER_USEC), USEC_PER_SEC);
	unsigned int used = 0, busy = 0, i;
	unsigned long irq;
	s32 left;

	tick_at_ns = now;
	raw_spin_lock_irqsave(&slots_lock, irq);
	charge();
	raw_spin_unlock_irqrestore(&slots_lock, irq);
	left = settle(elapsed_us);

	raw_spin_lock_irqsave(&slots_lock, irq);
	budget_spent |= left < 0;
	for (i = 0; i < SLOTS; i++) {
		enum boost_end end;

		if (active(&slots[i]) && ends(&slots[i], &end))
			finish(&slots[i], end);
	}
	adapt();
	displace();
	raw_spin_unlock_irqrestore(&slots_lock, irq);

	for (i = 0; i < SLOTS; i++) {
		struct slot *slot = &slots[i];

		if (state_of(slot) == CHOSEN)
			pull(slot);
		if (state_of(slot) == RAISED)
			reorder(slot);
		if (state_of(slot) == OVER && !lever_holds(&slot->boost))
			lay_down(slot);
	}
	let_go();
	for (i = 0; i < SLOTS; i++) {
		used += slots[i].state != FREE;
		busy += active(&slots[i]) || slots[i].state == OVER;
	}
	/* A budget fills even if nobody is left, and soon: somebody may wait for it. */
	busy += left < budget_part(100);
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
	int cpu;

	thread = kthread_run_worker(0, "pf_sched");
	if (IS_ERR(thread))
		return PTR_ERR(thread);
	sched_set_fifo(thread->task);
	kthread_init_work(&tick_work, tick);
	pflow_hrtimer_setup(&tick_timer, on_timer, HRTIMER_MODE_REL_HARD);
	for_each_possible_cpu(cpu) {
		per_cpu(budget_us, cpu) = 0;
		atomic_set(per_cpu_ptr(&used_us, cpu), 0);
	}
	stopping = false;
	place_wanted = false;
	budget_spent = false;
	most = 2;
	adapted = jiffies;
	tick_at_ns = ktime_get_ns();
	return 0;
}

static bool any_over(void)
{
	unsigned int i;

	for (i = 0; i < SLOTS; i++)
		if (state_of(&slots[i]) == OVER)
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
	kick();
	/* One round ends all there is, or the few that lever_holds() allows, a tick apart. */
	for (kthread_flush_work(&tick_work); any_over(); kthread_flush_work(&tick_work)) {
		msleep(TICK_MS);
		kick();
	}
	hrtimer_cancel(&tick_timer);
	kthread_cancel_work_sync(&tick_work);
	kthread_destroy_worker(thread);
	/* Children that were copied just before are still looked after. */
	msleep(UNDER_WAY_MS);
	for (i = 0; i < SLOTS; i++)
		put(&slots[i]);
}

/**
 * boost_status() - who is raised, for people
 * @m: where to
 *
 * Context: process.
 */
void boost_status(struct seq_file *m)
{
	unsigned int raised = 0, i;

	for (i = 0; i < SLOTS; i++) {
		const struct slot *slot = &slots[i];
		unsigned long irq;
		char comm[TASK_COMM_LEN];
		int pid, prio;
		enum boost_lever lever;
		unsigned int levels;
		bool shown;

		raw_spin_lock_irqsave(&slots_lock, irq);
		shown = slot->state == RAISED;
		if (shown) {
			pid = slot->boost.task->pid;
			strscpy(comm, slot->boost.task->comm, sizeof(comm));
			prio = pflow_rank_prio(slot->rank);
			lever = slot->boost.lever;
			levels = slot->boost.levels;
		}
		raw_spin_unlock_irqrestore(&slots_lock, irq);
		if (!shown)
			continue;
		raised++;
		pflow_one_word(comm);
		seq_printf(m, "raised: thread %d (%s) of prio %d, by %s", pid, comm, prio,
			   lever_name(lever));
		if (levels)
			seq_printf(m, ", %u levels", levels);
		seq_putc(m, '\n');
	}
	if (!raised)
		seq_puts(m, "raised: nobody\n");
	if (sched_knob(SCHED_KNOB_LEVER) == LEVER_GROUP + 1)
		seq_puts(m, "lever=group: sessions are raised by the program packetflow-group; see that it runs\n");
	if (READ_ONCE(refused[REFUSED_LEVER]))
		seq_printf(m, "no lever: %llu times; where a cgroup has the cpu controller set escape=1 to let receivers pass its cpu.max, and where RLIMIT_RTTIME is set lift it\n",
			   READ_ONCE(refused[REFUSED_LEVER]));
}

/**
 * boost_metrics() - elections and their ends, for machines
 * @m: where to
 *
 * Context: process.
 */
void boost_metrics(struct seq_file *m)
{
	unsigned int raised[LEVERS] = { 0 };
	unsigned long irq;
	unsigned int i;

	raw_spin_lock_irqsave(&slots_lock, irq);
	for (i = 0; i < SLOTS; i++)
		if (slots[i].state == RAISED)
			raised[slots[i].boost.lever]++;
	raw_spin_unlock_irqrestore(&slots_lock, irq);

	seq_printf(m, "# TYPE packetflow_sched_elected counter\n"
		   "# HELP packetflow_sched_elected Threads raised.\n"
		   "packetflow_sched_elected_total %llu\n", READ_ONCE(elected));
	seq_printf(m, "# TYPE packetflow_sched_observed counter\n"
		   "# HELP packetflow_sched_observed Threads that mode=enforce would have raised.\n"
		   "packetflow_sched_observed_total %llu\n", READ_ONCE(observed));
	seq_puts(m, "# TYPE packetflow_sched_refused counter\n"
		    "# HELP packetflow_sched_refused Threads whose buffer filled and who were not raised.\n");
	for (i = 0; i < REFUSALS; i++)
		seq_printf(m, "packetflow_sched_refused_total{reason=\"%s\"} %llu\n",
			   refusal_names[i], READ_ONCE(refused[i]));
	seq_puts(m, "# TYPE packetflow_sched_restored counter\n"
		    "# HELP packetflow_sched_restored Boosts that ended.\n");
	for (i = 0; i < ENDS; i++)
		seq_printf(m, "packetflow_sched_restored_total{reason=\"%s\"} %llu\n",
			   end_names[i], READ_ONCE(ended[i]));
	seq_puts(m, "# TYPE packetflow_sched_boosted gauge\n"
		    "# HELP packetflow_sched_boosted Threads raised now.\n");
	for (i = 0; i < LEVERS; i++)
		seq_printf(m, "packetflow_sched_boosted{lever=\"%s\"} %u\n", lever_name(i),
			   raised[i]);
}
