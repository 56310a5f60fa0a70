// SPDX-License-Identifier: GPL-2.0-only
/*
 * How much a task matters, and whether the scheduler acts on it.
 *
 * The rank follows only what the administrator set: scheduling class, nice level, and the weight
 * of control groups (group.c), which counts as so many levels of nice. Between two tasks of
 * different scheduling groups nice does nothing for the share of the CPU. Autogroup gives every
 * session such a group, and systemd every service. This file only finds that out, and status
 * reports it.
 *
 * Context: any but NMI, unless said otherwise.
 */
#include <linux/cgroup.h>
#include <linux/cred.h>
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/sched.h>
#include <linux/sched/rt.h>
#include <linux/user_namespace.h>

#include "../internal.h"

static enum pflow_class task_class(const struct task_struct *task)
{
	switch (READ_ONCE(task->policy)) {
	case SCHED_DEADLINE:
		return PFLOW_CLASS_DEADLINE;
	case SCHED_FIFO:
	case SCHED_RR:
		return PFLOW_CLASS_RT;
	case SCHED_IDLE:
		return PFLOW_CLASS_IDLE;
	default:
		return PFLOW_CLASS_NICE;
	}
}

/*
 * struct task_group is private to the scheduler, but it begins with its cgroup state
 * (kernel/sched/sched.h, all releases). So if a task's group is not the one of its cgroup, the task
 * is in an autogroup.
 */
static void task_note_group(struct task_struct *task, struct pflow_priority *priority)
{
#if defined(CONFIG_CGROUP_SCHED)
	priority->group = READ_ONCE(task->sched_task_group);
	rcu_read_lock();
	priority->autogroup = IS_ENABLED(CONFIG_SCHED_AUTOGROUP) &&
			      priority->group != task_css(task, cpu_cgrp_id);
	rcu_read_unlock();
#else
	priority->group = NULL;
	priority->autogroup = false;
#endif
}

/*
 * Threads whose scheduling pf_sched has changed, and how they ranked before: what it lends them
 * must not raise their rank. There are few, so all are walked. A pin names its task by an address,
 * which is only compared.
 */
#define PINS	64

static struct {
	const struct task_struct *task;
	u8 rank;
} pins[PINS];

static DEFINE_RAW_SPINLOCK(pins_lock);
static unsigned int pinned;

/**
 * pflow_rank_pin() - keep a task's rank as it is, whatever is lent to it
 * @task: held until pflow_rank_unpin()
 * @rank: its rank
 *
 * Context: any but NMI. Return: 0, or -ENOSPC.
 */
int pflow_rank_pin(const struct task_struct *task, u8 rank)
{
	unsigned long irq;
	int err = -ENOSPC;
	unsigned int i;

	raw_spin_lock_irqsave(&pins_lock, irq);
	for (i = 0; i < PINS && err; i++) {
		if (pins[i].task)
			continue;
		WRITE_ONCE(pins[i].rank, rank);
		/* Pairs with pflow_task_rank(): the rank is there before the name. */
		smp_store_release(&pins[i].task, task);
		WRITE_ONCE(pinned, pinned + 1);
		err = 0;
	}
	raw_spin_unlock_irqrestore(&pins_lock, irq);
	return err;
}
EXPORT_SYMBOL_GPL(pflow_rank_pin);

/**
 * pflow_rank_unpin() - let a task rank by its own scheduling again
 * @task: a pinned one
 *
 * Context: any but NMI.
 */
void pflow_rank_unpin(const struct task_struct *task)
{
	unsigned long irq;
	unsigned int i;

	raw_spin_lock_irqsave(&pins_lock, irq);
	for (i = 0; i < PINS; i++) {
		if (pins[i].task != task)
			continue;
		WRITE_ONCE(pins[i].task, NULL);
		WRITE_ONCE(pinned, pinned - 1);
		break;
	}
	raw_spin_unlock_irqrestore(&pins_lock, irq);
}
EXPORT_SYMBOL_GPL(pflow_rank_unpin);

