// SPDX-License-Identifier: GPL-2.0-only
/*
 * The overload estimator: which CPU cannot keep up with what it is sent?
 *
 * Overload belongs to a CPU and its queues. The signals, each where it arises:
 *
 *  - A receive queue that stands full. One NAPI poll that uses its whole
 *    weight is normal for a burst; polls that do so one after another, never
 *    once finding the queue empty, for longer than STANDING_NS, are a standing
 *    queue (the idea of CoDel). This is the only signal for a virtio ring,
 *    which overflows in the host, out of the guest's sight. Busy polling and
 *    netpoll use budgets of their own and do not count; nor does the backlog,
 *    which has no device (its drops are counted instead).
 *  - Backlog drops (softnet_data), device drops of a device whose queue is
 *    found full, and time_squeeze, which only says that it is worth looking.
 *  - Drops at a socket buffer, seen by the tracepoint that a drop passes
 *    anyway, so that it costs nothing while nobody drops.
 *  - A TCP receiver that waits (threads.c) where packets are received. That only says that it
 *    is worth looking; in vain, more and more seldom.
 *
 * A CPU with a signal is *pressed* for a second after the last one; only then
 * are its packets looked at one by one and the receive calls probed. Where looking
 * does not pay, it *rests*: drops at a socket, and squeezes, do not make it look again for a
 * while. On PREEMPT_RT there are many of these, as time counts in which a softirq was preempted.
 *
 * A thread wakes ten times a second and reads a few counters; at peace every ten
 * seconds, and when somebody reads the table, it has packets counted for a moment, so
 * that owners and rates are known before they are needed. A CPU without idle time is
 * no sign of overload, but one that receivers may have to wait for their turn.
 *
 * Context: NAPI polls run with softirqs off, drops at a socket in softirq or
 * process context; these probes touch their own CPU's data. The rest is a
 * thread of a real-time class, as the CPU in question is the last one on which another would get
 * to run, above all before receivers that pf_sched has raised there. What takes its time is left
 * to a worker: to attach and detach, and to scan.
 */
#include <linux/kernel_stat.h>
#include <linux/kthread.h>
#include <linux/netdevice.h>
#include <linux/sched/clock.h>
#include <linux/tick.h>
#include <linux/tracepoint.h>
#include <linux/workqueue.h>
#include <net/net_namespace.h>
#include <trace/events/napi.h>
#include <trace/events/skb.h>

#include "compat/compat.h"
#include "internal.h"

#define STANDING_NS	(5 * NSEC_PER_MSEC)
#define CHAIN_GAP_NS	(50 * NSEC_PER_MSEC)	/* polls further apart are no chain */
#define PERIOD		(HZ / 10)
#define SOON		max(HZ / 50, 1)	/* after something was done */
#define BUSY_US		50000	/* a shorter look tells nothing */
#define BUSY_IDLE	8	/* busy is who was idle for less than 1/8 of the time */
#define SPARE_IDLE	4	/* one that is idle for more than this part has time to spare */
#define WAITING		8	/* who waits for longer than 1/8 of the time may be harmed */
#define WAITING_EVERY	(HZ / 5)	/* as long as a look takes */
#define WAITING_SELDOM	(8 * HZ)
#define POLLED_MANY	100	/* packets in a round; fewer harm nobody */
#define POLLED_FEW	64	/* fewer packets tell nothing of what one costs */
#define LEARN_EVERY	HZ
#define LEARN_FOR	(HZ / 10)
#define REST		HZ
#define MEASURE_FOR	(10 * HZ)	/* since it was worth it: attaching costs, too */
#define SAMPLE_MS	60
#define SAMPLE_EVERY	(10 * HZ)
#define SCAN_EVERY	(30 * HZ)
#define SCAN_APART	(5 * HZ)

DEFINE_PER_CPU_ALIGNED(struct pflow_load, pflow_load);
EXPORT_PER_CPU_SYMBOL_GPL(pflow_load);

/* Counters of the kernel as the worker last saw them. */
struct seen {
	unsigned int dropped;
	unsigned int squeezed;
	const void *dev;
	u64 dev_lost;
	u64 idle_us;
	u64 softirq_ns;
	u32 polled;
	u32 polled_waiting;
};

static DEFINE_PER_CPU(struct seen, seen);

