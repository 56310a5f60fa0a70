// SPDX-License-Identifier: GPL-2.0-only
/*
 * Walk every process's open files for sockets.
 *
 * Finds the sockets that existed before the module was loaded, those whose
 * learning probe was missed, and, by what it no longer meets, the entries
 * whose release was missed. Runs when the suite starts, when a CPU comes under
 * pressure, when people read the table, and now and then.
 *
 * Tasks are taken in batches by reference, files in batches under the lock
 * that iterate_fd() takes, so neither RCU nor a file table is held for long. A
 * task that is missed because the list moved is met the next time.
 *
 * Context: a worker; process, may sleep.
 */
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/mutex.h>
#include <linux/net.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>

#include "../internal.h"

#define TASK_BATCH	64
#define FILE_BATCH	256

static DEFINE_MUTEX(scan_lock);
static u8 scan_number;
static struct task_struct *tasks[TASK_BATCH];	/* not allocated: a scan must not fail */

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
		pflow_owner_holds(sk, walk->task, scan_number);
		rcu_read_unlock();
	}
	return 0;
}

static void scan_task(struct task_struct *task)
{
	struct file_walk walk = { .task = task };
	int fd = 0;

	do {
		pflow_pool_refill();
		walk.left = FILE_BATCH;
		/* task_lock() keeps ->files while it is walked. */
		task_lock(task);
		fd = task->files ? iterate_fd(task->files, fd, scan_file, &walk) : 0;
		task_unlock(task);
		if (fd)
			fd--;	/* the file at which the batch ended is still to do */
		cond_resched();
	} while (fd);
}

/*
 * A leader that has exited leaves its files to its threads. Not for_each_thread(): where uses
 * of RCU lists are checked it names tasklist_lock, which modules do not get.
 */
static struct task_struct *task_with_files(struct task_struct *process)
{
	struct task_struct *thread;

	list_for_each_entry_rcu(thread, &process->signal->thread_head, thread_node)
		if (READ_ONCE(thread->files))
			return thread;
	return process;
}

/* Take the batch of processes after the first @skip. */
static unsigned int scan_take_tasks(unsigned int skip)
{
	struct task_struct *process;
	unsigned int n = 0;

	lockdep_assert_held(&scan_lock);
	rcu_read_lock();
	for_each_process(process) {
		if (skip) {
			skip--;
			continue;
		}
		tasks[n] = task_with_files(process);
		get_task_struct(tasks[n]);
		if (++n == TASK_BATCH)
			break;
	}
	rcu_read_unlock();
	return n;
}

/**
 * pflow_scan() - bring the table in line with what is open now
 *
 * Context: process, may sleep.
 */
void pflow_scan(void)
{
	unsigned int seen = 0, n, i;

	mutex_lock(&scan_lock);
	if (!++scan_number)	/* 0 means no scan */
		scan_number++;
	do {
		n = scan_take_tasks(seen);
		for (i = 0; i < n; i++) {
			scan_task(tasks[i]);
			put_task_struct(tasks[i]);
		}
		seen += n;
	} while (n == TASK_BATCH);
	pflow_table_reap();
	mutex_unlock(&scan_lock);
}
