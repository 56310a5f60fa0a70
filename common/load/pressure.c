// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pressure: which CPU's packets are looked at, and for how long.
 *
 * A CPU with a sign of overload (signals.c) is *pressed* for a second after the last one. Only then
 * are its packets judged and its receive calls looked at. Where looking does not pay, it *rests*:
 * drops at a socket, and squeezes, do not make it look again for a while. On PREEMPT_RT squeezes
 * are frequent: the time for which a softirq was preempted counts as its own.
 *
 * Context: any but NMI. What is written are single words.
 */
#include <linux/jiffies.h>
#include <linux/math64.h>
#include <linux/seq_file.h>

#include "../internal.h"

#define REST		HZ

DEFINE_PER_CPU_ALIGNED(struct pflow_load, pflow_load);
EXPORT_PER_CPU_SYMBOL_GPL(pflow_load);

static void load_prolong_pressure(struct pflow_load *load)
{
	u32 until = (u32)jiffies + PFLOW_PRESSED_FOR;

	if (READ_ONCE(load->until) != until)
		WRITE_ONCE(load->until, until);
}

/**
 * pflow_load_pressed() - is a CPU under pressure, looked at or resting?
 * @load: of the CPU
 *
 * Context: any. Return: whether it is.
 */
bool pflow_load_pressed(const struct pflow_load *load)
{
	return READ_ONCE(load->pressed) ||
	       (READ_ONCE(load->resting) && !time_after32((u32)jiffies, READ_ONCE(load->until)));
}

/**
 * pflow_load_raise() - have a CPU's packets looked at, since something overflows there
 * @cpu: which
 *
 * Context: any but NMI.
 */
void pflow_load_raise(int cpu)
{
	struct pflow_load *load = per_cpu_ptr(&pflow_load, cpu);

	load_prolong_pressure(load);
	if (READ_ONCE(load->pressed))
		return;
	WRITE_ONCE(load->resting, false);
	if (!READ_ONCE(load->watch))
		WRITE_ONCE(load->since, (u32)jiffies);
	WRITE_ONCE(load->pressed, 1);
	pflow_estimator_wake();
}
EXPORT_SYMBOL_GPL(pflow_load_raise);

/**
 * pflow_load_hint() - have a CPU's packets looked at, if that may be worth it
 * @cpu: which
 *
 * They are not looked at if that was just seen not to pay.
 *
 * Context: any but NMI.
 */
void pflow_load_hint(int cpu)
{
	struct pflow_load *load = per_cpu_ptr(&pflow_load, cpu);

	/* Mostly it is pressed already. */
	if (READ_ONCE(load->pressed) ||
	    (READ_ONCE(load->resting) && time_before32((u32)jiffies, READ_ONCE(load->rest_until))))
		load_prolong_pressure(load);
	else
		pflow_load_raise(cpu);
}

/**
 * pflow_load_rest() - looking at this CPU's packets does not pay: stop for a while
 * @cpu: which
 *
 * It stays under pressure as long as sockets on it drop.
 *
 * Context: any but NMI.
 */
void pflow_load_rest(int cpu)
{
	struct pflow_load *load = per_cpu_ptr(&pflow_load, cpu);

	WRITE_ONCE(load->rest_until, (u32)jiffies + REST);
	WRITE_ONCE(load->resting, true);
	WRITE_ONCE(load->pressed, 0);
}
EXPORT_SYMBOL_GPL(pflow_load_rest);

/**
 * pflow_load_expire() - end a CPU's pressure if the last sign of it is long ago
 * @load: of the CPU
 *
 * Context: the estimator's thread.
 */
void pflow_load_expire(struct pflow_load *load)
{
	if (!time_after32((u32)jiffies, READ_ONCE(load->until)))
		return;
	if (READ_ONCE(load->pressed))
		WRITE_ONCE(load->pressed, 0);
	if (READ_ONCE(load->resting))
		WRITE_ONCE(load->resting, false);
}

/**
 * pflow_pressure_status() - the pressed CPUs, for people
 * @m: where to
 *
 * Context: process.
 */
void pflow_pressure_status(struct seq_file *m)
{
	unsigned int pressed = 0;
	int cpu;

	for_each_online_cpu(cpu) {
		const struct pflow_load *load = per_cpu_ptr(&pflow_load, cpu);

		if (!pflow_load_pressed(load))
			continue;
		pressed++;
		seq_printf(m, "cpu %d: under pressure; queue stood full %llu ms, %u lost before the stack\n",
			   cpu, div_u64(READ_ONCE(load->standing_ns), NSEC_PER_MSEC),
			   READ_ONCE(load->lost));
	}
	if (!pressed)
		seq_puts(m, "cpus: none under pressure\n");
}

/**
 * pflow_pressure_metrics() - the signals, for machines
 * @m: where to
 *
 * Context: process.
 */
void pflow_pressure_metrics(struct seq_file *m)
{
	int cpu;

	seq_puts(m, "# TYPE packetflow_cpu_pressed gauge\n"
		    "# HELP packetflow_cpu_pressed 1 while something overflows on the CPU.\n");
	for_each_online_cpu(cpu)
		seq_printf(m, "packetflow_cpu_pressed{cpu=\"%d\"} %u\n", cpu,
			   pflow_load_pressed(per_cpu_ptr(&pflow_load, cpu)));
	seq_puts(m, "# TYPE packetflow_cpu_resting gauge\n"
		    "# HELP packetflow_cpu_resting 1 while packets of a pressed CPU are not looked at, as that did not pay.\n");
	for_each_online_cpu(cpu)
		seq_printf(m, "packetflow_cpu_resting{cpu=\"%d\"} %u\n", cpu,
			   READ_ONCE(per_cpu_ptr(&pflow_load, cpu)->resting));
	seq_puts(m, "# TYPE packetflow_cpu_queue_standing_seconds counter\n"
		    "# UNIT packetflow_cpu_queue_standing_seconds seconds\n"
		    "# HELP packetflow_cpu_queue_standing_seconds Time during which a receive queue stood full.\n");
	for_each_online_cpu(cpu) {
		u64 ns = READ_ONCE(per_cpu_ptr(&pflow_load, cpu)->standing_ns);
		u32 rest;
		u64 s = div_u64_rem(ns, NSEC_PER_SEC, &rest);

		seq_printf(m, "packetflow_cpu_queue_standing_seconds_total{cpu=\"%d\"} %llu.%09u\n",
			   cpu, s, rest);
	}
	seq_puts(m, "# TYPE packetflow_cpu_lost_packets counter\n"
		    "# HELP packetflow_cpu_lost_packets Packets seen lost before the protocol stack.\n");
	for_each_online_cpu(cpu)
		seq_printf(m, "packetflow_cpu_lost_packets_total{cpu=\"%d\"} %u\n", cpu,
			   READ_ONCE(per_cpu_ptr(&pflow_load, cpu)->lost));
}
