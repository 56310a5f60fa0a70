// SPDX-License-Identifier: GPL-2.0-only
/*
 * A child does not inherit its parent's boost.
 *
 * The tracepoint task_newtask passes the child complete and not yet running, the
 * kernel's own workers on behalf of a process (io_uring) included.
 *
 * Context: the parent's, preemption off.
 */
#include "../common/compat/compat.h"
#include "sched.h"

static void on_fork(PFLOW_NEWTASK_ARGS)
{
	boost_child(current, child);
}

static struct pflow_trace forked = {
	"task_newtask", on_fork, "children would inherit boosts; refusing to start",
};

/**
 * fork_setup() - watch for children
 *
 * Context: process, may sleep. Return: 0 or a negative error.
 */
int fork_setup(void)
{
	int err = pflow_trace_attach(&forked);

	return err || forked.point ? err : -ENOENT;
}

/**
 * fork_teardown() - stop watching
 *
 * Context: process, may sleep. The probe runs nowhere any more on return.
 */
void fork_teardown(void)
{
	pflow_trace_detach(&forked);
}
