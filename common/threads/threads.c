// SPDX-License-Identifier: GPL-2.0-only
/*
 * The threads that receive: how much of the time each runs, and how much it is kept
 * from running.
 *
 * A server that answers requests loses no packet when it has too little of a CPU. It waits, in two
 * places. One is the run queue. The scheduler counts that time (sched_info.run_delay). The other is
 * beneath a softirq that runs on top of the thread. Debian's stock kernels do not account for
 * interrupts apart, so the scheduler counts that time as the thread's own. So the time of softirqs
 * that receive is measured here, by the two tracepoints around each, and charged to the thread
 * beneath.
 *
 * A thread enters when it is seen in a receive call while somebody looks. It leaves when it has not
 * been seen for PFLOW_HOLD, or for twice as long while it is awake, or has ended. Slots name
 * threads by id and start time; nothing is held.
 *
 * Context: softirq for the tracepoints, process context for receive calls, both on the
 * thread's own CPU; samples are taken by a timer or a thread, one at a time.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/hash.h>
#include <linux/interrupt.h>
#include <linux/pid_namespace.h>
#include <linux/sched/clock.h>
#include <linux/spinlock.h>

#include "../internal.h"

#define PROBES		8	/* slots that a thread may have */
#define MEMORY_US	50000	/* shares are means that decay in so long */
#define APART_US	2000	/* a sample that follows sooner tells nothing */
#define BACKLOG_ONES	32
#define KEPT_FOR	(HZ / 2)	/* equals leave a thread its slot so long; 10 x MEMORY_US */
#define STALE_US	1000000	/* nor does one that follows much later */
#define ASLEEP		(PFLOW_ONE / 64)	/* who runs or waits for no more of the time */

struct pflow_thread pflow_threads[PFLOW_THREADS];
EXPORT_SYMBOL_GPL(pflow_threads);

static bool noting;	/* who receives */
static bool measuring;	/* softirqs */
static DEFINE_RAW_SPINLOCK(sample_lock);
static DEFINE_PER_CPU(u64, entered);	/* local_clock() when the softirq began; 0: none runs */

static struct pflow_thread *thread_slot(pid_t pid, unsigned int probe)
{
	return &pflow_threads[(hash_32(pid, ilog2(PFLOW_THREADS)) + probe) % PFLOW_THREADS];
}

/**
 * pflow_thread_find() - find a thread that receives
 * @pid: its id in the initial namespace
 *
 * Context: any. Return: its slot, which may become another thread's at any moment, or NULL.
 */
struct pflow_thread *pflow_thread_find(pid_t pid)
{
	unsigned int i;

	for (i = 0; i < PROBES; i++) {
		struct pflow_thread *thread = thread_slot(pid, i);

		if (pid && READ_ONCE(thread->pid) == pid)
			return thread;
	}
	return NULL;
}
EXPORT_SYMBOL_GPL(pflow_thread_find);

/**
 * pflow_thread_task() - the task of a thread that receives
 * @thread: its slot, which may be free
 *
 * Context: RCU read side. Return: it, or NULL if it has ended.
 */
struct task_struct *pflow_thread_task(const struct pflow_thread *thread)
{
	pid_t pid = READ_ONCE(thread->pid);
	struct task_struct *task;

	if (!pid)
		return NULL;
	task = pid_task(find_pid_ns(pid, &init_pid_ns), PIDTYPE_PID);
	return task && pflow_task_born(task) == READ_ONCE(thread->born) ? task : NULL;
}
EXPORT_SYMBOL_GPL(pflow_thread_task);

static struct pflow_thread *thread_claim(pid_t pid)
{
	unsigned int i;

	for (i = 0; i < PROBES; i++) {
		struct pflow_thread *thread = thread_slot(pid, i);

		if (!READ_ONCE(thread->pid) && !cmpxchg(&thread->pid, 0, pid))
			return thread;
	}
	return NULL;
}

/*
 * Find a free slot for a thread, or else take that of one that has to make room. Slots that threads
 * may have overlap, so threads of three users might push each other out for ever. So an equal that
 * has entered lately stays.
 */
