// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the controllers do, for people (status) and for machines (metrics).
 *
 * A cut tells at once that a receiver of some priority has too little. So a reader who may not see
 * other people's processes is shown cuts that are up to a second old.
 *
 * Context: process.
 */
#include "filter.h"

/**
 * struct shown - what is shown of a CPU's controller
 * @cut: cut in force, as one word
 * @idle: share of time idle lately, 0..65536
 * @level: for whom it cuts
 */
struct shown {
	u32 cut;
	u32 idle;
	u16 level;
};

static DEFINE_PER_CPU(struct shown, shown);
static DEFINE_RAW_SPINLOCK(shown_lock);
static u32 shown_at;	/* jiffies when all of them were taken */

static struct shown control_show(int cpu)
{
	const struct control *control = per_cpu_ptr(controls, cpu);

	return (struct shown){
		.cut = READ_ONCE(control->cut),
		.idle = READ_ONCE(control->idle),
		.level = READ_ONCE(control->level),
	};
}

/* As it is to be told to whoever reads. */
static struct shown cut_of(const struct seq_file *m, int cpu)
{
	struct shown found;
	int other;

	if (pflow_reader_is_admin(m))
		return control_show(cpu);
	raw_spin_lock(&shown_lock);
	if ((u32)jiffies - shown_at >= HZ) {
		shown_at = jiffies;
		for_each_possible_cpu(other)
			per_cpu(shown, other) = control_show(other);
	}
	found = per_cpu(shown, cpu);
	raw_spin_unlock(&shown_lock);
	return found;
}

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
		struct shown told = cut_of(m, cpu);

		if (!told.cut)
			continue;
		any = true;
		seq_printf(m, "shedding: cpu %d: for prio %d;", cpu,
			   pflow_rank_prio(told.level / 2));
		cut_show(m, cut_read(&told.cut));
		seq_printf(m, " idle %u %%\n", told.idle * 100 / PFLOW_ONE);
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
		struct shown told = cut_of(m, cpu);
		struct pflow_cut cut = cut_read(&told.cut);

		seq_printf(m, "packetflow_filter_cut_level{cpu=\"%d\"} %u.%04u\n", cpu, cut.level,
			   cut.share * 10000 / PFLOW_ONE);
	}
}
