// SPDX-License-Identifier: GPL-2.0-only
/*
 * The knobs of pf_flow. The flows themselves are written to another file (write.c).
 *
 * Context: process for writers; a value is read with READ_ONCE(), anywhere.
 */
#include "flow.h"

#define EXEMPT_DEFAULT	"68,546"

static const char *const schedulers[] = { "eevdf", "rank", NULL };	/* as in serve.c */
static const char *const servers[] = { "softirq", "thread", NULL };

struct pflow_knob flow_knobs[FLOW_KNOBS] = {
	[FLOW_KNOB_MEMORY] = {
		.name = "memory", .unit = "MiB",
		.min = 1, .max = 1024, .fallback = 64, .value = 64,
		.help =
		"bound of the memory of all packets that wait together; raise it when flows tell of packets dropped for memory",
	},
	[FLOW_KNOB_EXEMPT] = {
		.name = "exempt", .unit = "ports, e.g. 68,5060-5069; or none",
		.help =
		"packets to these ports are no flow's: they neither wait nor are dropped",
		.parse = pflow_ports_parse, .show = pflow_ports_show,
		.release = pflow_ports_release,
	},
	[FLOW_KNOB_SCHEDULER] = {
		.name = "scheduler", .unit = "eevdf or rank", .choices = schedulers,
		.help =
		"which flow is next of those that have tokens: by weight (eevdf), or whose packet is for the most important receiver (rank)",
	},
	[FLOW_KNOB_SERVER] = {
		.name = "server", .unit = "softirq or thread", .choices = servers,
		.help =
		"where packets that waited are continued: in softirqs, or in the kernel thread napi/packetflow-0, whose nice level, class, CPUs and control group you can set; a thread costs some more",
		.apply = flow_server_set_threaded,
	},
};

module_param_cb(memory, &pflow_knob_param_ops, &flow_knobs[FLOW_KNOB_MEMORY], 0444);
MODULE_PARM_DESC(memory, "bound of what waits in all queues, MiB (default 64)");
module_param_cb(exempt, &pflow_knob_param_ops, &flow_knobs[FLOW_KNOB_EXEMPT], 0444);
MODULE_PARM_DESC(exempt, "ports of no flow (default " EXEMPT_DEFAULT ")");
module_param_cb(scheduler, &pflow_knob_param_ops, &flow_knobs[FLOW_KNOB_SCHEDULER], 0444);
MODULE_PARM_DESC(scheduler, "which flow is next: eevdf or rank (default eevdf)");
module_param_cb(server, &pflow_knob_param_ops, &flow_knobs[FLOW_KNOB_SERVER], 0444);
MODULE_PARM_DESC(server, "what continues packets that waited: softirq or thread (default softirq)");

/**
 * flow_exempt_setup() - take the default list, unless a parameter gave one
 *
 * Context: process, may sleep. Return: 0 or -ENOMEM.
 */
int flow_exempt_setup(void)
{
	struct pflow_knob *knob = &flow_knobs[FLOW_KNOB_EXEMPT];
	char text[] = EXEMPT_DEFAULT;

	return rcu_access_pointer(knob->ports) ? 0 : pflow_ports_parse(knob, text);
}
