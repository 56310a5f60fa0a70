// SPDX-License-Identifier: GPL-2.0-only
/*
 * A child does not inherit its parent's boost.
 *
 * The tracepoint task_newtask passes the child complete and not yet running, the
 * kernel's own workers on behalf of a process (io_uring) included.
 *
 * Context: the parent's, preemption off.
 */
#include <linux/tracepoint.h>

#include "sched.h"

static struct tracepoint *forked;

static void on_fork(void *unused, struct task_struct *child, unsigned long clone_flags)
{
	boost_child(current, child);
}

/**
 * fork_setup() - watch for children
 *
 * Context: process, may sleep. Return: 0 or a negative error.
 */
int fork_setup(void)
{
	forked = pflow_tracepoint_find("task_newtask");
	if (!forked) {
		pr_err("no tracepoint task_newtask: children would inherit boosts; refusing to start\n");
		return -ENOENT;
	}
	return tracepoint_probe_register(forked, on_fork, NULL);
}

/**
 * fork_teardown() - stop watching
 *
 * Context: process, may sleep. The probe runs nowhere any more on return.
 */
void fork_teardown(void)
{
	tracepoint_probe_unregister(forked, on_fork, NULL);
	tracepoint_synchronize_unregister();
}
