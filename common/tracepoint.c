// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tracepoints that are not exported by name, but may be found and attached to like
 * any other.
 */
#include <linux/string.h>
#include <linux/tracepoint.h>

#include "internal.h"

struct search {
	const char *name;
	struct tracepoint *found;
};

static void look_at(struct tracepoint *tracepoint, void *data)
{
	struct search *search = data;

	if (!strcmp(tracepoint->name, search->name))
		search->found = tracepoint;
}

/**
 * pflow_tracepoint_find() - a tracepoint of the kernel itself, which never goes
 * @name: its name
 *
 * Context: process, may sleep. Return: it, or NULL where this kernel has none.
 */
struct tracepoint *pflow_tracepoint_find(const char *name)
{
	struct search search = { .name = name };

	for_each_kernel_tracepoint(look_at, &search);
	return search.found;
}
EXPORT_SYMBOL_GPL(pflow_tracepoint_find);
