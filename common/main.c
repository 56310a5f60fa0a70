// SPDX-License-Identifier: GPL-2.0-only
/*
 * pf_common: the part that the PacketFlow modules share.
 *
 * Setup goes from the inside out: the table, then its files, then the hooks that fill it. Teardown
 * switches the hooks off first, since readers may hold the files for long. When the files are
 * gone, nobody can switch the hooks on again. When the hooks are gone, nobody enters a socket.
 * Only then is the table freed.
 *
 * Context: process: loading and unloading.
 */
#include <linux/module.h>

#include "internal.h"

static int __init pf_common_init(void)
{
	int err;

	err = pflow_table_setup(pflow_knobs[PFLOW_KNOB_MAX_SOCKETS].value);
	if (err)
		return err;
	err = pflow_proc_setup();
	if (err)
		goto table;
	err = pflow_enable(pflow_knobs[PFLOW_KNOB_ENABLE].value);
	if (err)
		goto proc;
	return 0;
proc:
	pflow_proc_teardown();
	pflow_modules_teardown();	/* whoever was quick may have switched it on by its file */
table:
	pflow_table_teardown();
	return err;
}

static void __exit pf_common_exit(void)
{
	pflow_enable(0);
	/* This waits for readers of the files. Until they are gone all can be switched on again. */
	pflow_proc_teardown();
	pflow_modules_teardown();
	pflow_table_teardown();
}

module_init(pf_common_init);
module_exit(pf_common_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("PacketFlow: receivers, their priority, and overload, for the PacketFlow modules");
MODULE_VERSION(PFLOW_VERSION);
