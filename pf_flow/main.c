// SPDX-License-Identifier: GPL-2.0-only
/*
 * pf_flow: flows with an average and a peak rate, a queue and a share, for what
 * comes in by any device. What exceeds its flow's tokens waits or is dropped before
 * the protocols have worked on it.
 *
 * Flows are there from loading to unloading. Hooks and the server are there while the suite runs.
 *
 * Context: process: loading, unloading and the switch.
 */
#include <linux/module.h>

#include "flow.h"

static struct pflow_module flow_module = {
	.name = "flow",
	.knobs = flow_knobs,
	.nr_knobs = FLOW_KNOBS,
	.start = flow_nets_start,
	.stop = flow_nets_stop,
	.status = flow_status,
	.metrics = flow_metrics,
};

static int __init pf_flow_init(void)
{
	int err = flow_exempt_setup() ?: flow_recall_setup();

	if (err)
		return err;
	flow_table_setup();
	err = flow_receiver_setup();
	if (err)
		goto recall;
	err = flow_server_setup();
	if (err)
		goto receiver;
	err = flow_nets_setup();
	if (err)
		goto server;
	err = pflow_module_register(&flow_module);
	if (err)
		goto nets;
	err = flow_files_setup(flow_module.dir) ?: flow_driver_register();
	if (err)
		goto module;
	return 0;

module:
	pflow_module_unregister(&flow_module);
nets:
	flow_nets_teardown();
server:
	flow_server_teardown();
receiver:
	flow_receiver_teardown();
recall:
	flow_recall_teardown();
	return err;
}

static void __exit pf_flow_exit(void)
{
	pflow_module_unregister(&flow_module);
	flow_nets_teardown();
	flow_server_teardown();
	flow_receiver_teardown();
	flow_recall_teardown();
}

module_init(pf_flow_init);
module_exit(pf_flow_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("PacketFlow flow: rates, queues and shares for what comes in");
MODULE_VERSION(PFLOW_VERSION);
