// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls at the entry of a function by an ftrace_ops of our own, for what runs for each
 * packet. A kprobe there is called by ftrace too, but with all registers saved, after it
 * was looked up in a hash and with its own state kept about; here ftrace's trampoline
 * saves the arguments and calls the handler.
 *
 * Flags that are not set, because each costs something and none is needed:
 *
 * FTRACE_OPS_FL_RECURSION: the handler must not cause a call of the very function it is
 * attached to. Nothing else is in the filter, so whatever else it calls is no recursion; nor
 * is an interrupt in the midst of the handler that leads there for another packet.
 *
 * FTRACE_OPS_FL_RCU: the functions are those of the network, where RCU watches.
 *
 * Preemption is as in the function's caller, other than in a handler of a kprobe.
 *
 * FTRACE_OPS_FL_IPMODIFY, _SAVE_REGS: the handler reads arguments and changes nothing, so it
 * goes along with livepatches of the function, and with BPF programs on it.
 *
 * FTRACE_OPS_FL_PERMANENT would forbid kernel.ftrace_enabled=0. That switch is the
 * administrator's: it stops our calls as it stops kprobes on such functions, silently in
 * both cases. The suite stands by then (canary.c).
 *
 * No hit is missed, but for one case: if others trace the same function, ftrace calls all handlers
 * in turn. A call that arrives in the same context meanwhile is skipped.
 *
 * Context: process, may sleep, to attach and detach; handlers, as said above.
 */
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/ftrace.h>
#include <linux/slab.h>

#include "../internal.h"

/* Of what is not registered: nobody walks its filter. */
static void ops_free(struct ftrace_ops *ops)
{
	ftrace_free_filter(ops);
	kfree(ops);
}

/**
 * pflow_ftrace_attach() - have a handler called at the entry of a function
 * @address: of the function, or where its call of ftrace is; of the kernel itself, it
 *	must not go
 * @handler: what to call
 *
 * By address, as a name may be that of several functions.
 *
 * Context: process, may sleep. Return: what to detach it by, or an error pointer.
 */
struct ftrace_ops *pflow_ftrace_attach(const void *address, pflow_ftrace_t handler)
{
	struct ftrace_ops *ops = kzalloc(sizeof(*ops), GFP_KERNEL);
	int err;

	if (!ops)
		return ERR_PTR(-ENOMEM);
	ops->func = handler;
	/* Without a filter all functions of the kernel would be meant. */
	err = ftrace_set_filter_ip(ops, (unsigned long)address, 0, 1);
	if (!err)
		err = register_ftrace_function(ops);
	if (!err)
		return ops;
	ops_free(ops);
	return ERR_PTR(err);
}

/**
 * pflow_ftrace_detach() - have it called no more
 * @ops: as pflow_ftrace_attach() returned it
 *
 * Memory that is not part of the kernel makes it a dynamic ops, so unregistering waits
 * until nobody is in the trampoline: every CPU has switched tasks (softirqs on top of an
 * idle task and lists walked with preemption off are over) and every task has slept by
 * itself or left the kernel (those preempted there have gone on). Who is in the handler is
 * in the trampoline, which called it, and the handler does not sleep. So its text may go on
 * return.
 *
 * Context: process, may sleep, for about as long as the slowest task takes to do so.
 */
void pflow_ftrace_detach(struct ftrace_ops *ops)
{
	int err = unregister_ftrace_function(ops);

	/*
	 * Only ftrace that found itself broken, and warned of it, refuses. It never takes
	 * calls away any more, so the text that they lead to must never go.
	 */
	if (err)
		pr_crit("ftrace is broken (error %d): this waits for ever, restart the machine\n",
			err);
	while (err) {
		ssleep(1);
		err = unregister_ftrace_function(ops);
	}
	ops_free(ops);
}
