// SPDX-License-Identifier: GPL-2.0-only
/*
 * pf_filter: drop early what would be dropped anyway, or what costs a more
 * important receiver its packets (PacketFlow filter, section 3.1).
 *
 * Context: process: loading, unloading and the switch.
 */
#include <linux/module.h>

#include "filter.h"

static int filter_start(void)
{
	int err = filter_control_setup();

	if (err)
		return err;
	err = filter_moves_setup();
	if (err)
		goto control;
	err = filter_queues_setup();
	if (err)
		goto moves;
	err = filter_nets_setup();
	if (err)
		goto queues;
	filter_driver_watch(true);
	return 0;

queues:
	filter_queues_teardown();
moves:
	filter_moves_teardown();
control:
	filter_control_teardown();
	return err;
}

static void filter_stop(void)
{
	filter_driver_watch(false);
	filter_nets_teardown();
	filter_queues_teardown();
	filter_moves_teardown();
	filter_control_teardown();
}

static void filter_status(struct seq_file *m)
{
	filter_count_status(m);
	filter_control_status(m);
}

static void filter_metrics(struct seq_file *m)
{
	filter_count_metrics(m);
	filter_nets_metrics(m);
	filter_control_metrics(m);
}

static struct pflow_module filter_module = {
	.name = "filter",
	.knobs = filter_knobs,
	.nr_knobs = FILTER_KNOBS,
	.start = filter_start,
	.stop = filter_stop,
	.watch = filter_nets_watch,
	.times_threads = true,
	.status = filter_status,
	.metrics = filter_metrics,
};

static int __init pf_filter_init(void)
{
	return filter_driver_register() ?: filter_exempt_setup() ?:
	       pflow_module_register(&filter_module);
}

static void __exit pf_filter_exit(void)
{
	pflow_module_unregister(&filter_module);
}

module_init(pf_filter_init);
module_exit(pf_filter_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("PacketFlow filter: early drops that obey the priority of the receiver");
MODULE_VERSION(PFLOW_VERSION);
