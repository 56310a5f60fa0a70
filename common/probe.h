/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's functions and tracepoints that a module looks into.
 *
 * A module has a table of rows, one for each function, and registers it with pflow_probes_add().
 * For a tracepoint it has a struct pflow_trace, and attaches that with pflow_trace_attach(). Both
 * say what is lost if the kernel does not have the function or the tracepoint.
 */
#ifndef _PFLOW_PROBE_H
#define _PFLOW_PROBE_H

#include <linux/kprobes.h>
#include <linux/list.h>

enum pflow_probe_when {
	PFLOW_PROBE_ALWAYS,
	PFLOW_PROBE_WATCHED,
};

struct ftrace_ops;
struct ftrace_regs;

/* As ftrace_func_t, which not all kernels have; see pflow_ftrace_argument(). */
typedef void (*pflow_ftrace_t)(unsigned long ip, unsigned long parent_ip,
			       struct ftrace_ops *ops, struct ftrace_regs *fregs);

/**
 * struct pflow_probe - one row of a module's table of probes
 * @symbol: function, probed at its entry
 * @handler: what to do there; the comment in front of it says by which prototype it reads
 *	arguments, and the tests hold that against each kernel (tests/rig/hooks.py)
 * @when: whether it is always armed; some of pf_common's own are armed while somebody looks
 * @required: without it the module refuses to load
 * @without: what is lost when the kernel does not have it
 * @hot: of a probe that runs for every packet: what ftrace calls in place of @handler. That costs
 *	less, and preemption is as in the function's caller. NULL for other probes
 * @kp: the probe; not enabled while @ops does its work, which misses no hit
 * @ops: attached in place of @kp
 * @present: registered
 * @armed: enabled, or attached
 */
struct pflow_probe {
	const char *symbol;
	kprobe_pre_handler_t handler;
	enum pflow_probe_when when;
	bool required;
	const char *without;
	pflow_ftrace_t hot;
	struct kprobe kp;
	struct ftrace_ops *ops;
	bool present;
	bool armed;
};

/**
 * struct pflow_probes - a module's table of probes
 * @owner: the module; two may probe the same function
 * @rows: the probes
 * @nr_rows: how many
 * @list: kept by pf_common
 */
struct pflow_probes {
	const struct module *owner;
	struct pflow_probe *rows;
	unsigned int nr_rows;
	struct list_head list;
};

/* probes/probes.c */
int pflow_probes_add(struct pflow_probes *probes);
void pflow_probes_remove(struct pflow_probes *probes);

struct tracepoint;

/**
 * struct pflow_trace - a tracepoint that a module looks into
 * @name: its name
 * @probe: what to do there
 * @without: what is lost where the kernel does not have it; NULL if nothing is
 * @point: it, while attached
 */
struct pflow_trace {
	const char *name;
	void *probe;
	const char *without;
	struct tracepoint *point;
};

/* probes/tracepoint.c */
int pflow_trace_attach(struct pflow_trace *trace);
void pflow_trace_detach(struct pflow_trace *trace);

#endif
