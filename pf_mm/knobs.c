// SPDX-License-Identifier: GPL-2.0-only
/*
 * The knobs of pf_mm: their table, which pf_common reads and writes by name.
 *
 * Context: process for writers; a value is read with READ_ONCE(), anywhere.
 */
#include <linux/ctype.h>
#include <linux/mm.h>
#include <linux/string.h>

#include "mm.h"

#define MEMORY_PART	32	/* budget=auto is one part in so many of all memory */
#define BUDGET_AUTO	UINT_MAX
#define BUDGET_MOST	1073741824u	/* KiB */

#define BUDGET_DEFAULT	"auto"
#define EXEMPT_DEFAULT	"none"

static const char * const modes[] = { "enforce", "observe", NULL };

static int budget_parse(struct pflow_knob *knob, char *text);
static void budget_show(const struct pflow_knob *knob, struct seq_file *m);

struct pflow_knob mm_knobs[MM_KNOBS] = {
	[MM_KNOB_MODE] = {
		.name = "mode", .unit = "enforce or observe", .choices = modes,
		.help =
		"observe finds buffers that fill and counts but changes none; try it before you enforce",
	},
	[MM_KNOB_DEFAULT_SIZE] = {
		.name = "default_size", .unit = "KiB, twice what SO_RCVBUF would be given",
		.min = 4, .max = 262144, .fallback = 500, .value = 500,
		.help =
		"the size to which a buffer may grow if its receiver has nice 0; at nice -20 twice that, at nice 19 a twentieth",
	},
	[MM_KNOB_SCALE] = {
		.name = "scale", .unit = "percent",
		.min = 10, .max = 10000, .fallback = 100, .value = 100,
		.help =
		"what buffers of all priorities may grow to, in percent of the sizes that default_size gives; QUIC, syslog and telemetry want 4 to 8 MB: raise it to 1000 and more there",
	},
	[MM_KNOB_BUDGET] = {
		.name = "budget", .unit = "KiB, at most 1073741824, or auto",
		.value = BUDGET_AUTO, .parse = budget_parse, .show = budget_show,
		.help =
		"what all buffers together may be given beyond their own size, also past rmem_max and tcp_rmem; auto is 1/32 of memory; 0 obeys rmem_max and tcp_rmem, within that 1/32",
	},
	[MM_KNOB_BURST] = {
		.name = "burst", .unit = "milliseconds, 0 for no bound",
		.max = 60000, .fallback = 200, .value = 200,
		.help =
		"a UDP buffer that was a third full or more for so long loses what it was given, as more room then only makes what is read from it older; with 0 it keeps what it was given, as in the paper",
	},
	[MM_KNOB_MAX_DELAY] = {
		.name = "max_delay", .unit = "milliseconds, 0 for no bound",
		.max = 60000, .fallback = 0,
		.help =
		"no buffer grows so large that what is in it would wait longer than this, at the rate at which its receiver takes it; set it where late packets are worth nothing",
	},
	[MM_KNOB_OVERRIDE_LOCKED] = {
		.name = "override_locked", .unit = "0 or 1", .max = 1, .fallback = 0,
		.help =
		"1 lets buffers grow whose size the program set by SO_RCVBUF",
	},
	[MM_KNOB_EXEMPT] = {
		.name = "exempt", .unit = "ports, e.g. 68,5060-5069; or none",
		.help =
		"buffers of sockets on these local ports stay as they are",
		.parse = pflow_ports_parse, .show = pflow_ports_show,
		.release = pflow_ports_release,
	},
};

module_param_cb(mode, &pflow_knob_param_ops, &mm_knobs[MM_KNOB_MODE], 0444);
MODULE_PARM_DESC(mode, "enforce or observe (default enforce)");
module_param_cb(default_size, &pflow_knob_param_ops, &mm_knobs[MM_KNOB_DEFAULT_SIZE], 0444);
MODULE_PARM_DESC(default_size, "KiB that a buffer of nice 0 may grow to (default 500)");
module_param_cb(scale, &pflow_knob_param_ops, &mm_knobs[MM_KNOB_SCALE], 0444);
MODULE_PARM_DESC(scale, "percent of these sizes (default 100)");
module_param_cb(budget, &pflow_knob_param_ops, &mm_knobs[MM_KNOB_BUDGET], 0444);
MODULE_PARM_DESC(budget, "KiB for all, 0 obeys rmem_max, tcp_rmem (default " BUDGET_DEFAULT ")");
module_param_cb(burst, &pflow_knob_param_ops, &mm_knobs[MM_KNOB_BURST], 0444);
MODULE_PARM_DESC(burst, "milliseconds in which a UDP buffer that grew must drain (default 200)");
module_param_cb(max_delay, &pflow_knob_param_ops, &mm_knobs[MM_KNOB_MAX_DELAY], 0444);
MODULE_PARM_DESC(max_delay, "milliseconds that a buffer's content may wait (default 0, any)");
module_param_cb(override_locked, &pflow_knob_param_ops, &mm_knobs[MM_KNOB_OVERRIDE_LOCKED], 0444);
MODULE_PARM_DESC(override_locked, "1 changes what programs set by SO_RCVBUF (default 0)");
module_param_cb(exempt, &pflow_knob_param_ops, &mm_knobs[MM_KNOB_EXEMPT], 0444);
MODULE_PARM_DESC(exempt, "local ports left alone (default " EXEMPT_DEFAULT ")");

static int budget_parse(struct pflow_knob *knob, char *text)
{
	unsigned int value;

	if (!strcmp(text, BUDGET_DEFAULT)) {
		WRITE_ONCE(knob->value, BUDGET_AUTO);
		return 0;
	}
	if (!isdigit(text[0]) || kstrtouint(text, 10, &value) || value > BUDGET_MOST)
		return -EINVAL;
	WRITE_ONCE(knob->value, value);
	return 0;
}

static void budget_show(const struct pflow_knob *knob, struct seq_file *m)
{
	unsigned int value = READ_ONCE(knob->value);

	if (value == BUDGET_AUTO)
		seq_puts(m, BUDGET_DEFAULT);
	else
		seq_printf(m, "%u", value);
}

/**
 * mm_budget() - what all buffers together may be given
 *
 * Context: any. Return: bytes.
 */
u64 mm_budget(void)
{
	unsigned int value = mm_knob(MM_KNOB_BUDGET);

	if (value && value != BUDGET_AUTO)
		return (u64)value << 10;
	return ((u64)totalram_pages() << PAGE_SHIFT) / MEMORY_PART;
}

/**
 * mm_exempt() - is a socket on this port to be left alone?
 * @port: local port, host order
 *
 * Context: RCU read side. Return: whether it is.
 */
bool mm_exempt(u16 port)
{
	const struct pflow_ports *list = rcu_dereference(mm_knobs[MM_KNOB_EXEMPT].ports);

	return list && test_bit(port, list->local);
}
