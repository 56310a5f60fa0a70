// SPDX-License-Identifier: GPL-2.0-only
/*
 * pf_sched: a process whose socket buffer fills runs sooner for a while, and nothing of that is
 * left behind (PacketFlow scheduler, the paper's section 3.2).
 *
 * hook.c sees that a buffer fills, elect.c decides whether its receiver is raised, lever.c raises
 * it, and boost.c looks after it and restores it. Here is loading, unloading and the switch.
 *
 * Context: process: loading, unloading and the switch.
 */
#include <linux/capability.h>
#include <linux/module.h>

#include "sched.h"

static int sched_start(void)
{
	int err = boost_setup();

	if (err)
		return err;
	err = fork_setup() ?: lend_setup() ?: hook_setup();
	if (err) {
		lend_teardown();
		boost_teardown();
		fork_teardown();
	}
	return err;
}

/* Children of those still raised are looked after until all are restored. */
static void sched_stop(void)
{
	hook_teardown();
	lend_teardown();
	boost_teardown();
	fork_teardown();
}

static void sched_status(struct seq_file *m)
{
	boost_status(m);
	lever_status(m);
}

static void sched_metrics(struct seq_file *m)
{
	hook_metrics(m);
	boost_metrics(m);
	lever_metrics(m);
}

static struct pflow_module sched_module = {
	.name = "sched",
	.knobs = sched_knobs,
	.nr_knobs = SCHED_KNOBS,
	.capability = CAP_SYS_NICE,
	.start = sched_start,
	.stop = sched_stop,
	.pressure = hook_note_pressure,
	.times_threads = true,
	.status = sched_status,
	.metrics = sched_metrics,
};

static int __init pf_sched_init(void)
{
	return pflow_module_register(&sched_module);
}

static void __exit pf_sched_exit(void)
{
	pflow_module_unregister(&sched_module);
}

module_init(pf_sched_init);
module_exit(pf_sched_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("PacketFlow scheduler: a process whose socket buffer fills runs sooner");
MODULE_VERSION(PFLOW_VERSION);