static struct kthread_worker *thread;
static void estimator(struct kthread_work *work);
static struct kthread_delayed_work estimator_work;
static struct workqueue_struct *queue;
static void arm_and_scan(struct work_struct *work);
static DECLARE_WORK(slow_work, arm_and_scan);

/* What the estimator wants to be done by the worker. */
static struct {
	bool learn;	/* receive calls armed */
	bool measure;	/* softirqs measured */
	bool scan;
} wanted;

static bool sampling;
static bool sample_asked;
static bool learn_asked;
static bool learn_anew;		/* receive calls are armed only now */
static u32 last_sample;
static u64 last_learnt;
static u64 last_waiting;
static u32 waiting_every;
static u64 last_busy;
static u64 last_pressed;
static u32 last_scan;

static void renew(struct pflow_load *load)
{
	u32 until = (u32)jiffies + PFLOW_PRESSED_FOR;

	if (READ_ONCE(load->until) != until)
		WRITE_ONCE(load->until, until);
}

/* Looked at or resting. */
static bool under_pressure(const struct pflow_load *load)
{
	return READ_ONCE(load->pressed) ||
	       (READ_ONCE(load->resting) && !time_after32((u32)jiffies, READ_ONCE(load->until)));
}

/**
 * pflow_load_raise() - something overflows on this CPU: look at its packets
 * @cpu: which
 *
 * Context: any but NMI.
 */
void pflow_load_raise(int cpu)
{
	struct pflow_load *load = per_cpu_ptr(&pflow_load, cpu);

	renew(load);
	if (READ_ONCE(load->pressed))
		return;
	WRITE_ONCE(load->resting, false);
	if (!READ_ONCE(load->watch))
		WRITE_ONCE(load->since, (u32)jiffies);
	WRITE_ONCE(load->pressed, 1);
	kthread_mod_delayed_work(thread, &estimator_work, 0);
}
EXPORT_SYMBOL_GPL(pflow_load_raise);

/* Something that only says that it is worth looking: not where that was just seen not to pay. */
static void worth_looking(int cpu)
{
	struct pflow_load *load = per_cpu_ptr(&pflow_load, cpu);

	/* Mostly it is pressed already. */
	if (READ_ONCE(load->pressed) ||
	    (READ_ONCE(load->resting) && time_before32((u32)jiffies, READ_ONCE(load->rest_until))))
		renew(load);
	else
		pflow_load_raise(cpu);
}

/**
 * pflow_load_rest() - looking at this CPU's packets does not pay: stop for a while
 * @cpu: which
 *
 * It stays under pressure as long as sockets on it drop.
 *
 * Context: any but NMI.
 */
void pflow_load_rest(int cpu)
{
	struct pflow_load *load = per_cpu_ptr(&pflow_load, cpu);

	WRITE_ONCE(load->rest_until, (u32)jiffies + REST);
	WRITE_ONCE(load->resting, true);
	WRITE_ONCE(load->pressed, 0);
}
EXPORT_SYMBOL_GPL(pflow_load_rest);

/**
 * pflow_load_learn() - somebody wants to know who receives, and does not
 *
 * Heeded under pressure and where no CPU has time to spare, once a second at most.
 *
 * Context: any.
 */
void pflow_load_learn(void)
{
	if (!READ_ONCE(learn_asked))
		WRITE_ONCE(learn_asked, true);
}
EXPORT_SYMBOL_GPL(pflow_load_learn);

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

static noinline void full_poll(struct pflow_load *load, const struct napi_struct *napi)
{
	u64 now = local_clock();
	bool alive = load->chain_id && now - load->chain_last < CHAIN_GAP_NS;

	if (!alive || load->chain_id != napi) {
		/* Of two full queues on one CPU, watching one is enough. */
		if (alive)
			return;
		WRITE_ONCE(load->chain_id, napi);
		WRITE_ONCE(load->chain_dev, napi->dev);
		load->chain_start = now;
	} else if (now - load->chain_start > STANDING_NS) {
		u64 since = load->chain_last;

		if (load->chain_last - load->chain_start <= STANDING_NS)
			since = load->chain_start;
		WRITE_ONCE(load->standing_ns, load->standing_ns + now - since);
		pflow_load_raise(smp_processor_id());
	}
	WRITE_ONCE(load->chain_last, now);
}

