// SPDX-License-Identifier: GPL-2.0-only
/*
 * Queues of user space (NFQUEUE): does any packet wait there for a verdict?
 *
 * Whenever a hook leaves a network namespace, whosever it is, the kernel drops all packets of it
 * that wait in such queues. So as long as there may be any, pf_filter stays hooked when nothing is
 * to be looked at. A packet then costs a load and a branch more. Which queues exist only
 * nfnetlink_queue knows, and it tells nobody; but its being there can be told.
 *
 * Context: process, may sleep.
 */
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/string.h>

#include "filter.h"

static bool exist;

/* Modules that are loaded cannot be asked for by name. One of its functions can. */
static bool queues_find(void)
{
	struct kprobe probe = {
		.symbol_name = "nfqnl_nf_hook_drop",
		.flags = KPROBE_FLAG_DISABLED,
	};

	if (register_kprobe(&probe))
		return false;
	unregister_kprobe(&probe);
	return true;
}

static int on_module(struct notifier_block *unused, unsigned long state, void *data)
{
	const struct module *module = data;

	if (strcmp(module->name, "nfnetlink_queue"))
		return NOTIFY_DONE;
	if (state == MODULE_STATE_COMING)
		WRITE_ONCE(exist, true);
	else if (state == MODULE_STATE_GOING)
		WRITE_ONCE(exist, false);
	return NOTIFY_DONE;
}

static struct notifier_block modules = { .notifier_call = on_module };

/**
 * filter_queues_exist() - may packets wait in queues of user space?
 *
 * Context: any. Return: whether there can be such queues.
 */
bool filter_queues_exist(void)
{
	return READ_ONCE(exist);
}

/**
 * filter_queues_setup() - watch whether there can be queues of user space
 *
 * Return: 0 or a negative error.
 */
int filter_queues_setup(void)
{
	int err = register_module_notifier(&modules);

	/* One that is loaded just now counts as there either way. */
	if (!err && queues_find())
		WRITE_ONCE(exist, true);
	return err;
}

/**
 * filter_queues_teardown() - watch no longer
 */
void filter_queues_teardown(void)
{
	unregister_module_notifier(&modules);
	exist = false;
}