static struct pflow_thread *thread_enter(pid_t pid, u8 rank, u32 user)
{
	struct pflow_thread *thread = thread_claim(pid);
	pid_t pids[PROBES];
	u16 ranks[PROBES];
	u32 users[PROBES];
	unsigned int i;
	int who;

	if (thread)
		return thread;
	for (i = 0; i < PROBES; i++) {
		thread = thread_slot(pid, i);
		pids[i] = READ_ONCE(thread->pid);
		ranks[i] = READ_ONCE(thread->rank);
		users[i] = READ_ONCE(thread->user);
	}
	who = pflow_gives_way(ranks, users, PROBES, rank, user);
	if (who < 0)
		return NULL;
	thread = thread_slot(pid, who);
	if (ranks[who] == rank && pflow_recent(READ_ONCE(thread->entered), KEPT_FOR))
		return NULL;
	if (cmpxchg(&thread->pid, pids[who], pid) != pids[who])
		return NULL;
	/* Who looks for a place just now is to see whose it is. The rest follows. */
	WRITE_ONCE(thread->user, user);
	WRITE_ONCE(thread->rank, rank);
	return thread;
}

/**
 * pflow_thread_note_receive() - note that current is receiving
 * @rank: its rank
 * @stream: from a TCP socket, not a UDP one
 *
 * Context: process, preemption may be off.
 */
void pflow_thread_note_receive(u8 rank, bool stream)
{
	struct pflow_thread *thread;

	if (!READ_ONCE(noting))
		return;
	thread = pflow_thread_find(current->pid);
	if (!thread)
		thread = thread_enter(current->pid, rank, pflow_task_user(current));
	/* All slots are taken by threads that are as important. */
	if (!thread)
		return;
	/* It was another thread's slot. What was known of that one is void, see thread_sample(). */
	if (READ_ONCE(thread->born) != pflow_task_born(current)) {
		WRITE_ONCE(thread->streams_at, 0);
		WRITE_ONCE(thread->datagrams_at, 0);
		WRITE_ONCE(thread->answers_at, 0);
		WRITE_ONCE(thread->asked_at, 0);
		WRITE_ONCE(thread->late_at, 0);
		WRITE_ONCE(thread->user, pflow_task_user(current));
		WRITE_ONCE(thread->entered, (u32)jiffies);
		WRITE_ONCE(thread->born, pflow_task_born(current));
	}
	WRITE_ONCE(thread->rank, rank);
	WRITE_ONCE(thread->cpu, raw_smp_processor_id());
	WRITE_ONCE(thread->seen, (u32)jiffies);
	if (stream)
		WRITE_ONCE(thread->streams_at, pflow_stamp_now());
	else
		WRITE_ONCE(thread->datagrams_at, pflow_stamp_now());
}

/*
 * Packets that only the backlog hands on (loopback, veth) may have a softirq each. To read a clock
 * costs as much as such a softirq. So one in BACKLOG_ONES of them is measured, and stands for those
 * that were skipped. One that has a device to poll is always measured.
 */
static DEFINE_PER_CPU(u32, skipped);
static DEFINE_PER_CPU(u32, device_polls);	/* as the softirq began that is measured */

/* An interrupt may add a device just now. Then one is skipped that should not be. */
static bool softirq_is_backlogs(void)
{
	struct softnet_data *sd = this_cpu_ptr(&softnet_data);
	const struct list_head *backlog = &sd->backlog.poll_list;

	return READ_ONCE(sd->poll_list.next) == backlog && READ_ONCE(sd->poll_list.prev) == backlog;
}

static void on_softirq_entry(void *unused, unsigned int vec)
{
	if (vec != NET_RX_SOFTIRQ)
		return;
	if (softirq_is_backlogs() && this_cpu_read(skipped) < BACKLOG_ONES - 1) {
		this_cpu_inc(skipped);
		return;
	}
	this_cpu_write(device_polls, this_cpu_read(pflow_load.device_polls));
	this_cpu_write(entered, local_clock());
}

