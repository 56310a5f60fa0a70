/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the estimator knows of a CPU: pressure, and what its packets cost.
 *
 * Probes write down signs of overload on the CPU on which they are seen. The estimator's thread
 * reads the kernel's counters ten times a second, and ends pressure. pf_filter reads for each
 * packet whether this CPU's packets are looked at.
 */
#ifndef _PFLOW_LOAD_H
#define _PFLOW_LOAD_H

#include <linux/jiffies.h>
#include <linux/percpu.h>

/**
 * struct pflow_device - a device that may be gone
 * @dev: an identity, never followed
 * @net: its namespace when it was noted, likewise
 * @ifindex: its number there
 *
 * If it is read while another device is noted, the mixture is found nowhere.
 */
struct pflow_device {
	const void *dev;
	const void *net;
	int ifindex;
};

/**
 * struct pflow_load - what the estimator knows of one CPU
 * @watch: not 0: this CPU's packets are looked at; read for every packet
 * @pressed: they are judged, since something overflows here
 * @since: jiffies at which looking began
 * @sampled: they are counted, so that rates are known at peace too
 * @polled: packets taken from devices and from the backlog, accumulated
 * @backlogged: those of them from the backlog, accumulated
 * @frames: frames that pf_filter dropped in the driver, accumulated
 * @device_polls: polls of devices that brought packets, accumulated; not of those
 *	that a user can make himself
 * @polled_dev: device that brought packets last
 * @polled_at: jiffies of that
 * @turned_at: jiffies when that device last changed
 * @until: jiffies at which pressure ends unless it is raised again
 * @resting: under pressure, but looking does not pay; until @rest_until
 * @rest_until: jiffies
 * @tcp_rank: most important TCP receiver that lately ran or was sent to here
 * @tcp_at: jiffies when it last received
 * @prompt_at: jiffies when a receiver was last known here that wants each packet at once
 * @chain_id: NAPI instance that uses its whole weight again and again
 * @chain_dev: its device; like @chain_id never followed
 * @chain_start: local_clock() of the first of those polls
 * @chain_last: local_clock() of the newest
 * @chain_received: what devices had brought by then, see chain_has_received()
 * @standing_ns: time during which a receive queue stood full, accumulated
 * @softirq_ns: time that softirqs took for receiving, accumulated while that is measured
 * @packet_ns: what a packet took of that time lately, whether dropped early or not
 * @lost: packets seen lost before the protocol stack, accumulated
 *
 * The CPU itself writes most of them. The estimator's thread, the controllers' tick and receivers
 * on other CPUs write some, too. All are single words. A reader that sees one late decides a tick
 * later.
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
	u32 backlogged;
	u32 frames;
	u32 device_polls;
	struct pflow_device polled_dev;
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
	struct pflow_device chain_dev;
	u64 chain_start;
	u64 chain_last;
	u32 chain_received;
	u64 standing_ns;
	u64 softirq_ns;
	u32 packet_ns;
};

DECLARE_PER_CPU_ALIGNED(struct pflow_load, pflow_load);

/* load/signals.c */
struct napi_struct;
void pflow_load_ignore(struct napi_struct *napi);

/* load/pressure.c, load/estimator.c, load/waiting.c */
#define PFLOW_PRESSED_FOR	HZ	/* since the last sign of overload */

void pflow_load_raise(int cpu);
void pflow_load_rest(int cpu);
void pflow_load_learn(void);
void pflow_load_learn_news(void);
u64 pflow_cpu_idle_us(int cpu);

/**
 * pflow_load_renew() - keep this CPU under pressure, since something overflows again
 *
 * It does nothing the second time in a jiffy.
 *
 * Context: softirq, the packet path.
 */
static inline void pflow_load_renew(void)
{
	if (this_cpu_read(pflow_load.until) != (u32)jiffies + PFLOW_PRESSED_FOR)
		pflow_load_raise(smp_processor_id());
}

/* threads/aside.c */
#ifdef CONFIG_SMP
void pflow_step_aside(void);
#else
static inline void pflow_step_aside(void)
{
}
#endif

#endif