/**
 * pflow_task_rank() - a task's own rank, without what pf_sched lends it
 * @task: task that the caller holds, or current
 *
 * Context: any. Return: 0..140.
 */
u8 pflow_task_rank(const struct task_struct *task)
{
	unsigned int i;

	if (unlikely(READ_ONCE(pinned))) {
		for (i = 0; i < PINS; i++)
			/* Pairs with pflow_rank_pin(). */
			if (smp_load_acquire(&pins[i].task) == task)
				return READ_ONCE(pins[i].rank);
	}
	return pflow_rank(task_class(task),
			  PRIO_TO_NICE(READ_ONCE(task->static_prio)) + pflow_group_nice(task),
			  READ_ONCE(task->rt_priority));
}
EXPORT_SYMBOL_GPL(pflow_task_rank);

/**
 * pflow_task_priority() - how much a task matters now
 * @task: task that the caller holds, or current
 * @priority: filled in
 *
 * Context: any. Reads single words of a task that may be changing; a torn
 * answer is mended at the next look.
 */
void pflow_task_priority(struct task_struct *task, struct pflow_priority *priority)
{
	priority->rank = pflow_task_rank(task);
	task_note_group(task, priority);
}

/**
 * pflow_task_user() - whose is a task? For bounds on what one user may take
 * @task: task that the caller holds, or has under RCU
 *
 * It is the real uid, which a set-uid program does not change. A task in a user namespace counts as
 * that of the namespace's owner: root in there has many uids, and would be as many users. A
 * namespace that root owns is a user by itself, as its tenants are not to share with the host's.
 *
 * Context: any. Return: a number, compared only.
 */
u32 pflow_task_user(const struct task_struct *task)
{
	const struct user_namespace *ns;
	const struct cred *cred;
	u32 user;

	rcu_read_lock();
	/* A task's credentials keep their namespace, and a namespace those above it. */
	cred = __task_cred(task);
	user = __kuid_val(cred->uid);
	ns = cred->user_ns;
	if (ns != &init_user_ns) {
		while (ns->parent != &init_user_ns)
			ns = ns->parent;
		user = __kuid_val(ns->owner) ?: ns->ns.inum;
	}
	rcu_read_unlock();
	return user;
}
EXPORT_SYMBOL_GPL(pflow_task_user);

/**
 * pflow_sock_user() - whose is a socket? For the same bounds
 * @entry: of it
 * @sk: it; the caller holds it, or has it under RCU
 *
 * It is its receiver's, as far as that is known, since a socket may be handed on.
 *
 * Context: RCU read side. Return: a number, compared only.
 */
u32 pflow_sock_user(const struct pflow_sock *entry, const struct sock *sk)
{
	struct task_struct *task = pid_task(find_pid_ns(READ_ONCE(entry->pid), &init_pid_ns),
					    PIDTYPE_PID);

	if (task && pflow_task_born(task) == READ_ONCE(entry->born))
		return pflow_task_user(task);
	return __kuid_val(READ_ONCE(sk->sk_uid));
}
EXPORT_SYMBOL_GPL(pflow_sock_user);

static void inert_note_entry(struct pflow_sock *entry, void *data)
{
	struct pflow_inert *inert = data;
	const void *group = READ_ONCE(entry->group);

	if (READ_ONCE(entry->rank) > PFLOW_RANK_RT_BASE || !group)
		return;
	if (!inert->receivers++)
		inert->group = group;
	if (group != inert->group)
		inert->groups_differ = true;
	inert->autogroup |= READ_ONCE(entry->autogroup);
}

/**
 * pflow_inert_check() - does nice mean anything between the receivers?
 * @inert: filled in
 *
 * Context: process.
 */
void pflow_inert_check(struct pflow_inert *inert)
{
	memset(inert, 0, sizeof(*inert));
	pflow_table_for_each(inert_note_entry, inert);
}