static void on_napi_poll(void *unused, struct napi_struct *napi, int work, int budget)
{
	struct pflow_load *load = this_cpu_ptr(&pflow_load);

	WRITE_ONCE(load->polled, load->polled + work);
	if (napi->dev && work) {
		load->device_polls++;
		if (load->polled_dev != napi->dev) {
			WRITE_ONCE(load->polled_dev, napi->dev);
			WRITE_ONCE(load->turned_at, (u32)jiffies);
		}
		if (load->polled_at != (u32)jiffies)
			WRITE_ONCE(load->polled_at, (u32)jiffies);
	}
	if (likely(work < budget)) {
		if (unlikely(load->chain_id == napi) && budget == napi->weight)
			WRITE_ONCE(load->chain_id, NULL);
		return;
	}
	if (napi->dev && budget && budget == napi->weight)
		full_poll(load, napi);
}

static void on_kfree_skb(PFLOW_KFREE_SKB_ARGS)
{
	if (unlikely(reason == SKB_DROP_REASON_SOCKET_RCVBUFF))
		worth_looking(raw_smp_processor_id());
}

static u64 device_losses(struct net_device *dev)
{
	struct rtnl_link_stats64 stats;

	dev_get_stats(dev, &stats);
	/* Not rx_dropped: frames of unknown protocols and the backlog are in it. */
	return stats.rx_missed_errors + stats.rx_fifo_errors + stats.rx_over_errors;
}

/**
 * pflow_device_find() - find a device that may be gone
 * @wanted: it; only compared
 *
 * Context: RCU read side. Return: it, or NULL if there is none any more.
 */
struct net_device *pflow_device_find(const void *wanted)
{
	struct net_device *dev;
	struct net *net;

	for_each_net_rcu(net)
		for_each_netdev_rcu(net, dev)
			if (dev == wanted)
				return dev;
	return NULL;
}

static bool find_device_losses(const void *wanted, u64 *losses)
{
	struct net_device *dev;

	rcu_read_lock();
	dev = pflow_device_find(wanted);
	if (dev)
		*losses = device_losses(dev);
	rcu_read_unlock();
	return dev;
}

static void look_at_device(int cpu, struct pflow_load *load, struct seen *last)
{
	const void *dev = READ_ONCE(load->chain_dev);
	s64 age = local_clock() - READ_ONCE(load->chain_last);
	u64 losses;

	if (!READ_ONCE(load->chain_id) || age > CHAIN_GAP_NS ||
	    !find_device_losses(dev, &losses)) {
		last->dev = NULL;
		return;
	}
	if (last->dev == dev && losses > last->dev_lost) {
		WRITE_ONCE(load->lost, load->lost + (u32)(losses - last->dev_lost));
		pflow_load_raise(cpu);
	}
	last->dev = dev;
	last->dev_lost = losses;
}

/* What a packet costs the CPU in softirqs, as long as that is measured. */
static void account(struct pflow_load *load, struct seen *last)
{
	u64 softirq_ns = READ_ONCE(load->softirq_ns);
	u32 polled = READ_ONCE(load->polled);
	u64 packet_ns;

	/* While nobody measures, packets go by that cost nothing. */
	if (softirq_ns == last->softirq_ns)
		last->polled = polled;
	if (polled - last->polled < POLLED_FEW)
		return;
	packet_ns = div_u64(softirq_ns - last->softirq_ns, polled - last->polled);
	WRITE_ONCE(load->packet_ns, min_t(u64, packet_ns, U32_MAX));
	last->softirq_ns = softirq_ns;
	last->polled = polled;
}

static void look_at_cpu(int cpu)
{
	struct softnet_data *sd = per_cpu_ptr(&softnet_data, cpu);
	struct pflow_load *load = per_cpu_ptr(&pflow_load, cpu);
	struct seen *last = per_cpu_ptr(&seen, cpu);
	unsigned int dropped = pflow_softnet_dropped(sd);
	unsigned int squeezed = READ_ONCE(sd->time_squeeze);

	if (dropped != last->dropped) {
		WRITE_ONCE(load->lost, load->lost + dropped - last->dropped);
		pflow_load_raise(cpu);
	} else if (squeezed != last->squeezed) {
		worth_looking(cpu);
	}
	last->dropped = dropped;
	last->squeezed = squeezed;
	account(load, last);
	look_at_device(cpu, load, last);
	if (!time_after32((u32)jiffies, READ_ONCE(load->until)))
		return;
	if (READ_ONCE(load->pressed))
		WRITE_ONCE(load->pressed, 0);
	if (READ_ONCE(load->resting))
		WRITE_ONCE(load->resting, false);
}

