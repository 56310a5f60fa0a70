// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tracepoints of the kernel. They are not exported by name, but a module may walk all of them, find
 * one by its name and attach to it. While it is attached, a caller that passes it pays for a
 * patched call.
 *
 * Context: process, may sleep.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/printk.h>
#include <linux/string.h>
#include <linux/tracepoint.h>

#include "../internal.h"

struct search {
	const char *name;
	struct tracepoint *found;
};

static void tracepoint_match(struct tracepoint *tracepoint, void *data)
{
	struct search *search = data;

	if (!strcmp(tracepoint->name, search->name))
		search->found = tracepoint;
}

/**
 * pflow_trace_attach() - look into a tracepoint of the kernel itself, which never goes
 * @trace: which, and how; not attached
 *
 * Context: process, may sleep. Return: 0, or a negative error. That this kernel has none
 * is no error: then @trace->point stays NULL, and the log says what is lost.
 */
int pflow_trace_attach(struct pflow_trace *trace)
{
	struct search search = { .name = trace->name };
	int err;

	for_each_kernel_tracepoint(tracepoint_match, &search);
	if (!search.found) {
		if (trace->without)
			pr_warn("no tracepoint %s: %s\n", trace->name, trace->without);
		return 0;
	}
	err = tracepoint_probe_register(search.found, trace->probe, NULL);
	if (!err)
		trace->point = search.found;
	return err;
}
EXPORT_SYMBOL_GPL(pflow_trace_attach);

/**
 * pflow_trace_detach() - look no more
 * @trace: which; may be not attached
 *
 * Context: process, may sleep. Its probe runs nowhere any more on return.
 */
void pflow_trace_detach(struct pflow_trace *trace)
{
	if (!trace->point)
		return;
	tracepoint_probe_unregister(trace->point, trace->probe, NULL);
	tracepoint_synchronize_unregister();
	trace->point = NULL;
}
EXPORT_SYMBOL_GPL(pflow_trace_detach);
