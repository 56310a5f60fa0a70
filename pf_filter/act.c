// SPDX-License-Identifier: GPL-2.0-only
/*
 * Act: drop a packet so that nobody has to wonder where it went.
 *
 * Each cause has its own function that frees the buffer. So the location that dropwatch
 * and "perf trace -e skb:kfree_skb" show names the cause. The drop reason is one of the
 * kernel's own, as a module cannot add reasons. The socket's drop counter and the
 * UDP counters go up as they would have further on: "ss -m" and nstat keep
 * telling what a receiver lost. A packet that was dropped without looking up
 * its socket is *owed* to the socket's counter. It is paid when a packet's socket is looked up
 * again, within a jiffy under load, or when somebody reads the table, or when the suite stops.
 *
 * Context: softirq, RCU read side.
 */
#include "../common/compat/compat.h"
#include "filter.h"

/*
 * Each function below counts its own cause. That also keeps the compiler from making one of two
 * that are otherwise the same.
 */
static __always_inline void packet_drop_as(struct filter_packet *packet, enum pflow_drop cause,
					   enum skb_drop_reason reason)
{
	atomic_add(packet->packets, &packet->entry->early[cause]);
	if (likely(packet->skb))
		sk_skb_reason_drop(packet->sk, packet->skb, reason);
	else
		this_cpu_inc(pflow_load.frames);
	barrier();	/* not a tail call, or the location would be the caller's */
}

static noinline void pflow_drop_overload(struct filter_packet *packet)
{
	packet_drop_as(packet, PFLOW_DROP_OVERLOAD, SKB_DROP_REASON_CPU_BACKLOG);
}

static noinline void pflow_drop_harm(struct filter_packet *packet)
{
	packet_drop_as(packet, PFLOW_DROP_HARM, SKB_DROP_REASON_CPU_BACKLOG);
}

static noinline void pflow_drop_full(struct filter_packet *packet)
{
	pflow_udp_stats_add(packet->home, packet->v4, UDP_MIB_RCVBUFERRORS, packet->packets);
	packet_drop_as(packet, PFLOW_DROP_FULL, SKB_DROP_REASON_SOCKET_RCVBUFF);
}

/**
 * filter_drop() - drop a packet early
 * @packet: judged; its buffer is freed, if it has got one yet
 * @outcome: one of the FILTER_DROP_*
 *
 * Context: softirq, RCU read side.
 */
static void filter_drop(struct filter_packet *packet, enum filter_outcome outcome)
{
	if (packet->sk)
		pflow_sk_drops_add(packet->sk, packet->packets);
	else
		atomic_add(packet->packets, &packet->entry->owed);
	pflow_udp_stats_add(packet->home, packet->v4, UDP_MIB_INERRORS, packet->packets);
	trace_early_drop(packet, outcome);
	if (outcome == FILTER_DROP_OVERLOAD)
		pflow_drop_overload(packet);
	else if (outcome == FILTER_DROP_HARM)
		pflow_drop_harm(packet);
	else
		pflow_drop_full(packet);
}
