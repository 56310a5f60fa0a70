// SPDX-License-Identifier: GPL-2.0-only
/*
 * The knobs of pf_sched: their table, which pf_common reads and writes by name.
 *
 * The list of exempt programs is one object. Writing the knob puts a new one in its place, under
 * RCU.
 *
 * Context: process for writers, RCU read side for readers.
 */
#include <linux/slab.h>
#include <linux/string.h>

#include "sched.h"

#define EXEMPT_MOST	32	/* programs */
#define EXEMPT_DEFAULT	"none"

struct exempt_list {
	struct rcu_head rcu;
	unsigned int number;
	char comm[EXEMPT_MOST][TASK_COMM_LEN];
};

static struct exempt_list __rcu *exempt_list;

static const char * const modes[] = { "enforce", "observe", NULL };
static const char * const levers[] = { "auto", "nice", "group", "deadline", "rr", NULL };

static int exempt_parse(struct pflow_knob *knob, char *text);
static void exempt_show(const struct pflow_knob *knob, struct seq_file *m);
static void exempt_release(struct pflow_knob *knob);

struct pflow_knob sched_knobs[SCHED_KNOBS] = {
	[SCHED_KNOB_MODE] = {
		.name = "mode", .unit = "enforce or observe", .choices = modes,
		.help =
		"observe elects and counts but raises nobody; try it before you enforce",
	},
	[SCHED_KNOB_LEVER] = {
		.name = "lever", .unit = "auto, nice, group, deadline or rr", .choices = levers,
		.help =
		"what a thread is raised by; auto takes nice where it counts and a real-time class where sessions or cgroups make it inert; group needs the program packetflow-group running",
	},
	[SCHED_KNOB_ELECT] = {
		.name = "elect", .unit = "threads on each CPU, 0 for automatic",
		.max = PFLOW_ELECT_MOST, .fallback = 2, .value = 2,
		.help =
		"how many are raised at a time on each CPU, the most important first, and half of them of one user while another asks; automatic: more while there is CPU left for them",
	},
	[SCHED_KNOB_THRESHOLD] = {
		.name = "threshold", .unit = "percent",
		.min = 1, .max = 100, .fallback = 50, .value = 50,
		.help =
		"a socket buffer fuller than this fills; lower it if packets are lost before the boost shows",
	},
	[SCHED_KNOB_LEVELS] = {
		.name = "levels", .unit = "nice levels",
		.min = 1, .max = 39, .fallback = 5, .value = 5,
		.help =
		"how far the first is raised where nice is the lever; the others by less",
	},
	[SCHED_KNOB_HOLD] = {
		.name = "hold", .unit = "milliseconds",
		.min = 10, .max = 10000, .fallback = 100, .value = 100,
		.help =
		"how long a boost lasts after the buffer was last fuller than the threshold",
	},
	[SCHED_KNOB_APART] = {
		.name = "apart", .unit = "milliseconds",
		.max = 10000, .fallback = 20, .value = 20,
		.help =
		"least time between two changes of one thread",
	},
	[SCHED_KNOB_CAP] = {
		.name = "cap", .unit = "percent of a CPU",
		.min = 1, .max = 95, .fallback = 75, .value = 75,
		.help =
		"what raised threads may take together, those of one user half of it while another asks; the rest is left to everybody else; on a CPU that never idles it is a percentage of the time that softirqs leave",
	},
	[SCHED_KNOB_ESCAPE] = {
		.name = "escape", .unit = "0 or 1", .max = 1, .fallback = 0,
		.help =
		"1 raises threads by a real-time class in cgroups with the cpu controller, too; such a thread escapes the cpu.max of its cgroup",
	},
	[SCHED_KNOB_EXEMPT] = {
		.name = "exempt", .unit = "names of programs, e.g. chronyd,ptp4l; or none",
		.help =
		"never raised: threads of these names, as ps -L -o comm shows them",
		.parse = exempt_parse, .show = exempt_show, .release = exempt_release,
	},
};

