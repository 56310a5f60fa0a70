// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is shown of grants: lines of /proc/packetflow/status for people, and metrics for machines.
 *
 * Context: process.
 */
#include <linux/seq_file.h>

#include "mm.h"

static const char * const given_names[GIVEN] = {
	[GIVEN_UNUSED] = "unused",
	[GIVEN_CLOSED] = "closed",
	[GIVEN_CHANGED] = "changed",
	[GIVEN_LIMIT] = "limit",
	[GIVEN_MEMORY] = "memory",
	[GIVEN_STANDING] = "standing",
	[GIVEN_RECLAIMED] = "reclaimed",
	[GIVEN_EXEMPT] = "exempt",
	[GIVEN_STOPPED] = "stopped",
};

static const char * const refusal_names[REFUSALS] = {
	[REFUSED_BUDGET] = "budget",
	[REFUSED_MEMORY] = "memory",
	[REFUSED_CLAMP] = "clamp",
	[REFUSED_POOL] = "pool",
	[REFUSED_STANDING] = "standing",
};

/* Read all counts as they were at one moment. */
static void grant_counts_read(struct grant_counts *told)
{
	unsigned long irq;
	int cpu;

	raw_spin_lock_irqsave(&grants_lock, irq);
	*told = grant_counts;
	raw_spin_unlock_irqrestore(&grants_lock, irq);
	for_each_possible_cpu(cpu)
		told->refused[REFUSED_POOL] += READ_ONCE(per_cpu(grants_not_pooled, cpu));
}

/**
 * grants_status() - what was given, for people
 * @m: where to
 *
 * Context: process.
 */
void grants_status(struct seq_file *m)
{
	struct grant_counts told;

	grant_counts_read(&told);
	seq_printf(m, "granted: %llu of %llu KiB, to %u sockets that fill; %llu at most\n",
		   told.granted >> 10, mm_budget() >> 10, told.number, told.peak >> 10);
	if (mm_knob(MM_KNOB_MODE) == MM_MODE_OBSERVE)
		seq_printf(m, "observed: %llu buffers would have grown\n", told.observed);
	if (told.refused[REFUSED_BUDGET])
		seq_printf(m, "no budget: %llu times; raise budget, or lower default_size or scale\n",
			   told.refused[REFUSED_BUDGET]);
	if (told.refused[REFUSED_MEMORY])
		seq_printf(m, "no memory: %llu times; raise udp_mem or tcp_mem, or memory.max of the cgroup\n",
			   told.refused[REFUSED_MEMORY]);
}

/**
 * grants_metrics() - the same for machines
 * @m: where to
 *
 * Context: process.
 */
void grants_metrics(struct seq_file *m)
{
	struct grant_counts told;
	unsigned int i;

	grant_counts_read(&told);
	seq_printf(m, "# TYPE packetflow_mm_granted_bytes gauge\n"
		   "# HELP packetflow_mm_granted_bytes Space that buffers have beyond their own size.\n"
		   "packetflow_mm_granted_bytes %llu\n", told.granted);
	seq_printf(m, "# TYPE packetflow_mm_granted_bytes_peak gauge\n"
		   "# HELP packetflow_mm_granted_bytes_peak The most that it has been.\n"
		   "packetflow_mm_granted_bytes_peak %llu\n", told.peak);
	seq_printf(m, "# TYPE packetflow_mm_budget_bytes gauge\n"
		   "# HELP packetflow_mm_budget_bytes The most that it may be.\n"
		   "packetflow_mm_budget_bytes %llu\n", mm_budget());
	seq_printf(m, "# TYPE packetflow_mm_grown counter\n"
		   "# HELP packetflow_mm_grown Steps by which buffers grew.\n"
		   "packetflow_mm_grown_total %llu\n", told.grown);
	seq_printf(m, "# TYPE packetflow_mm_observed counter\n"
		   "# HELP packetflow_mm_observed Buffers that mode=enforce would have let grow.\n"
		   "packetflow_mm_observed_total %llu\n", told.observed);
	seq_printf(m, "# TYPE packetflow_mm_relief_seconds gauge\n"
		   "# UNIT packetflow_mm_relief_seconds seconds\n"
		   "# HELP packetflow_mm_relief_seconds Time that a buffer waits for room, on average.\n"
		   "packetflow_mm_relief_seconds 0.%06u\n",
		   min_t(u32, READ_ONCE(grants_relief_us), USEC_PER_SEC - 1));
	seq_puts(m, "# TYPE packetflow_mm_given_back counter\n"
		    "# HELP packetflow_mm_given_back Times that a buffer lost space it had been given.\n");
	for (i = 0; i < GIVEN; i++)
		seq_printf(m, "packetflow_mm_given_back_total{reason=\"%s\"} %llu\n",
			   given_names[i], told.given[i]);
	seq_puts(m, "# TYPE packetflow_mm_refused counter\n"
		    "# HELP packetflow_mm_refused Times that a buffer that fills could not grow.\n");
	for (i = 0; i < REFUSALS; i++)
		seq_printf(m, "packetflow_mm_refused_total{reason=\"%s\"} %llu\n",
			   refusal_names[i], told.refused[i]);
}
