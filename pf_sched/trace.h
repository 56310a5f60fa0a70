/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What pf_sched tells tracers (perf, bpftrace, trace-cmd): a boost begins, and it ends, with the
 * reason. tools/packetflow-group goes by these two events, so they are more than a help to people.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM packetflow

#if !defined(_PFLOW_SCHED_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _PFLOW_SCHED_TRACE_H

#include <linux/tracepoint.h>

#include "sched.h"

#define show_lever(lever)						\
	__print_symbolic(lever, { LEVER_NICE, "nice" }, { LEVER_GROUP, "group" },	\
			 { LEVER_DEADLINE, "deadline" }, { LEVER_RR, "rr" }, { LEVERS, "none" })

TRACE_EVENT(boost,
	TP_PROTO(const struct boost *boost, u8 rank),
	TP_ARGS(boost, rank),
	TP_STRUCT__entry(
		__array(char, comm, TASK_COMM_LEN)
		__field(pid_t, pid)
		__field(u8, rank)
		__field(u8, lever)
		__field(u8, levels)
	),
	TP_fast_assign(
		memcpy(__entry->comm, boost->task->comm, TASK_COMM_LEN);
		__entry->pid = boost->task->pid;
		__entry->rank = rank;
		__entry->lever = boost->lever;
		__entry->levels = boost->levels;
	),
	TP_printk("comm=%s pid=%d rank=%u lever=%s levels=%u", __entry->comm, __entry->pid,
		  __entry->rank, show_lever(__entry->lever), __entry->levels)
);

TRACE_EVENT(restore,
	TP_PROTO(const struct task_struct *task, pid_t pid, enum boost_lever lever,
		 enum boost_end end),
	TP_ARGS(task, pid, lever, end),
	TP_STRUCT__entry(
		__array(char, comm, TASK_COMM_LEN)
		__field(pid_t, pid)
		__field(u8, lever)
		__field(u8, end)
	),
	TP_fast_assign(
		memcpy(__entry->comm, task->comm, TASK_COMM_LEN);
		__entry->pid = pid;
		__entry->lever = lever;
		__entry->end = end;
	),
	TP_printk("comm=%s pid=%d lever=%s reason=%s", __entry->comm, __entry->pid,
		  show_lever(__entry->lever),
		  __print_symbolic(__entry->end, { END_EXPIRED, "expired" },
				   { END_CLOSED, "closed" }, { END_EXITED, "exited" },
				   { END_EXEC, "exec" }, { END_DISPLACED, "displaced" },
				   { END_STOPPED, "stopped" }, { END_CHANGED, "changed" },
				   { END_CAP, "cap" }, { END_WEAK, "weak" },
				   { END_OTHER, "other" }, { END_BARRED, "barred" },
				   { END_TRIAL, "trial" }))
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