module_param_cb(mode, &pflow_knob_param_ops, &sched_knobs[SCHED_KNOB_MODE], 0444);
MODULE_PARM_DESC(mode, "enforce or observe (default enforce)");
module_param_cb(lever, &pflow_knob_param_ops, &sched_knobs[SCHED_KNOB_LEVER], 0444);
MODULE_PARM_DESC(lever, "auto, nice, group, deadline or rr (default auto)");
module_param_cb(elect, &pflow_knob_param_ops, &sched_knobs[SCHED_KNOB_ELECT], 0444);
MODULE_PARM_DESC(elect, "threads raised at a time on each CPU, 0 for automatic (default 2)");
module_param_cb(threshold, &pflow_knob_param_ops, &sched_knobs[SCHED_KNOB_THRESHOLD], 0444);
MODULE_PARM_DESC(threshold, "percent of the buffer (default 50)");
module_param_cb(levels, &pflow_knob_param_ops, &sched_knobs[SCHED_KNOB_LEVELS], 0444);
MODULE_PARM_DESC(levels, "nice levels (default 5)");
module_param_cb(hold, &pflow_knob_param_ops, &sched_knobs[SCHED_KNOB_HOLD], 0444);
MODULE_PARM_DESC(hold, "milliseconds that a boost outlasts its cause (default 100)");
module_param_cb(apart, &pflow_knob_param_ops, &sched_knobs[SCHED_KNOB_APART], 0444);
MODULE_PARM_DESC(apart, "milliseconds between two changes of a thread (default 20)");
module_param_cb(cap, &pflow_knob_param_ops, &sched_knobs[SCHED_KNOB_CAP], 0444);
MODULE_PARM_DESC(cap, "percent of a CPU for all that are raised (default 75)");
module_param_cb(escape, &pflow_knob_param_ops, &sched_knobs[SCHED_KNOB_ESCAPE], 0444);
MODULE_PARM_DESC(escape, "1 lets raised threads escape their cgroup's cpu.max (default 0)");
module_param_cb(exempt, &pflow_knob_param_ops, &sched_knobs[SCHED_KNOB_EXEMPT], 0444);
MODULE_PARM_DESC(exempt, "names of programs never raised (default " EXEMPT_DEFAULT ")");

/* knob_set() holds the lock of all knobs. */
static int exempt_parse(struct pflow_knob *knob, char *text)
{
	struct exempt_list *list = kzalloc(sizeof(*list), GFP_KERNEL), *old;
	char *name;

	if (!list)
		return -ENOMEM;
	if (strcmp(text, EXEMPT_DEFAULT)) {
		while ((name = strsep(&text, ","))) {
			name = strim(name);
			if (!*name || !strcmp(name, EXEMPT_DEFAULT) ||
			    list->number == EXEMPT_MOST ||
			    strscpy(list->comm[list->number++], name, TASK_COMM_LEN) < 0) {
				kfree(list);
				return -EINVAL;
			}
		}
	}
	old = rcu_replace_pointer(exempt_list, list, true);
	if (old)
		kfree_rcu(old, rcu);
	return 0;
}

static void exempt_show(const struct pflow_knob *knob, struct seq_file *m)
{
	const struct exempt_list *list;
	unsigned int i;

	rcu_read_lock();
	list = rcu_dereference(exempt_list);
	if (!list || !list->number)
		seq_puts(m, EXEMPT_DEFAULT);
	else
		for (i = 0; i < list->number; i++)
			seq_printf(m, "%s%s", i ? "," : "", list->comm[i]);
	rcu_read_unlock();
}

static void exempt_release(struct pflow_knob *knob)
{
	struct exempt_list *old = rcu_replace_pointer(exempt_list, NULL, true);

	if (old)
		kfree_rcu(old, rcu);
}

/**
 * boost_exempt() - is a thread never to be raised?
 * @task: it; the caller holds it
 *
 * Context: RCU read side. Return: whether its name is on the list.
 */
bool boost_exempt(const struct task_struct *task)
{
	const struct exempt_list *list = rcu_dereference(exempt_list);
	unsigned int i;

	for (i = 0; list && i < list->number; i++)
		if (!strncmp(list->comm[i], task->comm, TASK_COMM_LEN))
			return true;
	return false;
}
