// SPDX-License-Identifier: GPL-2.0-only
/*
 * Stepping aside: under pressure our own threads run on the CPU that the softirqs take.
 *
 * They are of a real-time class and come before all receivers. Where one wakes beside a receiver
 * that pf_sched has raised to such a class, the scheduler pushes that receiver to another CPU.
 * On a calm CPU that push harms the receiver. It often ends on the CPU of the softirqs, which
 * looks free, since softirqs are not threads. On the pressed CPU the same push is what a
 * receiver needs.
 *
 * Context: the thread itself, at the beginning of its round.
 */
#include <linux/cpumask.h>
#include <linux/sched.h>

#include "../internal.h"

static bool cpu_pressed(int cpu)
{
	return READ_ONCE(per_cpu_ptr(&pflow_load, cpu)->pressed);
}

/**
 * pflow_step_aside() - have the calling thread of ours run on a CPU that is under pressure
 *
 * Without pressure it stays where it is. If that CPU goes offline, it may run on any.
 *
 * Context: process, may sleep; a kernel thread of ours.
 */
void pflow_step_aside(void)
{
	int cpu;

	if (current->nr_cpus_allowed == 1 && cpu_pressed(raw_smp_processor_id()))
		return;
	for_each_online_cpu(cpu)
		if (cpu_pressed(cpu)) {
			/* It may go offline just now; then the thread stays. */
			set_cpus_allowed_ptr(current, cpumask_of(cpu));
			return;
		}
}
EXPORT_SYMBOL_GPL(pflow_step_aside);
