// SPDX-License-Identifier: GPL-2.0-only
/*
 * Crowding: a receiver that never sleeps leaves the CPU of the softirqs, if another one idles.
 *
 * The scheduler moves a thread that is awake only where two of them share a CPU. A softirq is not a
 * thread, so the scheduler sees one thread alone there and leaves it, though it hardly gets to run.
 * A thread of ours makes them two for a moment. It stays awake on that CPU until the scheduler on
 * the idle CPU has pulled the receiver, for three ticks at most. The scheduler does not pull a
 * receiver of a real-time class. It pushes it away when a thread of higher priority wakes beside
 * it. That needs no tick.
 *
 * Nothing of the receiver is changed, so nothing has to be taken back, and its affinity holds.
 * Where it does not go, it is tried more and more seldom, and the CPU time that ours takes
 * falls from a tenth to nearly nothing.
 *
 * Context: a worker of our own; pflow_crowd_out() by the estimator's thread.
 */
#include <linux/kthread.h>
#include <linux/sched/clock.h>
#include <linux/sched/rt.h>
#include <linux/sched/task.h>

#include "../compat/compat.h"
#include "../internal.h"

#define CROWD_US	12000	/* three ticks of 250 Hz; the scheduler looks at each */
#define PUSH_US		1000	/* a push happens at once, or not at all */
#define AGAIN		(HZ / 10)
#define AGAIN_MOST	(4 * HZ)

static struct kthread_worker *thread;
static struct task_struct *who;		/* held; NULL: there is nothing to be done */
static int from;
static u32 tried_at;			/* jiffies; the last time */
static u32 apart;			/* from that to the next, jiffies */

static bool crowd_is_needed(void)
{
	return task_cpu(who) == from && !READ_ONCE(who->exit_state);
}

/* Stay awake beside it. Return: whether it went. */
static bool crowd_stay(u32 most_us)
{
	u64 begin = local_clock();

	while (crowd_is_needed() && local_clock() - begin < (u64)most_us * NSEC_PER_USEC) {
		cpu_relax();
		cond_resched();
	}
	return !crowd_is_needed();
}

static void crowd_in(struct kthread_work *work)
{
	bool real_time = rt_task(who), went = false;

	if (real_time)
		sched_set_fifo(current);
	/* That CPU may have gone offline. */
	if (!set_cpus_allowed_ptr(current, cpumask_of(from)))
		went = crowd_stay(real_time ? PUSH_US : CROWD_US);
	if (real_time)
		sched_set_normal(current, 0);
	apart = went ? AGAIN : min(2 * apart, AGAIN_MOST);
	tried_at = jiffies;
	put_task_struct(who);
	smp_store_release(&who, NULL);	/* pairs with pflow_crowd_out() */
}

static struct kthread_work crowd_work;

/**
 * pflow_crowd_out() - have the scheduler take a thread to an idle CPU
 * @task: it
 * @cpu: where it is, and should not be
 *
 * One thread is moved at a time. Another one is seen again at the next look.
 *
 * Context: the estimator's thread; under RCU.
 */
void pflow_crowd_out(struct task_struct *task, int cpu)
{
	/* Pairs with crowd_in(): its thread is through with the last one. */
	if (smp_load_acquire(&who) || (u32)jiffies - tried_at < apart)
		return;
	from = cpu;
	/* The queue's lock orders this. */
	WRITE_ONCE(who, get_task_struct(task));
	kthread_queue_work(thread, &crowd_work);
}

/**
 * pflow_crowd_setup() - make the worker
 *
 * Context: process, may sleep. Return: 0 or a negative error.
 */
int pflow_crowd_setup(void)
{
	thread = kthread_run_worker(0, "pf_place");
	if (IS_ERR(thread))
		return PTR_ERR(thread);
	/* It remembers the worker that it was last given to, which may have ended since. */
	kthread_init_work(&crowd_work, crowd_in);
	tried_at = jiffies;
	apart = AGAIN;
	return 0;
}

/**
 * pflow_crowd_teardown() - end it
 *
 * Context: process, may sleep; nobody asks any more.
 */
void pflow_crowd_teardown(void)
{
	kthread_destroy_worker(thread);
}
