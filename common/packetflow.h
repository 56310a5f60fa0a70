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

#include <linux/bitmap.h>
#include <linux/cache.h>
#include <linux/jiffies.h>
#include <linux/kprobes.h>
#include <linux/list.h>
#include <linux/moduleparam.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/types.h>
#include <net/sock.h>

#include "policy.h"

/* Why a packet was dropped early; indexes pflow_sock.early and counters. */
enum pflow_drop {
	PFLOW_DROP_OVERLOAD,	/* B1: the receive queue of this CPU overflows */
	PFLOW_DROP_HARM,	/* B1: costs a more important receiver its packets */
	PFLOW_DROP_FULL,	/* B2: the socket would drop it */
	PFLOW_DROPS,
};

/* How the owner of a socket is known. */
enum pflow_learnt {
	PFLOW_HOLDS,		/* bound, accepted or merely has it open */
	PFLOW_RECEIVES,		/* was seen receiving */
};

#define PFLOW_CPU_UNKNOWN	U16_MAX

/* Bits of pflow_sock.flags, changed by set_bit() and clear_bit(). */
enum pflow_sock_flag {
	PFLOW_SOCK_DS,		/* paper: socket-level drops are happening */
	PFLOW_SOCK_PP,		/* paper: elected by pf_sched */
	PFLOW_SOCK_GROWS,	/* pf_mm can still grow the buffer: B2 waits */
};

/**
 * struct pflow_sock - entry of the shared table, one a socket
 *
 * The first cache line is all that the packet path reads or writes, and only
 * while a CPU is watched. Its rate is approximate on purpose: plain stores, no
 * atomics, since a lost increment costs less than a bouncing line. Drops are
 * counted exactly.
 */
struct pflow_sock {
	struct hlist_node node;
	const struct sock *sk;		/* identity, with @cookie */
	u64 cookie;
	unsigned long flags;		/* enum pflow_sock_flag */
	u8 rank;			/* effective priority, pflow_rank() */
	u8 learnt;			/* enum pflow_learnt */
	u16 run_cpu;			/* where the owner received last, or PFLOW_CPU_UNKNOWN */
	u32 rate;			/* packets/s sent to this socket */
	u32 window_start;		/* jiffies; the paper's time */
	u32 arrived;			/* packets sent to this socket, while counted */
	u32 lost;			/* of these, such as found it full while it was read */
	u32 room;			/* bytes that surely fit; see pf_filter/judge.c */

	/* Written by drops and by whoever holds the socket; read by people. */
	atomic_t early[PFLOW_DROPS] ____cacheline_aligned;
	atomic_t owed;			/* drops that sk_drops does not know of yet */
	u32 rmem;			/* bytes the kernel drops on */
	u32 rcvbuf;			/* bytes */
	u32 drops;			/* sk_drops, early drops included */
	u32 window_arrived;		/* @arrived when the window began */

	/* Who receives; changed under the bucket's lock. */
	u32 last_received;		/* jiffies, by the owner */
	u32 drained;			/* jiffies when a look found that somebody had received */
	u32 late_since;			/* jiffies, see pflow_sock_late(); 0: not late */
	u16 late_looked;		/* low bits of jiffies when that was looked for */
	u16 scan;			/* last scan that met it */
	pid_t pid;			/* thread, initial pid namespace */
	u32 born;			/* pflow_task_born() of the thread, as ids are used again */
	const void *group;		/* scheduling group: compared, never followed */

	/* Where the socket stands, for people and for the reaper. */
	bool autogroup;			/* @group is an autogroup */
	u8 family;
	u8 protocol;
	u16 local_port;			/* host order */
	u16 remote_port;
	u32 netns;			/* inode number */
	u32 last_seen;			/* jiffies, by whoever held the socket */
	struct in6_addr local;		/* IPv4 as mapped address */
	struct in6_addr remote;
	struct rcu_head rcu;
};

/**
 * pflow_task_born() - what tells a thread from a later one of the same id
 * @task: the thread
 *
 * Context: any; the caller holds the task, or RCU. Return: part of its start time.
 */
static inline u32 pflow_task_born(const struct task_struct *task)
{
	return (u32)READ_ONCE(task->start_time);
}

#define PFLOW_LATE_FOR	(HZ / 50)	/* a burst is read by then */
#define PFLOW_LATE_SEEN	(HZ / 20)	/* a few times as long as looks at a socket are apart */

/**
 * pflow_sock_late() - do packets wait long in this socket's buffer?
 * @entry: of it
 *
 * Late is what all looks have found so for %PFLOW_LATE_FOR, the last one a moment ago. Whoever
 * looks keeps late_since no further back than that. Known while pf_filter looks at its packets.
 *
 * Context: any. Return: whether they do.
 */