/* Those that are offline too: the pressure of one that went under pressure ends as well. */
static bool look_at_all(void)
{
	bool pressed = false;
	int cpu;

	for_each_possible_cpu(cpu) {
		look_at_cpu(cpu);
		pressed |= under_pressure(per_cpu_ptr(&pflow_load, cpu));
	}
	return pressed;
}

static void sample(bool on)
{
	u32 now = jiffies;
	int cpu;

	if (sampling && !on)
		WRITE_ONCE(sample_asked, false);
	sampling = on;
	if (on)
		WRITE_ONCE(last_sample, now);
	for_each_possible_cpu(cpu) {
		struct pflow_load *load = per_cpu_ptr(&pflow_load, cpu);

		if (on && !READ_ONCE(load->watch))
			WRITE_ONCE(load->since, now);
		WRITE_ONCE(load->sampled, on);
	}
}

/*
 * Are there CPUs on which receivers may have to wait for their turn? And which have time to spare?
 */
static bool look_for_busy(struct cpumask *busy, struct cpumask *idle)
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
		u64 idle_us = pflow_cpu_idle_us(cpu);
		/* Read from another CPU it may seem to step back. */
		s64 lately_us = idle_us - last->idle_us;

		if (lately_us < (s64)(elapsed_us / BUSY_IDLE))
			cpumask_set_cpu(cpu, busy);
		else if (lately_us > (s64)(elapsed_us / SPARE_IDLE))
			cpumask_set_cpu(cpu, idle);
		last->idle_us = idle_us;
	}
	return !cpumask_empty(busy);
}

static bool due(u32 last, u32 every)
{
	return time_after32((u32)jiffies, last + every);
}

/* Since the last round, a tenth of a second ago or less. */
static bool polled_many(int cpu)
{
	struct seen *last = per_cpu_ptr(&seen, cpu);
	u32 polled = READ_ONCE(per_cpu_ptr(&pflow_load, cpu)->polled);
	bool many = polled - last->polled_waiting > POLLED_MANY;

	last->polled_waiting = polled;
	return many;
}

/*
 * Who answers requests loses nothing, and nobody drops for it: it waits. Where somebody does,
 * look whether for packets, though nothing has overflowed; in vain, more and more seldom.
 */
static void look_for_waiting(void)
{
	u64 now = get_jiffies_64();
	bool waiting = false, look;
	unsigned int i;
	int cpu;

	pflow_threads_sample();
	for (i = 0; i < PFLOW_THREADS && !waiting; i++)
		waiting = READ_ONCE(pflow_threads[i].pid) &&
			  pflow_lately(READ_ONCE(pflow_threads[i].streams_at)) &&
			  READ_ONCE(pflow_threads[i].wait) > PFLOW_ONE / WAITING;
	look = waiting && now - last_waiting > waiting_every;
	for_each_online_cpu(cpu)
		if (polled_many(cpu) && look)
			pflow_load_raise(cpu);
	if (look) {
		last_waiting = now;
		waiting_every = min(2 * waiting_every, WAITING_SELDOM);
	} else if (!waiting) {
		waiting_every = WAITING_EVERY;
	}
}

/*
 * Under pressure owners are learnt at once, and looked at again every second: learning at
 * every receive call would cost just those who have too little. A look has its length,
 * however often the estimator is woken meanwhile.
 */
static bool learning(bool pressed, bool busy)
{
	bool asked = pressed || (busy && READ_ONCE(learn_asked));
	u64 now = get_jiffies_64();	/* there may be none for months */

	if (xchg(&learn_anew, false) || (asked && now - last_learnt > LEARN_EVERY)) {
		WRITE_ONCE(learn_asked, false);
		last_learnt = now;
	}
	return now - last_learnt <= LEARN_FOR;
}

/* Do what the estimator wants and has no time for. */
static void arm_and_scan(struct work_struct *work)
{
	if (READ_ONCE(wanted.learn) && pflow_probes_arm())
		WRITE_ONCE(learn_anew, true);
	pflow_threads_measure(READ_ONCE(wanted.measure));
	if (xchg(&wanted.scan, false)) {
		pflow_scan();
		WRITE_ONCE(last_scan, (u32)jiffies);
	}
}

