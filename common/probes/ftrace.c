// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls at the entry of a function by an ftrace_ops of our own, for handlers that run for each
 * packet. They cost less than a kprobe. Ftrace calls a kprobe, too, but saves all registers for it,
 * looks it up in a hash and keeps its state. Here ftrace's trampoline saves the arguments and calls
 * the handler, and no more.
 *
 * Flags that are not set, because each costs something and none is needed:
 *
 * FTRACE_OPS_FL_RECURSION: a handler must not cause a call of the very function it is attached to.
 * No other function is in the filter, so a handler may call any other. An interrupt during the
 * handler may come to that function with another packet. That is no recursion.
 *
 * FTRACE_OPS_FL_RCU: the functions are those of the network, where RCU watches.
 *
 * Preemption is as in the function's caller, while in a handler of a kprobe it is off.
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

/* Free an ops that is not registered, so that nobody walks its filter. */
static void ops_free(struct ftrace_ops *ops)
{
	ftrace_free_filter(ops);
	kfree(ops);
}

/**
 * pflow_ftrace_attach() - have a handler called at the entry of a function
 * @address: of the function, or of its call of ftrace; it must be part of the kernel itself, which
 *	never goes
 * @handler: what to call
 *
 * The function is named by its address, as several functions may have one name.
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
 * pflow_ftrace_detach() - have a handler called no more
 * @ops: as pflow_ftrace_attach() returned it
 *
 * The ops is allocated, so ftrace takes it for a dynamic one. When that is unregistered, ftrace
 * waits until nobody is in its trampoline. That is so when every CPU has switched tasks (softirqs
 * on top of an idle task, and lists walked with preemption off, are over) and every task has slept
 * by itself or left the kernel (those that were preempted there have gone on). A handler is called
 * by the trampoline and does not sleep, so nobody is in the handler then either. Its text may go on
 * return.
 *
 * Context: process, may sleep, for about as long as the slowest task takes to do so.
 */
void pflow_ftrace_detach(struct ftrace_ops *ops)
{
	int err = unregister_ftrace_function(ops);

	/*
	 * Ftrace refuses only if it found itself broken, and warned of that. From then on it takes
	 * no calls away, so the text to which they lead must never go.
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
