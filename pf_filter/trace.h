/* SPDX-License-Identifier: GPL-2.0-only */
/* What pf_filter tells tracers: perf, bpftrace, trace-cmd. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM packetflow

#if !defined(_PFLOW_FILTER_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _PFLOW_FILTER_TRACE_H

#include <linux/tracepoint.h>

#include "filter.h"

TRACE_EVENT(early_drop,
	TP_PROTO(const struct filter_packet *packet, enum filter_outcome reason),
	TP_ARGS(packet, reason),
	TP_STRUCT__entry(
		__field(u64, cookie)
		__field(pid_t, pid)
		__field(unsigned int, packets)
		__field(u16, local_port)
		__field(u16, remote_port)
		__field(u8, rank)
		__field(u8, reason)
	),
	TP_fast_assign(
		__entry->cookie = packet->entry->cookie;
		__entry->pid = READ_ONCE(packet->entry->pid);
		__entry->packets = packet->packets;
		__entry->local_port = packet->local_port;
		__entry->remote_port = packet->remote_port;
		__entry->rank = READ_ONCE(packet->entry->rank);
		__entry->reason = reason;
	),
	TP_printk("reason=%s packets=%u local_port=%u remote_port=%u owner=%d rank=%u cookie=%llu",
		  __print_symbolic(__entry->reason, { FILTER_DROP_OVERLOAD, "overload" },
				   { FILTER_DROP_HARM, "harm" },
				   { FILTER_DROP_FULL, "socket_full" }),
		  __entry->packets, __entry->local_port, __entry->remote_port, __entry->pid,
		  __entry->rank, __entry->cookie)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