static inline bool pflow_sock_late(const struct pflow_sock *entry)
{
	u32 since = READ_ONCE(entry->late_since);
	u32 age = (u32)jiffies - since;

	return since && age > PFLOW_LATE_FOR && age <= PFLOW_LATE_FOR + PFLOW_LATE_SEEN;
}

/**
 * pflow_sock_dead() - is this socket being closed, or is it closed already?
 * @sk: the socket
 *
 * Context: any; the caller holds it, or has it under RCU. Return: whether it is.
 */
static inline bool pflow_sock_dead(const struct sock *sk)
{
	/*
	 * Whoever owns the socket writes the flags of this word plainly. Nobody takes this one
	 * back, and one that has just been set is found at the next look.
	 */
	return data_race(sock_flag(sk, SOCK_DEAD));
}

/**
 * pflow_one_word() - make a program's name, which may hold anything, one printable word
 * @name: a copy of it
 */
static inline void pflow_one_word(char *name)
{
	for (; *name; name++)
		if (*name <= ' ' || *name > '~')
			*name = '_';
}

/* table.c */
#define PFLOW_HOLD	(5 * HZ)	/* a receiver counts so long after it received */

struct pflow_sock *pflow_sock_find(const struct sock *sk);
struct pflow_sock *pflow_sock_find_as(const struct sock *sk, u64 cookie);
void pflow_sock_settle(struct pflow_sock *entry, struct sock *sk);

/**
 * struct pflow_load - what the estimator knows of one CPU
 * @watch: not 0: this CPU's packets are looked at; read for every packet
 * @pressed: they are judged, since something overflows here
 * @since: jiffies at which looking began
 * @sampled: they are counted, so that rates are known at peace too
 * @polled: packets taken from devices, accumulated
 * @device_polls: polls of devices that brought packets, accumulated
 * @polled_dev: device that brought some last; an identity, never followed
 * @polled_at: jiffies of that
 * @turned_at: jiffies when it was last another one than before
 * @until: jiffies at which pressure ends unless it is raised again
 * @resting: under pressure, but looking does not pay; until @rest_until
 * @rest_until: jiffies
 * @tcp_rank: most important TCP receiver that lately ran or was sent to here
 * @tcp_at: jiffies when it last received
 * @prompt_at: jiffies when a receiver was last known here that wants each packet at once
 * @chain_id: NAPI instance that uses its whole weight again and again
 * @chain_dev: its device; like @chain_id an identity, never followed
 * @chain_start: local_clock() of the first of those polls
 * @chain_last: local_clock() of the newest
 * @standing_ns: time during which a receive queue stood full, accumulated
 * @softirq_ns: time that softirqs took for receiving, accumulated while that is measured
 * @packet_ns: of that time what a packet takes, dropped early or not; lately
 * @lost: packets seen lost before the protocol stack, accumulated
 *
 * Written by the CPU itself, but for @sampled, @until, @pressed and @lost,
 * which the estimator's thread writes too. All are single words, and a reader
 * that sees one late decides a tick later.
 */
struct pflow_load {
	union {
		u16 watch;
		struct {
			u8 pressed;
			u8 sampled;
		};
	};
	u32 since;
	u32 polled;
	u32 device_polls;
	const void *polled_dev;
	u32 polled_at;
	u32 turned_at;
	u32 until;
	u32 rest_until;
	bool resting;
	u32 lost;
	u8 tcp_rank;
	u32 tcp_at;
	u32 prompt_at;
	const void *chain_id;
	const void *chain_dev;
	u64 chain_start;
	u64 chain_last;
	u64 standing_ns;
	u64 softirq_ns;
	u32 packet_ns;
};

DECLARE_PER_CPU_ALIGNED(struct pflow_load, pflow_load);

/* pressure.c, estimator.c, waiting.c */
#define PFLOW_PRESSED_FOR	HZ	/* since the last sign of overload */

void pflow_load_raise(int cpu);
void pflow_load_rest(int cpu);
void pflow_load_learn(void);
u64 pflow_cpu_idle_us(int cpu);

/**
 * pflow_load_renew() - something overflows on this CPU, again
 *
 * Context: softirq, the packet path: does nothing twice in a jiffy.
 */
static inline void pflow_load_renew(void)
{
	if (this_cpu_read(pflow_load.until) != (u32)jiffies + PFLOW_PRESSED_FOR)
		pflow_load_raise(smp_processor_id());
}

/* aside.c */
#ifdef CONFIG_SMP
void pflow_step_aside(void);
#else
static inline void pflow_step_aside(void)
{
}
#endif

/* threads.c */
#define PFLOW_THREADS	128	/* a power of two */

