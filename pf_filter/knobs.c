// SPDX-License-Identifier: GPL-2.0-only
/*
 * The knobs of pf_filter.
 *
 * Exempt ports are two bitmaps in one object, replaced whole under RCU: a list
 * that does not parse changes nothing, and a packet sees the old list or the
 * new one.
 */
#include <linux/bitmap.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "filter.h"

struct filter_exempt_list __rcu *filter_exempt_list;

static const char * const modes[] = { "enforce", "observe", NULL };

#define EXEMPT_DEFAULT	"68,546,from:53,from:123"

static int exempt_parse(struct pflow_knob *knob, char *text);
static void exempt_show(const struct pflow_knob *knob, struct seq_file *m);
static void exempt_release(struct pflow_knob *knob);

struct pflow_knob filter_knobs[FILTER_KNOBS] = {
	[FILTER_KNOB_MODE] = {
		.name = "mode", .unit = "enforce or observe", .choices = modes,
		.help =
		"observe decides and counts but drops nothing; try it before you enforce",
	},
	[FILTER_KNOB_FLOOR] = {
		.name = "floor", .unit = "packets/s",
		.max = 1000000, .fallback = 100, .value = 100,
		.help =
		"what a receiver gets however unimportant it is; 0 lets it starve",
	},
	[FILTER_KNOB_EXEMPT] = {
		.name = "exempt", .unit = "ports, e.g. 68,5060-5069,from:53; or none",
		.help =
		"never judged: packets to these local ports, and, with from:, replies from these remote ports to receivers of less than 1000 packets/s",
		.parse = exempt_parse, .show = exempt_show, .release = exempt_release,
	},
};

module_param_cb(mode, &pflow_knob_param_ops, &filter_knobs[FILTER_KNOB_MODE], 0444);
MODULE_PARM_DESC(mode, "enforce or observe (default enforce)");
module_param_cb(floor, &pflow_knob_param_ops, &filter_knobs[FILTER_KNOB_FLOOR], 0444);
MODULE_PARM_DESC(floor, "packets/s that every receiver keeps (default 100)");
module_param_cb(exempt, &pflow_knob_param_ops, &filter_knobs[FILTER_KNOB_EXEMPT], 0444);
MODULE_PARM_DESC(exempt, "ports never judged (default " EXEMPT_DEFAULT ")");

static int parse_port(char *text, unsigned int *port)
{
	if (!isdigit(text[0]) || kstrtouint(text, 10, port) || !*port || *port >= FILTER_PORTS)
		return -EINVAL;
	return 0;
}

static int parse_item(struct filter_exempt_list *list, char *item)
{
	unsigned long *map = list->local;
	unsigned int first, last;
	char *dash;

	if (str_has_prefix(item, "from:")) {
		map = list->remote;
		item += strlen("from:");
	}
	dash = strchr(item, '-');
	if (dash)
		*dash++ = '\0';
	if (parse_port(item, &first) || parse_port(dash ?: item, &last) || last < first)
		return -EINVAL;
	bitmap_set(map, first, last - first + 1);
	return 0;
}

/* Called under the lock of all knobs. */
static int exempt_parse(struct pflow_knob *knob, char *text)
{
	struct filter_exempt_list *list = kzalloc(sizeof(*list), GFP_KERNEL), *old;
	char *item;

	if (!list)
		return -ENOMEM;
	if (strcmp(text, "none")) {
		while ((item = strsep(&text, ","))) {
			if (parse_item(list, item)) {
				kfree(list);
				return -EINVAL;
			}
		}
	}
	old = rcu_replace_pointer(filter_exempt_list, list, true);
	if (old)
		kfree_rcu(old, rcu);
	return 0;
}

static bool show_ports(struct seq_file *m, const unsigned long *map, const char *prefix, bool more)
{
	unsigned int first, end;

	for_each_set_bitrange(first, end, map, FILTER_PORTS) {
		seq_printf(m, "%s%s%u", more ? "," : "", prefix, first);
		if (end - first > 1)
			seq_printf(m, "-%u", end - 1);
		more = true;
	}
	return more;
}

static void exempt_show(const struct pflow_knob *knob, struct seq_file *m)
{
	const struct filter_exempt_list *list;
	bool any;

	rcu_read_lock();
	list = rcu_dereference(filter_exempt_list);
	any = list && show_ports(m, list->local, "", false);
	any = list && show_ports(m, list->remote, "from:", any);
	rcu_read_unlock();
	if (!any)
		seq_puts(m, "none");
}

/**
 * filter_exempt_setup() - take the default list, unless a parameter gave one
 *
 * Context: process, may sleep. Return: 0 or -ENOMEM.
 */
int filter_exempt_setup(void)
{
	char text[] = EXEMPT_DEFAULT;

	return rcu_access_pointer(filter_exempt_list) ? 0 : exempt_parse(NULL, text);
}

/* Last of all: /sys/module still shows parameters when the module has stopped. */
static void exempt_release(struct pflow_knob *knob)
{
	struct filter_exempt_list *old = rcu_replace_pointer(filter_exempt_list, NULL, true);

	if (old)
		kfree_rcu(old, rcu);
}