static void estimator(struct kthread_work *work)
{
	static bool before;	/* was there pressure */
	/* One estimator runs at a time. */
	static struct cpumask busy_cpus, idle_cpus;
	bool pressed = look_at_all(), busy = look_for_busy(&busy_cpus, &idle_cpus);
	bool learn, lately, soon;
	unsigned long delay;

	pflow_step_aside();
	sample(!pressed && due(READ_ONCE(last_sample), SAMPLE_EVERY));
	learn = learning(pressed, busy) || (sampling && READ_ONCE(sample_asked));
	if (pressed)
		last_pressed = get_jiffies_64();
	if (pressed || busy)
		last_busy = get_jiffies_64();
	lately = get_jiffies_64() - last_pressed <= MEASURE_FOR;
	pflow_modules_pressure(busy || pressed, lately || sampling);
	pflow_probes_watch(learn || sampling);
	pflow_threads_note(get_jiffies_64() - last_busy <= MEASURE_FOR);
	WRITE_ONCE(wanted.learn, learn);
	WRITE_ONCE(wanted.measure, lately);
	if (due(READ_ONCE(last_scan), pressed && !before ? SCAN_APART : SCAN_EVERY))
		WRITE_ONCE(wanted.scan, true);
	queue_work(queue, &slow_work);
	if (busy)
		look_for_waiting();
	soon = pressed && pflow_place_step(&idle_cpus);
	soon |= pflow_batch_step(&busy_cpus);
	if (soon)
		delay = SOON;
	else
		delay = sampling && !pressed ? msecs_to_jiffies(SAMPLE_MS) : PERIOD;
	before = pressed;
	kthread_queue_delayed_work(thread, &estimator_work, delay);
}

/**
 * pflow_overload_sample() - learn owners and rates now, for whoever reads them
 *
 * Context: process, sleeps for the length of a sample; a signal ends it.
 */
void pflow_overload_sample(void)
{
	WRITE_ONCE(sample_asked, true);
	WRITE_ONCE(last_sample, (u32)jiffies - SAMPLE_EVERY - 1);
	kthread_mod_delayed_work(thread, &estimator_work, 0);
	msleep_interruptible(SAMPLE_MS + SAMPLE_MS / 2);
}

/**
 * pflow_overload_setup() - start watching
 *
 * Context: process, may sleep. Return: 0 or a negative error, and then nothing
 * is left attached.
 */
int pflow_overload_setup(void)
{
	int cpu, err;

	queue = alloc_workqueue("packetflow", WQ_UNBOUND | WQ_HIGHPRI, 0);
	if (!queue)
		return -ENOMEM;
	thread = kthread_run_worker(0, "packetflow");
	if (IS_ERR(thread)) {
		err = PTR_ERR(thread);
		goto queue;
	}
	sched_set_fifo(thread->task);
	kthread_init_delayed_work(&estimator_work, estimator);
	for_each_possible_cpu(cpu) {
		memset(per_cpu_ptr(&pflow_load, cpu), 0, sizeof(struct pflow_load));
		memset(per_cpu_ptr(&seen, cpu), 0, sizeof(struct seen));
		per_cpu_ptr(&seen, cpu)->dropped =
			pflow_softnet_dropped(per_cpu_ptr(&softnet_data, cpu));
		per_cpu_ptr(&seen, cpu)->squeezed = per_cpu_ptr(&softnet_data, cpu)->time_squeeze;
	}
	err = pflow_crowd_setup();
	if (err)
		goto thread;
	err = pflow_batch_setup();
	if (err)
		goto crowd;
	err = register_trace_napi_poll(on_napi_poll, NULL);
	if (err)
		goto batch;
	err = register_trace_kfree_skb(on_kfree_skb, NULL);
	if (err)
		goto napi_poll;
	last_sample = (u32)jiffies - SAMPLE_EVERY - 1;
	last_learnt = get_jiffies_64() - LEARN_EVERY - 1;
	last_waiting = get_jiffies_64();
	waiting_every = WAITING_EVERY;
	last_busy = get_jiffies_64() - MEASURE_FOR - 1;
	last_pressed = last_busy;
	last_scan = (u32)jiffies - SCAN_EVERY - 1;
	kthread_queue_delayed_work(thread, &estimator_work, 0);
	return 0;

napi_poll:
	unregister_trace_napi_poll(on_napi_poll, NULL);
	tracepoint_synchronize_unregister();
	kthread_cancel_delayed_work_sync(&estimator_work);
	cancel_work_sync(&slow_work);
	pflow_probes_watch(false);
	pflow_threads_note(false);
	pflow_threads_measure(false);
batch:
	pflow_batch_teardown();
crowd:
	pflow_crowd_teardown();
thread:
	kthread_destroy_worker(thread);
queue:
	destroy_workqueue(queue);
	return err;
}