/**
 * struct pflow_thread - a thread that receives
 * @pid: in the initial namespace; 0: this slot is free
 * @born: pflow_task_born(), as ids are used again
 * @seen: jiffies when it was last seen receiving
 * @streams_at: the same from a TCP socket
 * @datagrams_at: the same from a UDP socket
 * @late_at: jiffies when datagrams were last found to have waited long for it; 0: never
 * @rank: its own
 * @cpu: where it runs, or waits to
 * @stolen_ns: time that softirqs took from it while it ran, accumulated
 * @run: 0..65536, share of the time lately during which it ran
 * @wait: the same during which it wanted to run, and did not
 * @at_ns: local_clock() of the last sample, 0: none yet. This and what follows is the sampler's
 * @sampled: @born of the thread that was sampled then
 * @exec_seen_ns: its run time then, @stolen_ns included
 * @wait_seen_ns: how long it had waited in the run queue then
 * @stolen_seen_ns: @stolen_ns then
 *
 * It slept for the rest of the time.
 */
struct pflow_thread {
	pid_t pid;
	u32 born;
	u32 seen;
	u32 streams_at;
	u32 datagrams_at;
	u32 late_at;
	u8 rank;
	u16 cpu;
	u64 stolen_ns;
	u32 run;
	u32 wait;
	u64 at_ns;
	u32 sampled;
	u64 exec_seen_ns;
	u64 wait_seen_ns;
	u64 stolen_seen_ns;
};

extern struct pflow_thread pflow_threads[PFLOW_THREADS];
struct pflow_thread *pflow_thread_find(pid_t pid);
void pflow_threads_sample(void);

/**
 * pflow_within() - was that so no longer ago?
 * @at: jiffies when it last was; 0: never
 * @how_long: jiffies
 *
 * Context: any. Return: whether it was.
 */
static inline bool pflow_within(u32 at, u32 how_long)
{
	return at && time_before32((u32)jiffies, at + how_long);
}

/**
 * pflow_lately() - was that so lately?
 * @at: jiffies when a thread was last seen doing something; 0: never
 *
 * Receive calls are looked at for a tenth of a second in each.
 *
 * Context: any. Return: whether it was.
 */
static inline bool pflow_lately(u32 at)
{
	return pflow_within(at, 3 * HZ);
}

/**
 * pflow_thread_on() - does a thread that receives run there?
 * @thread: a slot, free or not
 * @cpu: there
 *
 * Context: any. Return: whether it ran or waited there when it was last seen.
 */
static inline bool pflow_thread_on(const struct pflow_thread *thread, int cpu)
{
	return READ_ONCE(thread->pid) && READ_ONCE(thread->cpu) == cpu;
}

/* estimate.c */
#define PFLOW_WINDOW	(HZ / 50)	/* 20 ms */

void pflow_sock_window(struct pflow_sock *entry, unsigned int packets);

/**
 * pflow_sock_arrival() - count packets sent to a socket
 * @entry: the socket's entry
 * @packets: how many the buffer carries
 *
 * Several CPUs may count at once and lose a few; see struct pflow_sock.
 *
 * Context: RCU read side, the packet path.
 */
static inline void pflow_sock_arrival(struct pflow_sock *entry, unsigned int packets)
{
	WRITE_ONCE(entry->arrived, READ_ONCE(entry->arrived) + packets);
	if (unlikely((u32)jiffies - READ_ONCE(entry->window_start) >= PFLOW_WINDOW))
		pflow_sock_window(entry, packets);
}

/* Probes: the kernel functions that a module looks into. */
enum pflow_probe_when {
	PFLOW_PROBE_ALWAYS,
	PFLOW_PROBE_WATCHED,
};

struct ftrace_ops;
struct ftrace_regs;

/* As ftrace_func_t, which not all kernels have; see pflow_ftrace_argument(). */
typedef void (*pflow_ftrace_t)(unsigned long ip, unsigned long parent_ip,
			       struct ftrace_ops *ops, struct ftrace_regs *fregs);

/**
 * struct pflow_probe - one row of a module's table of probes
 * @symbol: function, probed at its entry
 * @handler: what to do there; the comment in front of it says by which prototype it reads
 *	arguments, and the tests hold that against each kernel (tests/rig/hooks.py)
 * @when: armed always, or, of pf_common's own, while somebody looks
 * @required: without it the module refuses to load
 * @without: what is lost when the kernel does not have it
 * @hot: of what runs for every packet: like @handler, for ftrace to call it at less cost
 *	where it can, with preemption as it is there; NULL for others
 * @kp: the probe; not enabled while @ops does its work, which misses no hit
 * @ops: attached in place of @kp
 * @present: registered
 * @armed: enabled, or attached
 */
