// SPDX-License-Identifier: GPL-2.0-only
/*
 * pf_mm: a socket buffer that fills grows by the priority of its receiver, inside a
 * budget, and what is not used goes back (PacketFlow mm, the paper's section 3.3).
 *
 * hook.c sees that a buffer fills, grow.c lets it grow, and keep.c takes back what is not used.
 * mm.h tells the parts in between. Here is loading, unloading and the switch.
 *
 * Context: process: loading, unloading and the switch.
 */
#include <linux/module.h>

#include "mm.h"

static int mm_start(void)
{
	int err = grants_setup();

	if (err)
		return err;
	err = keeper_setup();
	if (err)
		goto grants;
	err = hook_setup();
	if (err)
		goto keeper;
	return 0;

keeper:
	keeper_teardown();
grants:
	grants_teardown();
	return err;
}

/* The hooks go first, so no buffer grows any more. Then all buffers are restored. */
static void mm_stop(void)
{
	hook_teardown();
	keeper_teardown();
	grants_teardown();
}

static struct pflow_module mm_module = {
	.name = "mm",
	.knobs = mm_knobs,
	.nr_knobs = MM_KNOBS,
	.start = mm_start,
	.stop = mm_stop,
	.note_close = grant_note_close,
	.buffer_most = size_most_of_rank,
	.status = grants_status,
	.metrics = grants_metrics,
};

static int __init pf_mm_init(void)
{
	return pflow_module_register(&mm_module);
}

static void __exit pf_mm_exit(void)
{
	pflow_module_unregister(&mm_module);
}

module_init(pf_mm_init);
module_exit(pf_mm_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("PacketFlow memory: a socket buffer that fills grows by priority");
MODULE_VERSION(PFLOW_VERSION);
