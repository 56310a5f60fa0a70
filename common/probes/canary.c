// SPDX-License-Identifier: GPL-2.0-only
/*
 * The canary tells whether probes are called at all.
 *
 * An administrator can switch off every kprobe (/sys/kernel/debug/kprobes/enabled). He can switch
 * off ftrace (kernel.ftrace_enabled), which calls kprobes at the entry of a function and our own
 * handlers (ftrace.c). Ftrace also stops when it finds itself broken. No module is told of that. So
 * there is a function that does nothing, and a kprobe at its entry. If that one is called, so are
 * the others.
 *
 * Context: process, one call at a time; the handler, that of the call.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kprobes.h>
#include <linux/string.h>

#include "../internal.h"

/* No bool: where UBSAN checks these, GCC 14 drops the second look, volatile or not. */
static unsigned int heard;
static struct kprobe canary;

/* The barrier is an effect: without one the compiler would leave out the call. */
static noinline void canary_function(void)
{
	barrier();
}

static int on_canary(struct kprobe *kp, struct pt_regs *regs)
{
	WRITE_ONCE(heard, 1);
	return 0;
}

/**
 * pflow_canary_setup() - put a probe at our own function
 *
 * Context: process, may sleep. Return: 0, or a negative error: then no probe can be relied on.
 */
int pflow_canary_setup(void)
{
	int err;

	/* A struct kprobe must be pristine each time it is registered. */
	memset(&canary, 0, sizeof(canary));
	canary.addr = (kprobe_opcode_t *)canary_function;
	canary.pre_handler = on_canary;
	err = register_kprobe(&canary);
	if (err)
		pr_err("cannot probe a function of our own (error %d): refusing to start\n", err);
	return err;
}

/**
 * pflow_canary_teardown() - take it away
 *
 * Context: process, may sleep.
 */
void pflow_canary_teardown(void)
{
	unregister_kprobe(&canary);
}

/**
 * pflow_canary_heard() - call that function
 *
 * Context: process. Return: whether its probe was called.
 */
bool pflow_canary_heard(void)
{
	WRITE_ONCE(heard, 0);
	canary_function();
	return READ_ONCE(heard);
}