struct pflow_probe {
	const char *symbol;
	kprobe_pre_handler_t handler;
	enum pflow_probe_when when;
	bool required;
	const char *without;
	pflow_ftrace_t hot;
	struct kprobe kp;
	struct ftrace_ops *ops;
	bool present;
	bool armed;
};

/**
 * struct pflow_probes - a module's table of probes
 * @owner: the module; two may probe the same function
 * @rows: the probes
 * @nr_rows: how many
 * @list: kept by pf_common
 */
struct pflow_probes {
	const struct module *owner;
	struct pflow_probe *rows;
	unsigned int nr_rows;
	struct list_head list;
};

/* probes.c */
int pflow_probes_add(struct pflow_probes *probes);
void pflow_probes_remove(struct pflow_probes *probes);

struct tracepoint;

/**
 * struct pflow_trace - a tracepoint that a module looks into
 * @name: its name
 * @probe: what to do there
 * @without: what is lost where the kernel does not have it; NULL if nothing is
 * @point: it, while attached
 */
struct pflow_trace {
	const char *name;
	void *probe;
	const char *without;
	struct tracepoint *point;
};

/* tracepoint.c */
int pflow_trace_attach(struct pflow_trace *trace);
void pflow_trace_detach(struct pflow_trace *trace);

/* priority.c */
u8 pflow_task_rank(const struct task_struct *task);
int pflow_rank_pin(const struct task_struct *task, u8 rank);
void pflow_rank_unpin(const struct task_struct *task);

/* Knobs: one value, a module parameter and a file of the same name. */

#define PFLOW_PORTS	65536

/**
 * struct pflow_ports - a set of ports, which is replaced and never changed
 * @rcu: readers may hold it for a grace period
 * @local: bitmap by port, host order
 * @remote: the same of remote ports, if the knob has them
 */
struct pflow_ports {
	struct rcu_head rcu;
	DECLARE_BITMAP(local, PFLOW_PORTS);
	unsigned long remote[];
};

/**
 * struct pflow_knob - one setting
 * @name: file below the module's directory, and module parameter
 * @unit: of the value, for people
 * @help: what it does and when to change it
 * @min: least number
 * @max: greatest number
 * @value: in force; read with READ_ONCE()
 * @fallback: the default
 * @choices: names of the values 0.., NULL-terminated; NULL for numbers
 * @parse: for values that are neither: takes the text, changes nothing on error
 * @show: the opposite of @parse
 * @release: frees what @parse made, when the module goes
 * @ports: the value of a set of ports, whose @parse, @show and @release are those of
 *	ports.c; NULL until it is first set
 * @from: that set may have remote ports
 * @capability: of the module, see there; kept by pf_common
 * @apply: called with the new value before it is stored; may refuse and sleep
 */
struct pflow_knob {
	const char *name;
	const char *unit;
	const char *help;
	unsigned int min;
	unsigned int max;
	unsigned int value;
	unsigned int fallback;
	const char * const *choices;
	int (*parse)(struct pflow_knob *knob, char *text);
	void (*show)(const struct pflow_knob *knob, struct seq_file *m);
	void (*release)(struct pflow_knob *knob);
	struct pflow_ports __rcu *ports;
	bool from;
	int capability;
	int (*apply)(unsigned int value);
};

extern const struct kernel_param_ops pflow_knob_param_ops;

/* ports.c */
int pflow_ports_parse(struct pflow_knob *knob, char *text);
void pflow_ports_show(const struct pflow_knob *knob, struct seq_file *m);
void pflow_ports_release(struct pflow_knob *knob);

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
 * @closes: told between @start and @stop of each socket that is about to be closed, in
 *	the context of who closes it, who holds it; under RCU, preemption off; may be NULL.
 *	A close can be missed, and other protocols' sockets are told of too
 * @buffer_most: how large the buffer of a receiver of that protocol and rank may become, bytes;
 *	under RCU; may be NULL
 * @status: lines for people
 * @metrics: OpenMetrics families
 * @dir: made by pf_common
 * @list: kept by pf_common
 * @run: kept by pf_common
 * @told: kept by pf_common
 *
 * @pressure and @watch are called by a thread, which may sleep, between @start and @stop. All
 * others but @closes and @buffer_most are called in process context under one mutex, so a module
 * cannot be unregistered while it is being read.
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
	void (*closes)(const struct sock *sk);
	u32 (*buffer_most)(u8 protocol, u8 rank);
	void (*status)(struct seq_file *m);
	void (*metrics)(struct seq_file *m);
	struct proc_dir_entry *dir;
	struct list_head list;
	struct list_head run;
	struct list_head told;
};

/* modules.c */
int pflow_module_register(struct pflow_module *module);
void pflow_module_unregister(struct pflow_module *module);

#endif
