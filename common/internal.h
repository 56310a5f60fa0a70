/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of pf_common share among themselves, by folder and file. What other modules may
 * use is in the headers beside this one.
 */
#ifndef _PFLOW_INTERNAL_H
#define _PFLOW_INTERNAL_H

#include <linux/err.h>
#include <linux/net.h>
#include <linux/preempt.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <net/inet_sock.h>

#include "packetflow.h"

/* modules.c */
int pflow_enable(unsigned int on);
void pflow_modules_teardown(void);
void pflow_refresh(void);
void pflow_modules_pressure(bool pressure, bool watch);
bool pflow_modules_time_threads(void);
void pflow_modules_note_close(const struct sock *sk);
u32 pflow_modules_buffer_most(u8 protocol, u8 rank);
void pflow_modules_status(struct seq_file *m);
void pflow_modules_metrics(struct seq_file *m);

/*
 * A reader of a file calls these around what is shown of modules and probes. To stop a module takes
 * a grace period, and so waits for readers. A reader may be a process that gets idle time only. So
 * preemption is off meanwhile: nobody takes the CPU from a reader that has begun, and it is soon
 * done. No lock is held, and nothing may sleep. What is shown are some hundred lines at most.
 */
static inline void pflow_show_begin(void)
{
	preempt_disable();
	rcu_read_lock();
}

static inline void pflow_show_end(void)
{
	rcu_read_unlock();
	preempt_enable();
}

/* sockets/table.c */
int pflow_table_setup(unsigned int max_sockets);
void pflow_table_teardown(void);

/* How a socket was come by. */
enum pflow_met {
	PFLOW_MET_OPEN,		/* a task has it open */
	PFLOW_MET_MADE,		/* it is being bound, or was accepted: it has a port in a moment */
	PFLOW_MET_RECEIVING,	/* somebody receives on it */
};

struct pflow_sock *pflow_sock_get(struct sock *sk, enum pflow_met met);
void pflow_sock_forget(const struct sock *sk);
void pflow_table_reap(u32 since);
void pflow_table_clear(void);
void pflow_table_for_each(void (*fn)(struct pflow_sock *entry, void *data), void *data);
unsigned int pflow_table_buckets(void);
void pflow_table_bucket(unsigned int bucket,
			void (*fn)(struct pflow_sock *entry, void *data), void *data);
raw_spinlock_t *pflow_sock_lock(const struct pflow_sock *entry);

/**
 * struct pflow_table_stats - how full the table is
 * @used: entries
 * @max: most there may be
 * @refused: sockets that found it full
 * @starved: sockets that found the pool empty and were left to the next scan
 * @reaped: entries whose release was missed
 * @displaced: entries that gave way to others, as the table was full
 */
struct pflow_table_stats {
	unsigned int used;
	unsigned int max;
	unsigned long refused;
	unsigned long starved;
	unsigned long reaped;
	unsigned long displaced;
};

void pflow_table_stats(struct pflow_table_stats *stats);

/* sockets/pool.c */
int pflow_pool_setup(void);
void pflow_pool_teardown(void);
struct pflow_sock *pflow_pool_take(void);
void pflow_pool_refill(void);
void pflow_pool_free(struct pflow_sock *entry);
void pflow_pool_free_later(struct pflow_sock *entry);

/* sockets/owner.c */
void pflow_owner_note_holding(struct sock *sk, struct task_struct *task, u8 scan);
void pflow_owner_note_accept(struct sock *sk);
void pflow_owner_note_receive(struct sock *sk);
void pflow_owner_note_send(const struct sock *sk);

/* Is it a process's? A socket without a file is the kernel's own, such as a tunnel's. */
static inline struct sock *pflow_process_sock(const struct socket *sock)
{
	return sock->file ? sock->sk : NULL;
}

/* Can it be sent anything? */
static inline bool pflow_sock_bound(const struct sock *sk)
{
	return READ_ONCE(inet_sk(sk)->inet_num);
}

/* sockets/group.c */
#define PFLOW_GROUP_NAME	64
int pflow_group_nice(const struct task_struct *task);
void pflow_group_name(struct task_struct *task, char *name, size_t size);

/* sockets/priority.c */

/**
 * struct pflow_priority - how much a task matters
 * @rank: pflow_rank() of its own class and nice, and of its control group's weight
 * @group: scheduling group, as an identity
 * @autogroup: that group is an autogroup
 */
struct pflow_priority {
	u8 rank;
	const void *group;
	bool autogroup;
};

