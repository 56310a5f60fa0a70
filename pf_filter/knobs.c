// SPDX-License-Identifier: GPL-2.0-only
/*
 * The knobs of pf_filter.
 *
 * Context: process for writers; a value is read with READ_ONCE(), anywhere.
 */
#include "filter.h"

static const char * const modes[] = { "enforce", "observe", NULL };

static const char * const sheds[] = { "rank", "full", NULL };

#define EXEMPT_DEFAULT	"68,546,from:53,from:123"

struct pflow_knob filter_knobs[FILTER_KNOBS] = {
	[FILTER_KNOB_MODE] = {
		.name = "mode", .unit = "enforce or observe", .choices = modes,
		.help =
		"observe decides and counts but drops nothing; try it before you enforce",
	},
	[FILTER_KNOB_SHED] = {
		.name = "shed", .unit = "rank or full", .choices = sheds,
		.help =
		"full sheds nobody for the sake of others: only what a full socket would drop anyway is dropped early",
	},
	[FILTER_KNOB_FLOOR] = {
		.name = "floor", .unit = "packets/s",
		.max = 1000000, .fallback = 100, .value = 100,
		.help =
		"what each socket keeps however unimportant its receiver is; more than 16 sockets of a user share 16 floors; 0 lets them starve",
	},
	[FILTER_KNOB_FLOOR_SHARE] = {
		.name = "floor_share", .unit = "percent",
		.max = 100, .fallback = 0, .value = 0,
		.help =
		"a socket's floor is this part of the CPU share that its receiver's nice level gives it among all receivers there, if that is higher; 0 leaves it at floor",
	},
	[FILTER_KNOB_EXEMPT] = {
		.name = "exempt", .unit = "ports, e.g. 68,5060-5069,from:53; or none",
		.help =
		"never judged: packets to these local ports, and, with from:, replies from these remote ports to receivers of less than 1000 packets/s and 100 in 20 ms, no more than 1000 packets/s in all on a CPU",
		.parse = pflow_ports_parse, .show = pflow_ports_show,
		.release = pflow_ports_release, .from = true,
	},
};

module_param_cb(mode, &pflow_knob_param_ops, &filter_knobs[FILTER_KNOB_MODE], 0444);
MODULE_PARM_DESC(mode, "enforce or observe (default enforce)");
module_param_cb(floor, &pflow_knob_param_ops, &filter_knobs[FILTER_KNOB_FLOOR], 0444);
MODULE_PARM_DESC(floor, "packets/s that each socket keeps (default 100)");
module_param_cb(shed, &pflow_knob_param_ops, &filter_knobs[FILTER_KNOB_SHED], 0444);
MODULE_PARM_DESC(shed, "rank or full (default rank)");
module_param_cb(floor_share, &pflow_knob_param_ops, &filter_knobs[FILTER_KNOB_FLOOR_SHARE], 0444);
MODULE_PARM_DESC(floor_share, "percent of its share by nice that each socket keeps (default 0)");
module_param_cb(exempt, &pflow_knob_param_ops, &filter_knobs[FILTER_KNOB_EXEMPT], 0444);
MODULE_PARM_DESC(exempt, "ports never judged (default " EXEMPT_DEFAULT ")");

/**
 * filter_exempt_setup() - take the default list, unless a parameter gave one
 *
 * Context: process, may sleep. Return: 0 or -ENOMEM.
 */
int filter_exempt_setup(void)
{
	struct pflow_knob *knob = &filter_knobs[FILTER_KNOB_EXEMPT];
	char text[] = EXEMPT_DEFAULT;

	return rcu_access_pointer(knob->ports) ? 0 : pflow_ports_parse(knob, text);
}
