// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is shown of boosts, for people and for machines.
 *
 * Context: process.
 */
#include <linux/seq_file.h>

#include "slots.h"

static const char * const refusal_names[REFUSALS] = {
	[REFUSED_CLASS] = "class",
	[REFUSED_TOP] = "top",
	[REFUSED_EXEMPT] = "exempt",
	[REFUSED_PLACE] = "place",
	[REFUSED_CAP] = "cap",
	[REFUSED_LEVER] = "lever",
	[REFUSED_APART] = "apart",
	[REFUSED_VAIN] = "vain",
	[REFUSED_OUTRANKED] = "outranked",
	[REFUSED_UNKNOWN] = "unknown",
};

static const char * const end_names[ENDS] = {
	[END_EXPIRED] = "expired",
	[END_CLOSED] = "closed",
	[END_EXITED] = "exited",
	[END_EXEC] = "exec",
	[END_OTHER] = "other",
	[END_BARRED] = "barred",
	[END_TRIAL] = "trial",
	[END_DISPLACED] = "displaced",
	[END_STOPPED] = "stopped",
	[END_CHANGED] = "changed",
	[END_CAP] = "cap",
	[END_WEAK] = "weak",
};

/* Show a raised thread, its name to administrators only. Return: whether this slot raises one. */
static bool slot_status(struct seq_file *m, const struct slot *slot, bool named)
{
	char comm[TASK_COMM_LEN];
	enum boost_lever lever;
	unsigned int levels;
	unsigned long irq;
	int pid, prio;
	bool shown;

	raw_spin_lock_irqsave(&slots_lock, irq);
	shown = slot->state == SLOT_RAISED;
	if (shown) {
		pid = slot->boost.task->pid;
		strscpy(comm, slot->boost.task->comm, sizeof(comm));
		prio = pflow_rank_prio(slot->rank);
		lever = slot->boost.lever;
		levels = slot->boost.levels;
	}
	raw_spin_unlock_irqrestore(&slots_lock, irq);
	if (!shown || !named)
		return shown;
	pflow_one_word(comm);
	seq_printf(m, "raised: thread %d (%s) of prio %d, by %s", pid, comm, prio,
		   lever_name(lever));
	if (levels)
		seq_printf(m, ", %u levels", levels);
	seq_putc(m, '\n');
	return true;
}

/**
 * boost_status() - who is raised, for people
 * @m: where to
 *
 * Context: process.
 */
void boost_status(struct seq_file *m)
{
	bool named = pflow_reader_is_admin(m);
	unsigned int raised = 0, i;

	for (i = 0; i < SLOTS; i++)
		raised += slot_status(m, &slots[i], named);
	if (raised && !named)
		seq_printf(m, "raised: %u in all\n", raised);
	if (!raised)
		seq_puts(m, "raised: nobody\n");
	if (sched_knob(SCHED_KNOB_LEVER) == lever_by_name(LEVER_GROUP))
		seq_puts(m, "lever=group: sessions are raised by the program packetflow-group; see that it runs\n");
	if (READ_ONCE(slot_counts.refused[REFUSED_LEVER]))
		seq_printf(m, "no lever: %llu times; where a cgroup has the cpu controller set escape=1 to let receivers pass its cpu.max, and where RLIMIT_RTTIME is set lift it\n",
			   READ_ONCE(slot_counts.refused[REFUSED_LEVER]));
}

/**
 * boost_metrics() - elections and their ends, for machines
 * @m: where to
 *
 * Context: process.
 */
void boost_metrics(struct seq_file *m)
{
	unsigned int raised[LEVERS] = { 0 };
	unsigned long irq;
	unsigned int i;

	raw_spin_lock_irqsave(&slots_lock, irq);
	for (i = 0; i < SLOTS; i++)
		if (slots[i].state == SLOT_RAISED)
			raised[slots[i].boost.lever]++;
	raw_spin_unlock_irqrestore(&slots_lock, irq);

	seq_printf(m, "# TYPE packetflow_sched_elected counter\n"
		   "# HELP packetflow_sched_elected Threads raised.\n"
		   "packetflow_sched_elected_total %llu\n", READ_ONCE(slot_counts.elected));
	seq_printf(m, "# TYPE packetflow_sched_observed counter\n"
		   "# HELP packetflow_sched_observed Threads that mode=enforce would have raised.\n"
		   "packetflow_sched_observed_total %llu\n", READ_ONCE(slot_counts.observed));
	seq_puts(m, "# TYPE packetflow_sched_refused counter\n"
		    "# HELP packetflow_sched_refused Threads whose buffer filled and who were not raised.\n");
	for (i = 0; i < REFUSALS; i++)
		seq_printf(m, "packetflow_sched_refused_total{reason=\"%s\"} %llu\n",
			   refusal_names[i], READ_ONCE(slot_counts.refused[i]));
	seq_puts(m, "# TYPE packetflow_sched_restored counter\n"
		    "# HELP packetflow_sched_restored Boosts that ended.\n");
	for (i = 0; i < ENDS; i++)
		seq_printf(m, "packetflow_sched_restored_total{reason=\"%s\"} %llu\n",
			   end_names[i], READ_ONCE(slot_counts.ended[i]));
	seq_puts(m, "# TYPE packetflow_sched_boosted gauge\n"
		    "# HELP packetflow_sched_boosted Threads raised now.\n");
	for (i = 0; i < LEVERS; i++)
		seq_printf(m, "packetflow_sched_boosted{lever=\"%s\"} %u\n", lever_name(i),
			   raised[i]);
}
