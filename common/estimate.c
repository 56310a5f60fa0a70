// SPDX-License-Identifier: GPL-2.0-only
/*
 * The receive rate of a socket, measured where its packets pass.
 *
 * Packets are counted only while their CPU is watched. A window that spans a
 * pause of watching would look like a slow sender; watching lasts longer than
 * a window, and a window much longer than watching stands for a rare sender.
 */
#include <linux/jiffies.h>

#include "internal.h"

#define WINDOW	(HZ / 50)	/* 20 ms */

/**
 * pflow_sock_arrival() - count packets sent to a socket
 * @entry: the socket's entry
 * @packets: how many the buffer carries
 *
 * Several CPUs may count at once and lose a few; see struct pflow_sock.
 *
 * Context: RCU read side, the packet path.
 */
void pflow_sock_arrival(struct pflow_sock *entry, unsigned int packets)
{
	u32 now = jiffies;
	u32 elapsed = now - READ_ONCE(entry->window_start);

	if (elapsed < WINDOW) {
		WRITE_ONCE(entry->window_packets, entry->window_packets + packets);
		return;
	}
	WRITE_ONCE(entry->rate, pflow_rate_update(entry->rate, entry->window_packets,
						  jiffies_to_usecs(min_t(u32, elapsed, 60 * HZ))));
	WRITE_ONCE(entry->window_packets, packets);
	WRITE_ONCE(entry->window_start, now);
}
EXPORT_SYMBOL_GPL(pflow_sock_arrival);
