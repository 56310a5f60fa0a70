// SPDX-License-Identifier: GPL-2.0-only
/*
 * Waiting: the sign of a receiver that loses nothing when it has too little of a CPU.
 *
 * A CPU without idle time need not be overloaded, but receivers may have to wait there. If one does
 * wait that answers requests (threads/threads.c), the CPUs that receive packets are put under
 * pressure. If that does not help, it is repeated less and less often. Who answers datagrams may be
 * asked by himself, which is known only when packets are looked at. So looks for such are counted
 * apart, and delay none for others.
 *
 * Context: the estimator's thread.
 */
#include <linux/kernel_stat.h>
#include <linux/tick.h>

#include "../internal.h"

#define BUSY_US		50000	/* a shorter look tells nothing */
#define BUSY_IDLE	8	/* a CPU is busy if it is idle for less than 1/8 of the time */
#define SPARE_IDLE	4	/* it has time to spare if it is idle for more than 1/4 */
#define WAITING		8	/* a receiver may be harmed if it waits for more than 1/8 */
#define WAITING_EVERY	(HZ / 5)	/* jiffies between two looks, as long as one takes */
#define WAITING_SELDOM	(8 * HZ)	/* the same at most, after looks in vain */
#define POLLED_MANY	100	/* packets that a CPU polls in a round; fewer harm nobody */

/**
 * struct seen - counters of a CPU as they were last seen
 * @idle_us: pflow_cpu_idle_us()
 * @softirq_ns: pflow_load.softirq_ns
 * @softirq: 0..65536, share of the time before that for which softirqs received
 * @polled: pflow_load.polled
 */
struct seen {
	u64 idle_us;
	u64 softirq_ns;
	u32 softirq;
	u32 polled;
};

static DEFINE_PER_CPU(struct seen, seen);

/**
 * struct look - how often CPUs are put under pressure for those who wait
 * @last: jiffies when they last were
 * @every: jiffies until the next time, twice as long each time
 */
struct look {
	u64 last;
	u32 every;
};

static struct look for_waiting, for_unknown;

/**
 * pflow_cpu_idle_us() - how long a CPU has been idle since boot
 * @cpu: which
 *
 * Context: any. Return: microseconds, waiting for I/O included.
 */
u64 pflow_cpu_idle_us(int cpu)
{
	u64 idle = get_cpu_idle_time_us(cpu, NULL);

	if (idle != (u64)-1)
		return idle + get_cpu_iowait_time_us(cpu, NULL);
	/* No dynamic ticks: the tick counts. */
	return div_u64(data_race(kcpustat_cpu(cpu).cpustat[CPUTIME_IDLE] +
				 kcpustat_cpu(cpu).cpustat[CPUTIME_IOWAIT]), NSEC_PER_USEC);
}
EXPORT_SYMBOL_GPL(pflow_cpu_idle_us);

/**
 * pflow_waiting_busy() - find the CPUs on which receivers may have to wait, and the idle ones
 * @busy: filled in: CPUs where they may have to wait
 * @idle: filled in: CPUs that have time to spare
 *
 * Context: the estimator's thread. Return: whether any CPU is busy.
 */
bool pflow_waiting_busy(struct cpumask *busy, struct cpumask *idle)
{
	static ktime_t looked_at;
	ktime_t now = ktime_get();
	u64 elapsed_us = ktime_us_delta(now, looked_at);
	int cpu;

	if (elapsed_us < BUSY_US)
		return !cpumask_empty(busy);
	looked_at = now;
	cpumask_clear(busy);
	cpumask_clear(idle);
	for_each_online_cpu(cpu) {
		struct seen *last = per_cpu_ptr(&seen, cpu);
		u64 softirq_ns = READ_ONCE(per_cpu_ptr(&pflow_load, cpu)->softirq_ns);
		u64 idle_us = pflow_cpu_idle_us(cpu);
		/* Read from another CPU it may seem to step back. */
		s64 lately_us = idle_us - last->idle_us;

		if (lately_us < (s64)(elapsed_us / BUSY_IDLE))
			cpumask_set_cpu(cpu, busy);
		else if (lately_us > (s64)(elapsed_us / SPARE_IDLE))
			cpumask_set_cpu(cpu, idle);
		last->softirq = min_t(u64, PFLOW_ONE,
				      div64_u64((softirq_ns - last->softirq_ns) * PFLOW_ONE,
						elapsed_us * NSEC_PER_USEC));
		last->softirq_ns = softirq_ns;
		last->idle_us = idle_us;
	}
	return !cpumask_empty(busy);
}

/**
 * pflow_waiting_softirq() - for how much of the time would softirqs keep a receiver waiting?
 * @cpu: there
 *
 * Context: the estimator's thread. Return: 0..65536, as of the last look; 0 if unmeasured.
 */
u32 pflow_waiting_softirq(int cpu)
{
	return per_cpu_ptr(&seen, cpu)->softirq;
}

/* Has a CPU polled many packets since the last round, a tenth of a second ago or less? */
static bool cpu_polled_many(int cpu)
{
	struct seen *last = per_cpu_ptr(&seen, cpu);
	u32 polled = READ_ONCE(per_cpu_ptr(&pflow_load, cpu)->polled);
	bool many = polled - last->polled > POLLED_MANY;

	last->polled = polled;
	return many;
}

/* Is it time for the next look? It is forgotten how often there was one if nobody waits. */
static bool look_is_due(struct look *look, bool waiting, u64 now)
{
	if (!waiting)
		look->every = WAITING_EVERY;
	if (!waiting || now - look->last <= look->every)
		return false;
	look->last = now;
	look->every = min(2 * look->every, WAITING_SELDOM);
	return true;
}

/**
 * pflow_waiting_check() - put CPUs under pressure if a receiver waits that answers requests
 *
 * Such a receiver loses no packet, so no other signal tells of it. Whether it waits for packets is
 * found by looking at them. If that is in vain, it is done more and more seldom.
 *
 * Context: the estimator's thread.
 */
void pflow_waiting_check(void)
{
	u64 now = get_jiffies_64();
	bool waiting = false, unknown = false, look;
	unsigned int i;
	int cpu;

	pflow_threads_sample();
	for (i = 0; i < PFLOW_THREADS && !waiting; i++) {
		const struct pflow_thread *thread = &pflow_threads[i];

		if (!READ_ONCE(thread->pid) || READ_ONCE(thread->wait) <= PFLOW_ONE / WAITING)
			continue;
		waiting = pflow_lately(READ_ONCE(thread->streams_at)) ||
			  pflow_thread_answers_others(thread);
		unknown |= pflow_lately(READ_ONCE(thread->answers_at));
	}
	look = look_is_due(&for_waiting, waiting, now);
	look |= look_is_due(&for_unknown, unknown && !waiting, now);
	for_each_online_cpu(cpu)
		if (cpu_polled_many(cpu) && look)
			pflow_load_raise(cpu);
}

/**
 * pflow_waiting_setup() - begin anew
 *
 * Context: process; the estimator does not run.
 */
void pflow_waiting_setup(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		memset(per_cpu_ptr(&seen, cpu), 0, sizeof(struct seen));
	for_waiting = (struct look){ get_jiffies_64(), WAITING_EVERY };
	for_unknown = for_waiting;
}