static void on_softirq_exit(void *unused, unsigned int vec)
{
	struct pflow_load *load = this_cpu_ptr(&pflow_load);
	struct pflow_thread *thread;
	u64 spent;

	if (vec != NET_RX_SOFTIRQ || !this_cpu_read(entered))
		return;
	spent = local_clock() - this_cpu_read(entered);
	this_cpu_write(entered, 0);
	if (load->device_polls == this_cpu_read(device_polls)) {
		spent *= 1 + this_cpu_read(skipped);
		this_cpu_write(skipped, 0);
	}
	WRITE_ONCE(load->softirq_ns, load->softirq_ns + spent);
	thread = pflow_thread_find(current->pid);
	if (!thread)
		return;
	WRITE_ONCE(thread->stolen_ns, READ_ONCE(thread->stolen_ns) + spent);
}

static struct pflow_trace entry_trace = { "softirq_entry", on_softirq_entry,
	"nobody is shed for a receiver that waits while softirqs run" };
static struct pflow_trace exit_trace = { "softirq_exit", on_softirq_exit,
	"nobody is shed for a receiver that waits while softirqs run" };

/* Attach both tracepoints. If that fails now, it is tried again at the next onset. */
static int softirq_traces_attach(void)
{
	int cpu, err;

	/* A softirq that had begun when the probes were detached has no end. */
	for_each_possible_cpu(cpu) {
		per_cpu(entered, cpu) = 0;
		per_cpu(skipped, cpu) = 0;
	}
	err = pflow_trace_attach(&entry_trace);
	if (err)
		return err;
	err = pflow_trace_attach(&exit_trace);
	if (err)
		pflow_trace_detach(&entry_trace);
	return err;
}

static void softirq_traces_detach(void)
{
	pflow_trace_detach(&exit_trace);
	pflow_trace_detach(&entry_trace);
}

static void thread_forget(struct pflow_thread *thread)
{
	lockdep_assert_held(&sample_lock);
	thread->at_ns = 0;
	WRITE_ONCE(thread->known_us, 0);
	WRITE_ONCE(thread->run, 0);
	WRITE_ONCE(thread->wait, 0);
	WRITE_ONCE(thread->stolen_ns, 0);
	WRITE_ONCE(thread->born, 0);
	WRITE_ONCE(thread->rank, 0);
	WRITE_ONCE(thread->pid, 0);
}

static void threads_forget_all(void)
{
	unsigned long irq;
	unsigned int i;

	raw_spin_lock_irqsave(&sample_lock, irq);
	for (i = 0; i < PFLOW_THREADS; i++)
		thread_forget(&pflow_threads[i]);
	raw_spin_unlock_irqrestore(&sample_lock, irq);
}

/**
 * pflow_threads_note() - note who receives, or not
 * @on: which
 *
 * Context: process; one caller at a time.
 */
void pflow_threads_note(bool on)
{
	if (on == noting)
		return;
	WRITE_ONCE(noting, on);
	/* A thread that is still in a receive call may enter once more, and is forgotten later. */
	if (!on)
		threads_forget_all();
}

/**
 * pflow_threads_measure() - measure softirqs, or not
 * @on: which; it costs each softirq two calls
 *
 * Context: process, may sleep; one caller at a time.
 */
void pflow_threads_measure(bool on)
{
	if (on && !measuring && softirq_traces_attach())
		pr_warn_ratelimited("cannot measure softirqs: nobody is shed for a receiver that waits while they run\n");
	else if (!on && measuring)
		softirq_traces_detach();
	measuring = on;
}

/* How long a task has waited for a CPU in its life, the wait that has not ended included. */
static u64 task_waited_ns(const struct task_struct *task, u64 now)
{
#ifdef CONFIG_SCHED_INFO
	/* Read in this order, a wait that ends in between is missed once, and not counted twice. */
	u64 waited = data_race(READ_ONCE(task->sched_info.run_delay));
	/* The scheduler writes both plainly. */
	u64 since = data_race(READ_ONCE(task->sched_info.last_queued));

	return since && since < now ? waited + now - since : waited;
#else
	return 0;
#endif
}

