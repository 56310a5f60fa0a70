/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The table of receiving sockets: an entry, and how it is found.
 *
 * pf_common enters a socket when it is bound, accepted or received on, and learns who receives on
 * it. The other modules look an entry up under RCU, and read whose packets they have at hand and
 * how much they matter. pf_filter counts in the entry what was sent and dropped.
 */
#ifndef _PFLOW_SOCKET_H
#define _PFLOW_SOCKET_H

#include <linux/jiffies.h>
#include <linux/netfilter_bridge.h>
#include <net/sock.h>

#include "policy.h"

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
	PFLOW_SOCK_ANSWERS,	/* UDP: something was sent on it; pf_filter takes note */
	PFLOW_SOCK_LEFT,	/* the entry has left the table */
};

/**
 * struct pflow_sock - entry of the shared table, one a socket
 *
 * The packet path keeps to the first cache line where it can, and touches entries only while a CPU
 * is watched. The rate in it is approximate on purpose: it is counted by plain stores. A lost
 * increment costs less than a cache line that atomics move between CPUs. Drops are counted exactly.
 */
struct pflow_sock {
	struct hlist_node node;
	const struct sock *sk;		/* identity, with @cookie */
	u64 cookie;
	unsigned long flags;		/* enum pflow_sock_flag */
	u8 rank;			/* effective priority, pflow_rank() */
	u8 learnt;			/* enum pflow_learnt */
	u16 run_cpu;			/* where the owner runs, or PFLOW_CPU_UNKNOWN */
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
	u8 scan;			/* last scan that met it */
	u8 user;			/* where its user's entries are counted */
	pid_t pid;			/* thread, initial pid namespace */
	u32 born;			/* pflow_task_born() of the thread, as ids are used again */
	const void *group;		/* scheduling group: compared, never followed */

	/* Where the socket stands, for people and for the reaper. */
	bool autogroup;			/* @group is an autogroup */
	u8 family;
	u8 protocol;
	u8 lost_noted;			/* low bits of jiffies when it was noted that it loses */
	u16 local_port;			/* host order */
	u16 remote_port;		/* 0: it has no peer; the packet path may read it */
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

#define PFLOW_LATE_FOR	(HZ / 50)	/* 20 ms: a burst is read by then; 5 ms shed too much */
#define PFLOW_LATE_SEEN	(HZ / 20)	/* a few times as long as looks at a socket are apart */

/**
 * pflow_sock_late() - do packets wait long in this socket's buffer?
 * @entry: of it
 *
 * They do if all looks have found so for %PFLOW_LATE_FOR, and the last look was a moment ago. Each
 * look keeps @late_since no further back than that. This is known only while pf_filter looks at the
 * socket's packets.
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
	 * The socket's owner writes the flags of this word plainly. Nobody takes this flag back. If
	 * it has just been set, it is found at the next look.
	 */
	return data_race(sock_flag(sk, SOCK_DEAD));
}

/**
 * pflow_skb_iif() - the device by which a packet comes to IP, to find its socket by
 * @skb: the packet, at PRE_ROUTING
 *
 * A bridge that shows it to IP's hooks (br_netfilter) has not taken the place of its port yet.
 *
 * Context: RCU read side. Return: the device's index.
 */
static inline int pflow_skb_iif(const struct sk_buff *skb)
{
	return unlikely(nf_bridge_info_exists(skb)) ? skb->dev->ifindex : skb->skb_iif;
}

/**
 * pflow_one_word() - make a program's name, which may hold anything, one printable word
 * @name: a copy of it
 *
 * Context: any.
 */
static inline void pflow_one_word(char *name)
{
	for (; *name; name++)
		if (*name <= ' ' || *name > '~')
			*name = '_';
}

/* sockets/table.c */
#define PFLOW_HOLD	(5 * HZ)	/* a receiver counts so long after it received */

/**
 * struct pflow_lease - tells whether an entry that was found once is in the table still
 * @departures: how many entries left their chains, counted for a few chains together
 * @known: the count when the lease was taken
 */
struct pflow_lease {
	const u32 *departures;
	u32 known;
};

/**
 * pflow_lease_holds() - is that entry in the table still?
 * @lease: taken when it was found, not so long ago that the count has come round
 *
 * Context: RCU read side; any. Return: true if so: the entry is good until the caller's read-side
 * section ends. False if it may have left.
 */
static inline bool pflow_lease_holds(const struct pflow_lease *lease)
{
	return READ_ONCE(*lease->departures) == lease->known;
}

struct pflow_sock *pflow_sock_find(const struct sock *sk);
struct pflow_sock *pflow_sock_find_as(const struct sock *sk, u64 cookie);
void pflow_lease_take(struct pflow_lease *lease, const struct pflow_sock *entry);
void pflow_sock_settle(struct pflow_sock *entry, struct sock *sk);

/* sockets/estimate.c */
#define PFLOW_WINDOW	(HZ / 50)	/* 20 ms */

void pflow_sock_window(struct pflow_sock *entry, unsigned int packets);

/**
 * pflow_sock_arrival() - count packets sent to a socket
 * @entry: the socket's entry
 * @packets: how many the buffer carries
 *
 * Several CPUs may count at once and lose a few; see struct pflow_sock.
 *
 * Context: RCU read side, the packet path. Return: if they are the first of a window, how long the
 * window before was, in jiffies; else 0. Two CPUs may find that at once.
 */
static inline u32 pflow_sock_arrival(struct pflow_sock *entry, unsigned int packets)
{
	u32 lasted;

	WRITE_ONCE(entry->arrived, READ_ONCE(entry->arrived) + packets);
	lasted = (u32)jiffies - READ_ONCE(entry->window_start);
	if (likely(lasted < PFLOW_WINDOW))
		return 0;
	pflow_sock_window(entry, packets);
	return lasted;
}

#endif
