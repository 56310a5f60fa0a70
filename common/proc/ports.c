// SPDX-License-Identifier: GPL-2.0-only
/*
 * Knobs that are a set of ports: numbers and ranges between commas, or "none". If the knob allows
 * it, remote ports may follow behind "from:".
 *
 * A set is never changed. A new one takes its place under RCU. So a list that does not parse
 * changes nothing, and a packet sees either the old list or the new one.
 *
 * Context: process, may sleep, for writers; RCU read side for readers.
 */
#include <linux/bitmap.h>
#include <linux/ctype.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "../internal.h"

#define NONE	"none"
#define FROM	"from:"

static int ports_parse_port(const char *text, unsigned int *port)
{
	/* kstrtouint() takes a sign. */
	if (!isdigit(text[0]) || kstrtouint(text, 10, port) || !*port || *port >= PFLOW_PORTS)
		return -EINVAL;
	return 0;
}

static int ports_parse_item(unsigned long *map, char *item)
{
	char *dash = strchr(item, '-');
	unsigned int first, last;

	if (dash)
		*dash++ = '\0';
	if (ports_parse_port(item, &first) || ports_parse_port(dash ?: item, &last) || last < first)
		return -EINVAL;
	bitmap_set(map, first, last - first + 1);
	return 0;
}

static int ports_parse_list(struct pflow_ports *ports, bool from, char *text)
{
	char *item;
	int err = 0;

	if (!strcmp(text, NONE))
		return 0;
	while (!err && (item = strsep(&text, ","))) {
		if (from && str_has_prefix(item, FROM))
			err = ports_parse_item(ports->remote, item + strlen(FROM));
		else
			err = ports_parse_item(ports->local, item);
	}
	return err;
}

/*
 * Put another set in its place; readers may hold the old one for a grace period. The caller has the
 * lock of all knobs, or is alone.
 */
static void ports_replace(struct pflow_knob *knob, struct pflow_ports *ports)
{
	struct pflow_ports *old = rcu_replace_pointer(knob->ports, ports, true);

	if (old)
		kfree_rcu(old, rcu);
}

/**
 * pflow_ports_parse() - take a new set of ports
 * @knob: whose it is; its from tells whether remote ports may be in it
 * @text: the list; written to
 *
 * Context: process, may sleep; under the lock of all knobs, or before the knob has a file.
 * Return: 0, -EINVAL or -ENOMEM, and then nothing is changed.
 */
int pflow_ports_parse(struct pflow_knob *knob, char *text)
{
	size_t remote = knob->from ? BITS_TO_LONGS(PFLOW_PORTS) : 0;
	struct pflow_ports *ports = kzalloc(struct_size(ports, remote, remote), GFP_KERNEL);
	int err;

	if (!ports)
		return -ENOMEM;
	err = ports_parse_list(ports, knob->from, text);
	if (err)
		kfree(ports);
	else
		ports_replace(knob, ports);
	return err;
}
EXPORT_SYMBOL_GPL(pflow_ports_parse);

static bool ports_show_map(struct seq_file *m, const unsigned long *map, const char *prefix,
			   bool more)
{
	unsigned int first, end;

	for_each_set_bitrange(first, end, map, PFLOW_PORTS) {
		seq_printf(m, "%s%s%u", more ? "," : "", prefix, first);
		if (end - first > 1)
			seq_printf(m, "-%u", end - 1);
		more = true;
	}
	return more;
}

/**
 * pflow_ports_show() - the set as pflow_ports_parse() takes it
 * @knob: whose it is
 * @m: where to
 *
 * Context: process.
 */
void pflow_ports_show(const struct pflow_knob *knob, struct seq_file *m)
{
	const struct pflow_ports *ports;
	bool any = false;

	rcu_read_lock();
	ports = rcu_dereference(knob->ports);
	if (ports) {
		any = ports_show_map(m, ports->local, "", any);
		if (knob->from)
			any = ports_show_map(m, ports->remote, FROM, any);
	}
	rcu_read_unlock();
	if (!any)
		seq_puts(m, NONE);
}
EXPORT_SYMBOL_GPL(pflow_ports_show);

/**
 * pflow_ports_release() - free the set, last of all
 * @knob: whose it is
 *
 * It is not freed when the module stops, since /sys/module still shows its parameters then.
 *
 * Context: process; nobody tests, shows or sets it any more.
 */
void pflow_ports_release(struct pflow_knob *knob)
{
	ports_replace(knob, NULL);
}
EXPORT_SYMBOL_GPL(pflow_ports_release);
