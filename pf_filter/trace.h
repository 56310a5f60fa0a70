/* SPDX-License-Identifier: GPL-2.0-only */
/* What pf_filter tells tracers: perf, bpftrace, trace-cmd. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM packetflow

#if !defined(_PFLOW_FILTER_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _PFLOW_FILTER_TRACE_H

#include <linux/tracepoint.h>

#include "filter.h"

TRACE_DEFINE_ENUM(FILTER_DROP_OVERLOAD);
TRACE_DEFINE_ENUM(FILTER_DROP_HARM);
TRACE_DEFINE_ENUM(FILTER_DROP_FULL);

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

TRACE_EVENT(receiver,
	TP_PROTO(const struct pflow_thread *thread),
	TP_ARGS(thread),
	TP_STRUCT__entry(
		__field(pid_t, pid)
		__field(u16, cpu)
		__field(u8, rank)
		__field(u32, run)
		__field(u32, wait)
	),
	TP_fast_assign(
		__entry->pid = READ_ONCE(thread->pid);
		__entry->cpu = READ_ONCE(thread->cpu);
		__entry->rank = READ_ONCE(thread->rank);
		__entry->run = READ_ONCE(thread->run);
		__entry->wait = READ_ONCE(thread->wait);
	),
	TP_printk("pid=%d rank=%u cpu=%u run=%u wait=%u", __entry->pid, __entry->rank,
		  __entry->cpu, __entry->run, __entry->wait)
);

TRACE_EVENT(control,
	TP_PROTO(const struct usage *usage, u32 idle, u32 cut, const struct harm *worst,
		 u32 asking_us),
	TP_ARGS(usage, idle, cut, worst, asking_us),
	TP_STRUCT__entry(
		__field(u32, idle)
		__field(u32, softirq)
		__field(u32, standing)
		__field(u32, cut)
		__field(u32, harm)
		__field(u32, spare)
		__field(u32, asking_us)
		__field(u16, cpu)
		__field(u16, level)
		__field(u8, cause)
	),
	TP_fast_assign(
		__entry->idle = idle;
		__entry->softirq = usage->softirq;
		__entry->standing = usage->standing;
		__entry->cut = cut;
		__entry->harm = worst->share;
		__entry->spare = worst->spare;
		__entry->asking_us = asking_us;
		__entry->cpu = usage->cpu;
		__entry->level = worst->level;
		__entry->cause = worst->cause;
	),
	TP_printk("cpu=%u cut=%u.%05u harm=%u level=%u cause=%s idle=%u softirq=%u standing=%u spare=%u asking_us=%u",
		  __entry->cpu, __entry->cut >> 16, __entry->cut & U16_MAX, __entry->harm,
		  __entry->level,
		  __print_symbolic(__entry->cause, { FILTER_DROP_OVERLOAD, "overload" },
				   { FILTER_DROP_HARM, "harm" }),
		  __entry->idle, __entry->softirq, __entry->standing, __entry->spare,
		  __entry->asking_us)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