void pflow_task_priority(struct task_struct *task, struct pflow_priority *priority);

/**
 * struct pflow_inert - whether nice means anything between the receivers
 * @group: of the first one
 * @receivers: how many were looked at
 * @groups_differ: not all share one scheduling group
 * @autogroup: autogroup is why
 */
struct pflow_inert {
	const void *group;
	unsigned int receivers;
	bool groups_differ;
	bool autogroup;
};

void pflow_inert_check(struct pflow_inert *inert);

/* sockets/scan.c */
bool pflow_scan(void);
void pflow_scan_whole(void);

/* threads/threads.c */
void pflow_thread_note_receive(u8 rank, bool stream);
void pflow_threads_note(bool on);
void pflow_threads_measure(bool on);

/* threads/place.c */
#ifdef CONFIG_SMP
bool pflow_place_step(const struct cpumask *idle);

/* threads/crowd.c */
void pflow_crowd_out(struct task_struct *task, int cpu);
int pflow_crowd_setup(void);
void pflow_crowd_teardown(void);
#else
static inline bool pflow_place_step(const struct cpumask *idle)
{
	return false;
}

static inline int pflow_crowd_setup(void)
{
	return 0;
}

static inline void pflow_crowd_teardown(void)
{
}
#endif

/* load/pressure.c */
bool pflow_load_pressed(const struct pflow_load *load);
void pflow_load_hint(int cpu);
void pflow_load_expire(struct pflow_load *load);
void pflow_pressure_status(struct seq_file *m);
void pflow_pressure_metrics(struct seq_file *m);

/* load/signals.c */
struct net_device *pflow_device_find(const struct pflow_device *noted, const void *wanted);
void pflow_signals_read(int cpu);
int pflow_signals_setup(void);
void pflow_signals_teardown(void);

/* load/waiting.c */
bool pflow_waiting_busy(struct cpumask *busy, struct cpumask *idle);
u32 pflow_waiting_softirq(int cpu);
void pflow_waiting_check(void);
void pflow_waiting_setup(void);

/* load/estimator.c */
void pflow_estimator_wake(void);
int pflow_estimator_setup(void);
void pflow_estimator_teardown(void);
void pflow_estimator_sample(void);

/* load/batch.c */
extern u32 pflow_prompt_at;
void pflow_batch_note_poller(u32 napi_id);
int pflow_batch_setup(void);
void pflow_batch_teardown(void);
bool pflow_batch_step(const struct cpumask *busy);
void pflow_batch_status(struct seq_file *m);

/* probes/probes.c */
int pflow_probes_setup(void);
void pflow_probes_teardown(void);
bool pflow_probes_arm(struct pflow_probes *probes);
void pflow_probes_status(struct seq_file *m);
void pflow_probes_metrics(struct seq_file *m);

/* probes/calls.c */
enum pflow_watch {
	PFLOW_WATCH_NONE,
	PFLOW_WATCH_NEWS,	/* those who were not seen for a second */
	PFLOW_WATCH_ALL,
};

int pflow_calls_setup(void);
void pflow_calls_teardown(void);
void pflow_calls_watch(enum pflow_watch at);
bool pflow_calls_arm(void);
void pflow_calls_want_sends(bool on);

/* probes/canary.c */
int pflow_canary_setup(void);
void pflow_canary_teardown(void);
bool pflow_canary_heard(void);

/* probes/ftrace.c */
#ifdef CONFIG_DYNAMIC_FTRACE_WITH_ARGS
struct ftrace_ops *pflow_ftrace_attach(const void *address, pflow_ftrace_t handler);
void pflow_ftrace_detach(struct ftrace_ops *ops);
#else
static inline struct ftrace_ops *pflow_ftrace_attach(const void *address, pflow_ftrace_t handler)
{
	return ERR_PTR(-EOPNOTSUPP);
}

static inline void pflow_ftrace_detach(struct ftrace_ops *ops)
{
}
#endif

/* proc/proc.c */
extern struct proc_dir_entry *pflow_root;
int pflow_proc_setup(void);
void pflow_proc_teardown(void);

/* proc/knobs.c */
enum {
	PFLOW_KNOB_ENABLE,
	PFLOW_KNOB_MAX_SOCKETS,
	PFLOW_KNOB_BATCH_US,
	PFLOW_KNOB_RANK_DEPTH,
	PFLOW_KNOBS,
};

extern struct pflow_knob pflow_knobs[PFLOW_KNOBS];
int pflow_knob_create(struct pflow_knob *knob, struct proc_dir_entry *dir);

#endif
