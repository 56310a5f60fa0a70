// SPDX-License-Identifier: GPL-2.0-only
/*
 * The estimator: a thread that has the modules look where it is worth it.
 *
 * It wakes ten times a second and reads a few counters (signals.c, waiting.c). It wakes at once
 * when a CPU comes under pressure (pressure.c). At peace it has packets counted for a moment every
 * ten seconds, and when somebody reads the table. So owners and rates are known before they are
 * needed.
 *
 * Context: a thread of a real-time class. An ordinary thread would hardly run on the overloaded
 * CPU, least of all beside receivers that pf_sched has raised. Work that may take long is left to
 * workers: attaching, detaching, and scans, which anybody can make long.
 */
#include <linux/kthread.h>
#include <linux/workqueue.h>

#include "../compat/compat.h"
#include "../internal.h"

/* In jiffies, but for SAMPLE_MS. */
#define PERIOD		(HZ / 10)	/* between two rounds */
#define SOON		max(HZ / 50, 1)	/* to the next round after something was done */
#define LEARN_EVERY	HZ		/* calls are looked at so often under pressure */
#define LEARN_FOR	(HZ / 10)	/* and for so long */
#define MEASURE_FOR	(10 * HZ)	/* softirqs are measured so long, as attaching costs, too */
#define SAMPLE_MS	60		/* length of a sample at peace */
#define SAMPLE_EVERY	(10 * HZ)
#define SCAN_EVERY	(30 * HZ)	/* a scan begins so long after the last one, at most */
#define SCAN_APART	(5 * HZ)	/* and so long after it, at least */
#define SCAN_PAUSE	(HZ / 2)	/* between two steps of a scan */

static struct kthread_worker *thread;
static void estimator_round(struct kthread_work *work);
static struct kthread_delayed_work estimator_work;
static struct workqueue_struct *queue;
static void estimator_attach(struct work_struct *work);
static DECLARE_WORK(attach_work, estimator_attach);
static void estimator_scan(struct work_struct *work);
static DECLARE_DELAYED_WORK(scan_work, estimator_scan);

/* What the estimator wants to be attached. */
static struct {
	bool learn;	/* calls armed */
	bool sends;	/* sends looked at */
	bool measure;	/* softirqs measured */
} wanted;

static bool sampling;
static bool sample_asked;
static bool learn_asked;
static u32 news_wanted;		/* stamp of when those who begin to receive last mattered */
static bool learn_anew;		/* calls are armed only now */
static u32 last_sample;
static u64 last_learnt;
static u64 last_busy;
static u64 last_pressed;
static u32 last_scan;
static bool scanning;

/**
 * pflow_estimator_wake() - have the estimator look now, as a CPU came under pressure
 *
 * Context: any but NMI.
 */
void pflow_estimator_wake(void)
{
	kthread_mod_delayed_work(thread, &estimator_work, 0);
}

/**
 * pflow_load_learn() - ask for a look at who receives
 *
 * The estimator looks once a second at most, and only under pressure or if some CPU has no time to
 * spare.
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
 * pflow_load_learn_news() - have those seen who begin to receive
 *
 * For whoever has threads run before all others. Who is kept from receiving by that has to be known
 * as soon as he receives once. It begins within a tenth of a second, and lasts as long.
 *
 * Context: any but NMI.
 */
void pflow_load_learn_news(void)
{
	u32 now = pflow_stamp_now();

	if (READ_ONCE(news_wanted) != now)
		WRITE_ONCE(news_wanted, now);
}
EXPORT_SYMBOL_GPL(pflow_load_learn_news);

/* CPUs that are offline are read, too: the pressure of one that went offline has to end as well. */
static bool signals_read_all(void)
{
	bool pressed = false;
	int cpu;

	for_each_possible_cpu(cpu) {
		pflow_signals_read(cpu);
		pflow_load_expire(per_cpu_ptr(&pflow_load, cpu));
		pressed |= pflow_load_pressed(per_cpu_ptr(&pflow_load, cpu));
	}
	return pressed;
}

static void estimator_set_sampling(bool on)
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

static bool estimator_is_due(u32 last, u32 every)
{
	return time_after32((u32)jiffies, last + every);
}

/*
 * Under pressure owners are learnt at once, and again every second. To learn at every receive call
 * would cost just those receivers that have too little. A look lasts %LEARN_FOR, however often the
 * estimator is woken meanwhile.
 */
static bool estimator_is_learning(bool pressed, bool busy)
{
	bool asked = pressed || (busy && READ_ONCE(learn_asked));
	u64 now = get_jiffies_64();	/* 64 bits, as the last look may be months ago */

	if (xchg(&learn_anew, false) || (asked && now - last_learnt > LEARN_EVERY)) {
		WRITE_ONCE(learn_asked, false);
		last_learnt = now;
	}
	return now - last_learnt <= LEARN_FOR;
}

static void estimator_watch_calls(bool all)
{
	bool news = pflow_within(READ_ONCE(news_wanted), LEARN_FOR);

	pflow_calls_watch(all ? PFLOW_WATCH_ALL : news ? PFLOW_WATCH_NEWS : PFLOW_WATCH_NONE);
}

