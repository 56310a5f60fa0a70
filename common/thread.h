/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The threads that receive: how much each runs, and how much it waits.
 *
 * Each has a slot in one array for the whole host. It is entered when it is seen in a receive call.
 * pf_filter and pf_sched go through the array for receivers that have too little of a CPU.
 */
#ifndef _PFLOW_THREAD_H
#define _PFLOW_THREAD_H

#include <linux/sched.h>
#include "policy.h"
#include "socket.h"
#include "stamp.h"

/* threads/threads.c */
#define PFLOW_THREADS	128	/* a power of two */

/**
 * struct pflow_thread - a thread that receives
 * @pid: in the initial namespace; 0: this slot is free
 * @born: pflow_task_born(), as ids are used again
 * @seen: jiffies when it was last seen receiving
 * @streams_at: stamp of the same from a TCP socket
 * @datagrams_at: stamp of the same from a UDP socket
 * @answers_at: stamp of when something was last sent on such a socket of its
 * @asked_at: stamp of when such a socket was last sent something from elsewhere
 * @user: pflow_task_user() when it was first seen
 * @entered: jiffies of that
 * @late_at: jiffies when it was last found to read datagrams late; 0: never
 * @rank: its own
 * @cpu: where it runs, or waits to
 * @stolen_ns: time that softirqs took from it while it ran, accumulated
 * @run: 0..65536, share of the time lately during which it ran
 * @wait: the same during which it wanted to run, and did not
 * @known_us: for how long these two have been followed, at most as long as the mean remembers
 * @at_ns: local_clock() of the last sample, 0: none yet. This and all below is the sampler's alone
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
	u32 answers_at;
	u32 asked_at;
	u32 user;
	u32 entered;
	u32 late_at;
	u8 rank;
	u16 cpu;
	u64 stolen_ns;
	u32 run;
	u32 wait;
	u32 known_us;
	u64 at_ns;
	u32 sampled;
	u64 exec_seen_ns;
	u64 wait_seen_ns;
	u64 stolen_seen_ns;
};

extern struct pflow_thread pflow_threads[PFLOW_THREADS];
struct pflow_thread *pflow_thread_find(pid_t pid);
struct task_struct *pflow_thread_task(const struct pflow_thread *thread);
bool pflow_task_may_be_placed(struct task_struct *task);
void pflow_threads_sample(void);

/**
 * pflow_lately() - was that so lately?
 * @at: stamp of when a thread was last seen doing something
 *
 * Receive calls are looked at for a tenth of a second in each, at least.
 *
 * Context: any. Return: whether it was.
 */
static inline bool pflow_lately(u32 at)
{
	return pflow_within(at, 3 * HZ);
}

/**
 * pflow_thread_answers_others() - does it answer datagrams that come from elsewhere?
 * @thread: it
 *
 * Context: any. Return: whether it did lately, as far as packets for it were judged.
 */
static inline bool pflow_thread_answers_others(const struct pflow_thread *thread)
{
	return pflow_lately(READ_ONCE(thread->answers_at)) &&
	       pflow_lately(READ_ONCE(thread->asked_at));
}

/**
 * pflow_thread_of() - the thread that receives on a socket
 * @entry: the socket's
 *
 * Context: any. Return: its slot, or NULL if it has none. The slot may pass to another thread
 * meanwhile, and then what is noted there is noted of the wrong one, for 3 s at most.
 */
static inline struct pflow_thread *pflow_thread_of(const struct pflow_sock *entry)
{
	struct pflow_thread *thread = pflow_thread_find(READ_ONCE(entry->pid));

	return thread && READ_ONCE(thread->born) == READ_ONCE(entry->born) ? thread : NULL;
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

#endif
