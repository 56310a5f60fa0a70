// SPDX-License-Identifier: GPL-2.0-only
/*
 * Count: what became of the packets that were looked at, on each CPU and by reason.
 *
 * Context: softirq, RCU read side, unless said otherwise.
 */
#include "filter.h"

/* Packets, by what became of them, and by what would have in mode=observe. */
static DEFINE_PER_CPU(u64 [FILTER_OUTCOMES], outcomes);
static DEFINE_PER_CPU(u64 [PFLOW_DROPS], observed);

static const char * const outcome_names[FILTER_OUTCOMES] = {
	[FILTER_DROP_OVERLOAD] = "overload",
	[FILTER_DROP_HARM] = "harm",
	[FILTER_DROP_FULL] = "socket_full",
	[FILTER_PASS] = "judged",
	[FILTER_PASS_EXEMPT] = "exempt",
	[FILTER_PASS_OTHER_PROTOCOL] = "other_protocol",
	[FILTER_PASS_NOT_HOST] = "not_host",
	[FILTER_PASS_FORWARDED] = "forwarded",
	[FILTER_PASS_NOT_PLAIN] = "not_plain",
	[FILTER_PASS_NO_RECEIVER] = "no_receiver",
	[FILTER_PASS_KERNEL_SOCKET] = "kernel_socket",
	[FILTER_PASS_UNTRACKED] = "untracked",
	[FILTER_PASS_TRACED] = "traced",
	[FILTER_PASS_BEFORE] = "judged_before",
};

/* Count what becomes of a packet, or would. Return: whether it is to be dropped. */
static bool filter_count_outcome(const struct filter_packet *packet, enum filter_outcome outcome)
{
	if (outcome < FILTER_PASS &&
	    READ_ONCE(filter_knobs[FILTER_KNOB_MODE].value) == FILTER_MODE_OBSERVE) {
		this_cpu_add(observed[outcome], packet->packets);
		return false;
	}
	this_cpu_add(outcomes[outcome], packet->packets);
	return outcome < FILTER_PASS;
}

/**
 * filter_count_looks() - what looking at a CPU's packets came to
 * @cpu: which
 * @dropped: filled in: dropped early, or would have been
 * @passed: filled in: looked at in vain
 *
 * Context: any.
 */
void filter_count_looks(int cpu, u64 *dropped, u64 *passed)
{
	unsigned int i;

	*dropped = 0;
	for (i = 0; i < PFLOW_DROPS; i++)
		*dropped += READ_ONCE(per_cpu(outcomes[i], cpu)) +
			    READ_ONCE(per_cpu(observed[i], cpu));
	*passed = 0;
	for (i = FILTER_PASS; i < FILTER_OUTCOMES; i++)
		if (pflow_looked_in_vain(i))
			*passed += READ_ONCE(per_cpu(outcomes[i], cpu));
}

/* Of all CPUs, a counter that is at @counter on each. */
static u64 counter_sum(const u64 __percpu *counter)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(*per_cpu_ptr(counter, cpu));
	return sum;
}

/**
 * filter_count_status() - drops, for people
 * @m: where to
 *
 * Context: process.
 */
void filter_count_status(struct seq_file *m)
{
	seq_printf(m, "dropped: %llu for an overflowing receive queue, %llu for a harmed receiver, %llu for a full socket\n",
		   counter_sum(&outcomes[FILTER_DROP_OVERLOAD]),
		   counter_sum(&outcomes[FILTER_DROP_HARM]),
		   counter_sum(&outcomes[FILTER_DROP_FULL]));
	if (READ_ONCE(filter_knobs[FILTER_KNOB_MODE].value) == FILTER_MODE_OBSERVE)
		seq_printf(m, "observed: would have dropped %llu, %llu, %llu\n",
			   counter_sum(&observed[PFLOW_DROP_OVERLOAD]),
			   counter_sum(&observed[PFLOW_DROP_HARM]),
			   counter_sum(&observed[PFLOW_DROP_FULL]));
}

/**
 * filter_count_metrics() - what became of the packets looked at, for machines
 * @m: where to
 *
 * Context: process.
 */
void filter_count_metrics(struct seq_file *m)
{
	unsigned int i;

	seq_puts(m, "# TYPE packetflow_filter_dropped counter\n"
		    "# HELP packetflow_filter_dropped Packets dropped early.\n");
	for (i = 0; i < PFLOW_DROPS; i++)
		seq_printf(m, "packetflow_filter_dropped_total{reason=\"%s\"} %llu\n",
			   outcome_names[i], counter_sum(&outcomes[i]));
	seq_puts(m, "# TYPE packetflow_filter_observed counter\n"
		    "# HELP packetflow_filter_observed Packets that mode=enforce would have dropped.\n");
	for (i = 0; i < PFLOW_DROPS; i++)
		seq_printf(m, "packetflow_filter_observed_total{reason=\"%s\"} %llu\n",
			   outcome_names[i], counter_sum(&observed[i]));
	seq_puts(m, "# TYPE packetflow_filter_passed counter\n"
		    "# HELP packetflow_filter_passed Packets looked at and let through.\n");
	for (i = FILTER_PASS; i < FILTER_OUTCOMES; i++)
		seq_printf(m, "packetflow_filter_passed_total{reason=\"%s\"} %llu\n",
			   outcome_names[i], counter_sum(&outcomes[i]));
}