/**
 * pflow_overload_teardown() - stop watching
 *
 * Context: process, may sleep. No probe, thread or worker runs when it returns.
 */
void pflow_overload_teardown(void)
{
	int cpu;

	unregister_trace_kfree_skb(on_kfree_skb, NULL);
	unregister_trace_napi_poll(on_napi_poll, NULL);
	tracepoint_synchronize_unregister();
	/* Nothing raises any more, so the work cannot be queued again. */
	kthread_cancel_delayed_work_sync(&estimator_work);
	kthread_destroy_worker(thread);
	cancel_work_sync(&slow_work);
	pflow_crowd_teardown();
	destroy_workqueue(queue);
	pflow_batch_teardown();
	for_each_possible_cpu(cpu)
		WRITE_ONCE(per_cpu_ptr(&pflow_load, cpu)->watch, 0);
	sampling = false;
	pflow_probes_watch(false);
	pflow_threads_note(false);
	pflow_threads_measure(false);
}

/**
 * pflow_overload_status() - the pressed CPUs, for people
 * @m: where to
 *
 * Context: process.
 */
void pflow_overload_status(struct seq_file *m)
{
	unsigned int pressed = 0;
	int cpu;

	for_each_online_cpu(cpu) {
		const struct pflow_load *load = per_cpu_ptr(&pflow_load, cpu);

		if (!under_pressure(load))
			continue;
		pressed++;
		seq_printf(m, "cpu %d: under pressure; queue stood full %llu ms, %u lost before the stack\n",
			   cpu, div_u64(READ_ONCE(load->standing_ns), NSEC_PER_MSEC),
			   READ_ONCE(load->lost));
	}
	if (!pressed)
		seq_puts(m, "cpus: none under pressure\n");
}

/**
 * pflow_overload_metrics() - the signals, for machines
 * @m: where to
 *
 * Context: process.
 */
void pflow_overload_metrics(struct seq_file *m)
{
	int cpu;

	seq_puts(m, "# TYPE packetflow_cpu_pressed gauge\n"
		    "# HELP packetflow_cpu_pressed 1 while something overflows on the CPU.\n");
	for_each_online_cpu(cpu)
		seq_printf(m, "packetflow_cpu_pressed{cpu=\"%d\"} %u\n", cpu,
			   under_pressure(per_cpu_ptr(&pflow_load, cpu)));
	seq_puts(m, "# TYPE packetflow_cpu_resting gauge\n"
		    "# HELP packetflow_cpu_resting 1 while packets of a pressed CPU are not looked at, as that did not pay.\n");
	for_each_online_cpu(cpu)
		seq_printf(m, "packetflow_cpu_resting{cpu=\"%d\"} %u\n", cpu,
			   READ_ONCE(per_cpu_ptr(&pflow_load, cpu)->resting));
	seq_puts(m, "# TYPE packetflow_cpu_queue_standing_seconds counter\n"
		    "# UNIT packetflow_cpu_queue_standing_seconds seconds\n"
		    "# HELP packetflow_cpu_queue_standing_seconds Time during which a receive queue stood full.\n");
	for_each_online_cpu(cpu) {
		u64 ns = READ_ONCE(per_cpu_ptr(&pflow_load, cpu)->standing_ns);
		u32 rest;
		u64 s = div_u64_rem(ns, NSEC_PER_SEC, &rest);

		seq_printf(m, "packetflow_cpu_queue_standing_seconds_total{cpu=\"%d\"} %llu.%09u\n",
			   cpu, s, rest);
	}
	seq_puts(m, "# TYPE packetflow_cpu_lost_packets counter\n"
		    "# HELP packetflow_cpu_lost_packets Packets seen lost before the protocol stack.\n");
	for_each_online_cpu(cpu)
		seq_printf(m, "packetflow_cpu_lost_packets_total{cpu=\"%d\"} %u\n", cpu,
			   READ_ONCE(per_cpu_ptr(&pflow_load, cpu)->lost));
}
