// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the controllers do, for people (status) and for machines (metrics).
 *
 * Context: process.
 */
#include "filter.h"

static void cut_show(struct seq_file *m, struct pflow_cut cut)
{
	seq_printf(m, " below prio %d held at the floor, %u %% of prio %d shed;",
		   pflow_rank_prio(cut.level / 2), cut.share * 100 / PFLOW_ONE,
		   pflow_rank_prio(cut.level / 2));
}

/**
 * filter_control_status() - what is being shed, for people
 * @m: where to
 *
 * Context: process.
 */
void filter_control_status(struct seq_file *m)
{
	bool any = false;
	int cpu;

	for_each_online_cpu(cpu) {
		const struct control *control = per_cpu_ptr(controls, cpu);

		if (!control_is_cutting(control))
			continue;
		any = true;
		seq_printf(m, "shedding: cpu %d: for prio %d;", cpu,
			   pflow_rank_prio(READ_ONCE(control->level) / 2));
		cut_show(m, cut_read(&control->cut));
		seq_printf(m, " idle %u %%\n", READ_ONCE(control->idle) * 100 / PFLOW_ONE);
	}
	if (!any)
		seq_puts(m, "shedding: nobody\n");
}

/**
 * filter_control_metrics() - the cuts, for machines
 * @m: where to
 *
 * Context: process.
 */
void filter_control_metrics(struct seq_file *m)
{
	int cpu;

	seq_puts(m, "# TYPE packetflow_filter_cut_level gauge\n"
		    "# HELP packetflow_filter_cut_level Level up to which receivers are shed, and the share of the topmost.\n");
	for_each_online_cpu(cpu) {
		struct pflow_cut cut = cut_read(&per_cpu_ptr(controls, cpu)->cut);

		seq_printf(m, "packetflow_filter_cut_level{cpu=\"%d\"} %u.%04u\n", cpu, cut.level,
			   cut.share * 10000 / PFLOW_ONE);
	}
}
