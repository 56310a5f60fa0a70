// SPDX-License-Identifier: GPL-2.0-only
/*
 * Places: a receiver that waits where softirqs take the CPU is woken where a CPU idles.
 *
 * The scheduler does not count softirqs as load. So it leaves a receiver on the CPU on which its
 * packets arrive, since that CPU wakes it. The receiver hardly gets to run there, though another
 * CPU idles. No priority helps it, since softirqs come before all of them.
 *
 * What is done is a hint. The scheduler keeps for each task the CPU on which it woke last, and
 * looks there first when it wakes the next time (wake_cpu). Another CPU is written in its place,
 * one that the task may use. The scheduler is free to choose anew, which it does if that CPU is no
 * longer idle, and writes its own choice over it. So nothing has to be taken back: affinity, class
 * and group of the task stay as they are. An administrator who does not want a server to be moved
 * binds it to a CPU, as always. A thread that always has something to do never wakes; see crowd.c.
 *
 * Placing costs nobody packets, so it comes before shedding: pf_filter then sees only the waiting
 * that remains. The most important receiver is placed first. Each CPU gets one at a time, until
 * its remaining idle time is known. The time of softirqs is measured only if a module asks for
 * that. Otherwise only receivers that wait for other tasks are placed.
 *
 * Context: the estimator's thread.
 */
#include <linux/bitmap.h>
#include <linux/sched.h>
#include <linux/sched/rt.h>
#include <linux/topology.h>

#include "../internal.h"

#define WAITS		(PFLOW_ONE / 8)	/* of the time; who waits for less is left where it is */
#define AWAKE		(PFLOW_ONE / 8 * 7)	/* awake for more of it, it hardly ever wakes */

static bool thread_waits_for_softirqs(const struct pflow_thread *thread)
{
	unsigned int cpu = READ_ONCE(thread->cpu);

	return READ_ONCE(thread->pid) && READ_ONCE(thread->wait) > WAITS &&
	       READ_ONCE(per_cpu_ptr(&pflow_load, cpu)->pressed) &&
	       (pflow_lately(READ_ONCE(thread->streams_at)) ||
		pflow_lately(READ_ONCE(thread->datagrams_at)));
}

/* The most important receiver that waits and has not been tried yet. */
static struct pflow_thread *thread_next_to_place(unsigned long *tried)
{
	struct pflow_thread *best = NULL;
	unsigned int i;

	for_each_clear_bit(i, tried, PFLOW_THREADS) {
		struct pflow_thread *thread = &pflow_threads[i];

		if (!thread_waits_for_softirqs(thread))
			__set_bit(i, tried);
		else if (!best || READ_ONCE(thread->rank) > READ_ONCE(best->rank))
			best = thread;
	}
	if (best)
		__set_bit(best - pflow_threads, tried);
	return best;
}

/* Find an idle CPU nearby that the task may use, and where it would wait for less than it does. */
static unsigned int task_idle_cpu(const struct task_struct *task, unsigned int from, u32 wait,
				  const struct cpumask *idle)
{
	const struct cpumask *near = cpumask_of_node(cpu_to_node(from));
	unsigned int cpu, far = nr_cpu_ids;

	for_each_cpu_and(cpu, idle, task->cpus_ptr) {
		/* Its own may have become idle since it waited. */
		if (cpu == from || wait <= pflow_waiting_softirq(cpu) + WAITS)
			continue;
		if (cpumask_test_cpu(cpu, near))
			return cpu;
		far = cpu;
	}
	return far;
}

/**
 * pflow_task_may_be_placed() - is a thread left to the scheduler's fair class?
 * @task: it
 *
 * An administrator who made a thread real-time also says where it runs. A thread that pf_sched
 * raised does not count as real-time.
 *
 * Context: RCU read side. Return: whether it is.
 */
bool pflow_task_may_be_placed(struct task_struct *task)
{
	return READ_ONCE(task->policy) != SCHED_DEADLINE &&
	       !(rt_task(task) && pflow_task_rank(task) >= PFLOW_RANK_RT_BASE);
}
EXPORT_SYMBOL_GPL(pflow_task_may_be_placed);

/* Have one thread woken where a CPU idles. Under RCU. */
static void thread_place(const struct pflow_thread *thread, struct cpumask *left)
{
	struct task_struct *task = pflow_thread_task(thread);
	unsigned int cpu;

	if (!task || !pflow_task_may_be_placed(task))
		return;
	cpu = task_idle_cpu(task, READ_ONCE(thread->cpu), READ_ONCE(thread->wait), left);
	if (cpu >= nr_cpu_ids)
		return;
	if (READ_ONCE(thread->run) + READ_ONCE(thread->wait) > AWAKE)
		pflow_crowd_out(task, READ_ONCE(thread->cpu));
	/* The scheduler writes it under its own lock, and is the only one that reads it. */
	WRITE_ONCE(task->wake_cpu, cpu);
	cpumask_clear_cpu(cpu, left);
}

/**
 * pflow_place_step() - have receivers that wait for softirqs woken where a CPU idles
 * @idle: CPUs that have much time to spare
 *
 * Context: process; the estimator's thread. Return: whether there were any, so that it should soon
 * be looked again whether they went there.
 */
bool pflow_place_step(const struct cpumask *idle)
{
	static struct cpumask left;	/* one estimator runs at a time */
	DECLARE_BITMAP(tried, PFLOW_THREADS) = {};
	const struct pflow_thread *thread;

	if (cpumask_empty(idle))
		return false;
	pflow_threads_sample();
	cpumask_copy(&left, idle);
	rcu_read_lock();
	while (!cpumask_empty(&left) && (thread = thread_next_to_place(tried)))
		thread_place(thread, &left);
	rcu_read_unlock();
	return !cpumask_equal(&left, idle);
}
