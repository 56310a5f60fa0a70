/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * PacketFlow: what the modules share.
 *
 * pf_common owns the table of receiving sockets (the paper's sockbuf_table,
 * Fig. 5), learns who receives on them, watches each CPU for overload and
 * carries /proc/packetflow. The other modules read the table and hang their
 * files below that root; they know nothing of each other.
 *
 * Lifetimes: an entry is found and used inside one RCU read-side section. It
 * names its socket by address *and* cookie; the address is only compared,
 * never followed, except by a caller that holds the socket itself.
 */
#ifndef _PACKETFLOW_H
#define _PACKETFLOW_H

#include <linux/cache.h>
#include <linux/types.h>

#include "policy.h"
#include "stamp.h"
#include "socket.h"
#include "load.h"
#include "thread.h"
#include "probe.h"
#include "knob.h"

/* sockets/priority.c */
u8 pflow_task_rank(const struct task_struct *task);
u32 pflow_task_user(const struct task_struct *task);
u32 pflow_sock_user(const struct pflow_sock *entry, const struct sock *sk);
int pflow_rank_pin(const struct task_struct *task, u8 rank);
void pflow_rank_unpin(const struct task_struct *task);

/**
 * struct pflow_module - a module's place in the suite
 * @name: directory below /proc/packetflow
 * @knobs: its settings
 * @nr_knobs: how many
 * @capability: that writing them takes besides CAP_NET_ADMIN; 0 for none
 * @start: attach all hooks; called at registration and when enable turns 1
 * @stop: detach them; called at unregistration and when enable turns 0
 * @pressure: told every now and then whether any CPU is under pressure, or has no
 *	time to spare; may be NULL
 * @watch: likewise whether packets of any CPU are looked at (pflow_load.watch), or were a moment
 *	ago; may be NULL
 * @times_threads: it asks how receivers spend their time (thread.h); where no module does, softirqs
 *	are not measured
 * @note_close: told between @start and @stop of each socket that is about to be closed, in
 *	the context of who closes it, who holds it; under RCU, preemption off; may be NULL.
 *	A close can be missed, and other protocols' sockets are told of too
 * @buffer_most: how large the buffer of a receiver of that protocol and rank may become, bytes;
 *	under RCU; may be NULL
 * @status: lines for people; under RCU, preemption off: may not sleep
 * @metrics: OpenMetrics families; likewise
 * @dir: made by pf_common
 * @list: kept by pf_common
 * @run: kept by pf_common
 * @told: kept by pf_common
 * @runs: kept by pf_common
 *
 * @pressure and @watch are called by a thread, which may sleep, between @start and @stop. So are
 * @note_close, @buffer_most, @status and @metrics, under RCU: @stop comes a grace period after the
 * last call. @start and @stop are called in process context under one mutex.
 */
struct pflow_module {
	const char *name;
	struct pflow_knob *knobs;
	unsigned int nr_knobs;
	int capability;
	int (*start)(void);
	void (*stop)(void);
	void (*pressure)(bool on);
	void (*watch)(bool on);
	bool times_threads;
	void (*note_close)(const struct sock *sk);
	u32 (*buffer_most)(u8 protocol, u8 rank);
	void (*status)(struct seq_file *m);
	void (*metrics)(struct seq_file *m);
	struct proc_dir_entry *dir;
	struct list_head list;
	struct list_head run;
	struct list_head told;
	bool runs;
};

/* proc/proc.c */
bool pflow_reader_is_admin(const struct seq_file *m);

/* modules.c */
int pflow_module_register(struct pflow_module *module);
void pflow_module_unregister(struct pflow_module *module);

#endif
