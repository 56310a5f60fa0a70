// SPDX-License-Identifier: GPL-2.0-only
/*
 * The scan: it walks every process's open files for sockets.
 *
 * It finds sockets that were there before the module was loaded, and those for which a probe was
 * missed. An entry that it does not meet for long belongs to a socket whose release was missed. It
 * runs when the suite starts, when a CPU comes under pressure, when people read the table, and now
 * and then.
 *
 * A user may have any number of processes and files. So a scan goes in steps of so many files each,
 * from where the last step ended, and the worker leaves time between them. A table of files that
 * several processes share is walked once.
 *
 * Tasks are taken in batches by reference, and files in batches under the lock that iterate_fd()
 * takes. So neither RCU nor a table of files is held for long. A task that is missed because the
 * list moved is met the next time.
 *
 * Context: a worker; process, may sleep.
 */
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/hash.h>
#include <linux/mutex.h>
#include <linux/net.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>

#include "../internal.h"

#define TASK_BATCH	64	/* tasks that are held at a time */
#define FILE_BATCH	256	/* files that are looked at under one lock */
#define STEP		100000	/* files, of 0.1 to 0.3 us each */
#define TASK_COST	16	/* a process without files takes as long as so many of them */
#define SHARED_BITS	6	/* 64 shared tables of files are remembered, by their hash */

static DEFINE_MUTEX(scan_lock);
static struct task_struct *processes[TASK_BATCH];	/* not allocated: a scan must not fail */

/* The scan that is under way, if any; under scan_lock. */
static struct {
	u8 number;			/* of this one, or the last one; 0 means no scan */
	bool under_way;
	u32 began;			/* jiffies */
	struct task_struct *last;	/* process met last, by reference; or NULL */
	unsigned int met;		/* processes met so far */
	const void *shared[1 << SHARED_BITS];	/* tables of files met; only compared */
} scan;

struct file_walk {
	struct task_struct *task;
	unsigned int left;
};

static int scan_file(const void *data, struct file *file, unsigned int fd)
{
	struct file_walk *walk = (struct file_walk *)data;
	struct socket *sock;
	struct sock *sk;

	if (!walk->left--)
		return fd + 1;	/* iterate_fd() stops and returns it */
	sock = sock_from_file(file);
	sk = sock ? pflow_process_sock(sock) : NULL;
	if (sk) {
		rcu_read_lock();
		pflow_owner_note_holding(sk, walk->task, scan.number);
		rcu_read_unlock();
	}
	return 0;
}

/*
 * Was this task's table of files walked for another task? Tables are told by their address. So a
 * new shared table at the address of one that was walked is passed over until the next scan.
 */
static bool scan_met_files(struct task_struct *task)
{
	const void **met = NULL;
	bool before = false;

	lockdep_assert_held(&scan_lock);
	task_lock(task);
	if (task->files && atomic_read(&task->files->count) > 1)
		met = &scan.shared[hash_ptr(task->files, SHARED_BITS)];
	if (met) {
		before = *met == task->files;
		*met = task->files;
	}
	task_unlock(task);
	return before;
}

/* Walk a task's table of files. Return: files met. */
static unsigned int scan_files(struct task_struct *task)
{
	struct file_walk walk = { .task = task };
	unsigned int files = 0;
	int fd = 0;

	if (scan_met_files(task))
		return 0;
	do {
		pflow_pool_refill();
		walk.left = FILE_BATCH;
		/* task_lock() keeps ->files while it is walked. */
		task_lock(task);
		fd = task->files ? iterate_fd(task->files, fd, scan_file, &walk) : 0;
		task_unlock(task);
		files += FILE_BATCH - (fd ? 0 : walk.left);
		if (fd)
			fd--;	/* the file at which the batch ended is still to do */
		cond_resched();
	} while (fd);
	return files;
}

/*
 * A leader that has exited leaves its files to its threads. for_each_thread() is of no use here: in
 * kernels that check uses of RCU lists it names tasklist_lock, which modules do not get.
 */
static struct task_struct *task_with_files(struct task_struct *process)
{
	struct task_struct *thread;

	list_for_each_entry_rcu(thread, &process->signal->thread_head, thread_node)
		if (READ_ONCE(thread->files))
			return thread;
	return process;
}

/* Walk the files of a process. Return: files met. */
static unsigned int scan_process(struct task_struct *process)
{
	struct task_struct *task;
	unsigned int files;

	rcu_read_lock();
	task = task_with_files(process);
	get_task_struct(task);
	rcu_read_unlock();
	files = scan_files(task);
	put_task_struct(task);
	return files;
}

/* Where to go on. If the process met last is gone, as many are skipped as were met. */
static struct task_struct *scan_where_left(void)
{
	struct task_struct *process = &init_task;
	unsigned int i;

	lockdep_assert_held(&scan_lock);
	if (scan.last && pid_alive(scan.last))
		return next_task(scan.last);
	for (i = 0; i <= scan.met && (i == 0 || process != &init_task); i++)
		process = next_task(process);
	return process;
}

/* Take the next batch of processes. */
static unsigned int scan_take_processes(void)
{
	struct task_struct *process;
	unsigned int n = 0;

	lockdep_assert_held(&scan_lock);
	rcu_read_lock();
	for (process = scan_where_left(); process != &init_task && n < TASK_BATCH;
	     process = next_task(process)) {
		get_task_struct(process);
		processes[n++] = process;
	}
	rcu_read_unlock();
	return n;
}

/* The reference is the scan's from now on. */
static void scan_note_last(struct task_struct *process)
{
	lockdep_assert_held(&scan_lock);
	if (scan.last)
		put_task_struct(scan.last);
	scan.last = process;
}

static void scan_begin(void)
{
	scan_note_last(NULL);
	scan.met = 0;
	scan.began = jiffies;
	memset(scan.shared, 0, sizeof(scan.shared));
	if (!++scan.number)
		scan.number++;
	scan.under_way = true;
}

/* Go on for about so many files. Return: whether all has been met. */
static bool scan_go_on(unsigned int files)
{
	unsigned int done = 0, n, i;

	lockdep_assert_held(&scan_lock);
	if (!scan.under_way)
		scan_begin();
	do {
		n = scan_take_processes();
		for (i = 0; i < n && done < files; i++) {
			done += TASK_COST + scan_process(processes[i]);
			scan.met++;
			scan_note_last(processes[i]);
		}
		for (; i < n; i++)
			put_task_struct(processes[i]);
	} while (n && done < files);
	if (n)
		return false;
	pflow_table_reap(scan.began);
	scan_note_last(NULL);
	scan.under_way = false;
	return true;
}

/**
 * pflow_scan() - go one step in bringing the table in line with what is open now
 *
 * Context: process, may sleep, for some 30 ms, or as long as one process has files.
 * Return: whether all that is open has been met.
 */
bool pflow_scan(void)
{
	bool all;

	mutex_lock(&scan_lock);
	all = scan_go_on(STEP);
	mutex_unlock(&scan_lock);
	return all;
}

/**
 * pflow_scan_whole() - meet all that is open, from the beginning
 *
 * The more processes and files there are, the longer it takes. So it is only for when the suite
 * stops.
 *
 * Context: process, may sleep.
 */
void pflow_scan_whole(void)
{
	mutex_lock(&scan_lock);
	scan_begin();
	scan_go_on(UINT_MAX);
	mutex_unlock(&scan_lock);
}