/* Do what the estimator wants and has no time for. */
static void estimator_attach(struct work_struct *work)
{
	if (READ_ONCE(wanted.learn) && pflow_calls_arm())
		WRITE_ONCE(learn_anew, true);
	pflow_calls_want_sends(READ_ONCE(wanted.sends));
	pflow_threads_measure(READ_ONCE(wanted.measure));
}

static void estimator_scan(struct work_struct *work)
{
	if (!pflow_scan()) {
		queue_delayed_work(queue, &scan_work, SCAN_PAUSE);
		return;
	}
	WRITE_ONCE(last_scan, (u32)jiffies);
	WRITE_ONCE(scanning, false);
}

static void estimator_round(struct kthread_work *work)
{
	static bool before;	/* was there pressure */
	/* One estimator runs at a time. */
	static struct cpumask busy_cpus, idle_cpus;
	bool pressed = signals_read_all(), busy = pflow_waiting_busy(&busy_cpus, &idle_cpus);
	bool learn, lately, note, soon;
	unsigned long delay;

	pflow_step_aside();
	estimator_set_sampling(!pressed && estimator_is_due(READ_ONCE(last_sample), SAMPLE_EVERY));
	learn = estimator_is_learning(pressed, busy) || (sampling && READ_ONCE(sample_asked));
	if (pressed)
		last_pressed = get_jiffies_64();
	if (pressed || busy)
		last_busy = get_jiffies_64();
	lately = get_jiffies_64() - last_pressed <= MEASURE_FOR;
	note = get_jiffies_64() - last_busy <= MEASURE_FOR;
	pflow_modules_pressure(busy || pressed, lately || sampling);
	estimator_watch_calls(learn || sampling);
	pflow_threads_note(note);
	WRITE_ONCE(wanted.learn, learn);
	WRITE_ONCE(wanted.sends, note);
	WRITE_ONCE(wanted.measure, lately && pflow_modules_time_threads());
	queue_work(queue, &attach_work);
	if (!READ_ONCE(scanning) &&
	    estimator_is_due(READ_ONCE(last_scan), pressed && !before ? SCAN_APART : SCAN_EVERY)) {
		WRITE_ONCE(scanning, true);
		queue_delayed_work(queue, &scan_work, 0);
	}
	if (busy)
		pflow_waiting_check();
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
 * pflow_estimator_sample() - learn owners and rates now, for whoever reads them
 *
 * Context: process, sleeps for the length of a sample; a signal ends it.
 */
void pflow_estimator_sample(void)
{
	WRITE_ONCE(sample_asked, true);
	WRITE_ONCE(last_sample, pflow_stamp_past(SAMPLE_EVERY));
	kthread_mod_delayed_work(thread, &estimator_work, 0);
	msleep_interruptible(SAMPLE_MS + SAMPLE_MS / 2);
}

/**
 * pflow_estimator_setup() - start watching
 *
 * Context: process, may sleep. Return: 0 or a negative error, and then nothing
 * is left attached.
 */
int pflow_estimator_setup(void)
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
	kthread_init_delayed_work(&estimator_work, estimator_round);
	for_each_possible_cpu(cpu)
		memset(per_cpu_ptr(&pflow_load, cpu), 0, sizeof(struct pflow_load));
	pflow_waiting_setup();
	err = pflow_crowd_setup();
	if (err)
		goto thread;
	err = pflow_batch_setup();
	if (err)
		goto crowd;
	err = pflow_signals_setup();
	if (err)
		goto batch;
	last_sample = pflow_stamp_past(SAMPLE_EVERY);
	last_learnt = get_jiffies_64() - LEARN_EVERY - 1;
	last_busy = get_jiffies_64() - MEASURE_FOR - 1;
	last_pressed = last_busy;
	last_scan = pflow_stamp_past(SCAN_EVERY);
	scanning = false;
	news_wanted = 0;
	kthread_queue_delayed_work(thread, &estimator_work, 0);
	return 0;

batch:
	/* A signal that came between the two may have woken it. */
	kthread_cancel_delayed_work_sync(&estimator_work);
	cancel_work_sync(&attach_work);
	cancel_delayed_work_sync(&scan_work);
	pflow_calls_watch(PFLOW_WATCH_NONE);
	pflow_threads_note(false);
	pflow_threads_measure(false);
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
 * pflow_estimator_teardown() - stop watching
 *
 * Context: process, may sleep. No probe, thread or worker runs when it returns.
 */
void pflow_estimator_teardown(void)
{
	int cpu;

	pflow_signals_teardown();
	/* Nothing raises any more, so the work cannot be queued again. */
	kthread_cancel_delayed_work_sync(&estimator_work);
	kthread_destroy_worker(thread);
	cancel_work_sync(&attach_work);
	cancel_delayed_work_sync(&scan_work);
	pflow_crowd_teardown();
	destroy_workqueue(queue);
	pflow_batch_teardown();
	for_each_possible_cpu(cpu)
		WRITE_ONCE(per_cpu_ptr(&pflow_load, cpu)->watch, 0);
	sampling = false;
	pflow_calls_watch(PFLOW_WATCH_NONE);
	pflow_threads_note(false);
	pflow_threads_measure(false);
}
