// SPDX-License-Identifier: GPL-2.0-only
/*
 * The receive rate of a socket, measured where its packets pass, and the CPU that its receiver
 * runs on.
 *
 * Packets are counted in windows of 20 ms, and only while their CPU is watched. A window that began
 * before that is thrown away.
 *
 * Context: RCU read side, the packet path.
 */
#include <linux/jiffies.h>

#include "../internal.h"

/* A receive call tells the CPU once a second. The table of threads follows each move. */
static void entry_follow_owner(struct pflow_sock *entry)
{
	const struct pflow_thread *thread = pflow_thread_find(READ_ONCE(entry->pid));
	unsigned int cpu;

	if (!thread)
		return;
	cpu = READ_ONCE(thread->cpu);
	if (READ_ONCE(entry->run_cpu) != cpu)
		WRITE_ONCE(entry->run_cpu, cpu);
}

/**
 * pflow_sock_window() - close a window of counting and begin the next
 * @entry: the socket's entry
 * @packets: the first of the next window, counted already
 *
 * Another CPU may have closed it just now, even with jiffies one ahead of ours. Then there is
 * nothing to close: its time, and its packets, come out as nothing or less.
 *
 * Context: RCU read side, the packet path.
 */
void pflow_sock_window(struct pflow_sock *entry, unsigned int packets)
{
	u32 now = jiffies;
	u32 start = READ_ONCE(entry->window_start);
	u32 elapsed = now - start;
	u32 arrived = READ_ONCE(entry->arrived) - packets;
	s32 counted = arrived - READ_ONCE(entry->window_arrived);

	if (elapsed + HZ < PFLOW_WINDOW + HZ)
		return;
	if (!time_before32(start, this_cpu_read(pflow_load.since)))
		WRITE_ONCE(entry->rate,
			   pflow_rate_update(READ_ONCE(entry->rate),
					     max(counted, 0),
					     jiffies_to_usecs(min_t(u32, elapsed, 60 * HZ))));
	WRITE_ONCE(entry->window_arrived, arrived);
	WRITE_ONCE(entry->window_start, now);
	if (nr_cpu_ids > 1)
		entry_follow_owner(entry);
}
EXPORT_SYMBOL_GPL(pflow_sock_window);