/* A mean over what is known of a thread, so the first sample stands for itself. */
static u32 thread_mean_share(u32 before, u32 known_us, u64 part_ns, u64 whole_us)
{
	u64 share = min_t(u64, div64_u64(part_ns * PFLOW_ONE, whole_us * NSEC_PER_USEC),
			  PFLOW_ONE);
	s64 step = ((s64)share - before) * (s64)whole_us;

	return before + (s32)div_s64(step, (s32)(whole_us + known_us));
}

/* Counters that another CPU writes may seem to step back. */
static u64 count_growth(u64 *seen, u64 now)
{
	u64 more = now > *seen ? now - *seen : 0;

	*seen += more;
	return more;
}

static void thread_sample(struct pflow_thread *thread, const struct task_struct *task, u64 now)
{
	u32 born = pflow_task_born(task);
	bool fresh = !thread->at_ns || thread->sampled != born ||
		     (s64)(now - thread->at_ns) > (s64)STALE_US * NSEC_PER_USEC;
	u64 run, wait, stolen, elapsed_us;

	lockdep_assert_held(&sample_lock);
	if (!fresh && now < thread->at_ns + APART_US * NSEC_PER_USEC)
		return;
	elapsed_us = div_u64(now - thread->at_ns, NSEC_PER_USEC);
	if (fresh) {
		thread->exec_seen_ns = 0;
		thread->wait_seen_ns = 0;
		thread->stolen_seen_ns = 0;
		thread->sampled = born;
		WRITE_ONCE(thread->known_us, 0);
		WRITE_ONCE(thread->run, 0);
		WRITE_ONCE(thread->wait, 0);
	}
	/* The scheduler writes it plainly; an older value does. */
	run = count_growth(&thread->exec_seen_ns, data_race(READ_ONCE(task->se.sum_exec_runtime)));
	wait = count_growth(&thread->wait_seen_ns, task_waited_ns(task, now));
	stolen = count_growth(&thread->stolen_seen_ns, READ_ONCE(thread->stolen_ns));
	thread->at_ns = now;
	WRITE_ONCE(thread->cpu, task_cpu(task));
	if (fresh)
		return;
	run = run > stolen ? run - stolen : 0;
	WRITE_ONCE(thread->run,
		   thread_mean_share(thread->run, thread->known_us, run, elapsed_us));
	WRITE_ONCE(thread->wait,
		   thread_mean_share(thread->wait, thread->known_us, wait + stolen, elapsed_us));
	WRITE_ONCE(thread->known_us, min_t(u64, thread->known_us + elapsed_us, MEMORY_US));
}

/*
 * Does it receive no longer? One that runs or waits may just have been asked again, and not be seen
 * yet. It stays for as long again.
 */
static bool thread_is_gone(const struct pflow_thread *thread)
{
	bool sleeps = thread->known_us && thread->run + thread->wait <= ASLEEP;

	lockdep_assert_held(&sample_lock);
	return !pflow_recent(READ_ONCE(thread->seen), sleeps ? PFLOW_HOLD : 2 * PFLOW_HOLD);
}

/**
 * pflow_threads_sample() - bring all threads' shares up to date
 *
 * Context: any but hard interrupt and NMI.
 */
void pflow_threads_sample(void)
{
	unsigned long irq;
	unsigned int i;
	u64 now;

	if (!raw_spin_trylock_irqsave(&sample_lock, irq))
		return;
	now = local_clock();
	rcu_read_lock();
	for (i = 0; i < PFLOW_THREADS; i++) {
		struct pflow_thread *thread = &pflow_threads[i];
		const struct task_struct *task;

		if (!READ_ONCE(thread->pid))
			continue;
		task = pflow_thread_task(thread);
		if (task)
			thread_sample(thread, task, now);
		if (!task || thread_is_gone(thread))
			thread_forget(thread);
	}
	rcu_read_unlock();
	raw_spin_unlock_irqrestore(&sample_lock, irq);
}
EXPORT_SYMBOL_GPL(pflow_threads_sample);
