/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * pf_flow: flows under control before they cost anything.
 *
 * Each network namespace has a table of flows (table.c, written through parse.c and write.c). A
 * packet is looked up in it last at PRE_ROUTING (packet.c). If its flow has tokens, it passes. If
 * not (admit.c), it waits in the flow's queue, and the server (serve.c) continues it where it
 * stopped. If the queue is full, it is dropped.
 *
 * Locks, outermost first: flow_mutex, a flow's lock, the server's lock. The mutex orders all that
 * changes tables, in process context; it is never waited for under the RTNL lock. A flow's lock
 * holds what a packet changes; the server's, who is next. Both are taken with softirqs off.
 *
 * Lifetimes: a flow is found through a table, or in its namespace's list, under RCU. It is freed a
 * grace period after it has left both, when nothing waits in it and the server is not serving it.
 * A packet that waits holds nothing but its own buffer and route. What else it needs is its
 * device, and with the device all that waits for it goes (nets.c).
 */
#ifndef _PFLOW_FLOW_H
#define _PFLOW_FLOW_H

#include <linux/bits.h>
#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/rcupdate.h>
#include <linux/skbuff.h>
#include <linux/spinlock.h>

#include "../common/packetflow.h"
#include "policy.h"

#define FLOW_NAME	32
#define FLOW_KINDS	32
#define FLOW_ERROR	128
#define FLOW_WORDS	7
#define FLOW_HOOKS	4	/* of a namespace */
#define FLOW_SLOT_BITS	6
#define FLOW_SLOTS	BIT(FLOW_SLOT_BITS)

enum {
	FLOW_KNOB_MEMORY,
	FLOW_KNOB_EXEMPT,
	FLOW_KNOB_SCHEDULER,
	FLOW_KNOB_SERVER,
	FLOW_KNOBS,
};

/**
 * struct flow_key - what a packet says, or which of it counts
 * @source: address; IPv4's in the first word
 * @destination: likewise
 * @sport: source port
 * @dport: destination port
 * @iif: device
 * @mark: of the packet
 * @protocol: above IP
 * @family: NFPROTO_IPV4 or NFPROTO_IPV6
 * @rank: see struct flow_receiver; 0 where no flow asks for it
 * @spare: 0
 * @cgroup: likewise
 * @words: all of it
 */
struct flow_key {
	union {
		struct {
			__be32 source[4];
			__be32 destination[4];
			__be16 sport;
			__be16 dport;
			u32 iif;
			u32 mark;
			u8 protocol;
			u8 family;
			u8 rank;
			u8 spare;
			u64 cgroup;
		};
		u64 words[FLOW_WORDS];
	};
};

/**
 * struct flow_pattern - which packets are a flow's
 * @key: what they say, where it counts
 * @mask: what of it counts
 * @device: its name, or empty
 * @fallback: all that are no other flow's
 */
struct flow_pattern {
	struct flow_key key;
	struct flow_key mask;
	char device[IFNAMSIZ];
	bool fallback;
};

/**
 * struct flow_receiver - who receives a packet
 * @rank: FLOW_RANK_OF() its rank; 0: not known
 * @cgroup: number of the deepest control group of its socket that some flow names; 0: none
 */
struct flow_receiver {
	u8 rank;
	u64 cgroup;
};

/**
 * struct flow_shape - what a flow may do, as it was written
 * @rate: average, bits a second; 0: no bound
 * @peak: bits a second; 0: no bound
 * @burst: bytes; 0: by @rate
 * @queue: bytes that may wait; 0: by @rate
 * @weight: share of the service
 */
struct flow_shape {
	u64 rate;
	u64 peak;
	u32 burst;
	u32 queue;
	u32 weight;
};

/* Who may wait. */
enum flow_door {
	FLOW_CONTROLLED,	/* who has no tokens */
	FLOW_OPEN,		/* only who comes while others wait; nobody needs tokens */
	FLOW_SHUT,		/* nobody more: who comes while others wait is dropped */
};

enum flow_state {
	FLOW_IDLE,	/* nothing waits, and nothing is being continued */
	FLOW_QUEUED,	/* something waits */
	FLOW_SERVED,	/* the server continues a packet; more may wait */
};

/**
 * struct flow_counts - what became of a flow's packets; as they were on the wire
 * @direct: passed at once
 * @direct_bytes: theirs
 * @deferred: had to wait, and were continued
 * @deferred_bytes: theirs
 * @urgent: passed without tokens, as their receiver is a real-time one
 * @full: dropped as the queue was full
 * @unfit: dropped as they could not wait, or might not any more
 * @memory: dropped as all queues together were full
 * @gone: dropped with their device
 * @delay_ns: how long those that were continued waited, in sum
 * @delay_most_ns: the longest
 */
struct flow_counts {
	u64 direct;
	u64 direct_bytes;
	u64 deferred;
	u64 deferred_bytes;
	u64 urgent;
	u64 full;
	u64 unfit;
	u64 memory;
	u64 gone;
	u64 delay_ns;
	u64 delay_most_ns;
};

/**
 * struct flow - packets that share a rate and a queue
 * @lock: for all up to @counts
 * @state: see enum flow_state
 * @door: see enum flow_door
 * @full: nothing was let into the queue since the last packet left it; read without the lock
 * @average: tokens of the average rate
 * @peak: tokens of the peak rate
 * @queue: packets that wait
 * @bytes: of them, on the wire
 * @memory: that they take, bytes
 * @queue_bytes: how many may wait
 * @queue_packets: how many packets may
 * @longest: packet that it had, bytes
 * @shape: written under flow_mutex, too
 * @counts: what became of its packets
 * @early: packets dropped ahead of all else, or in the driver; without the lock
 * @entity: its place among those that wait; under the server's lock
 * @match: does not change
 * @staged: what @shape is to become; under flow_mutex, as the rest
 * @is_staged: that is to happen
 * @kept: it is in the table that is being made
 * @list: all of a namespace's; read under RCU
 * @rcu: packets may have found it
 * @name: does not change
 */
struct flow {
	spinlock_t lock;	/* for what a packet changes */
	u8 state;
	u8 door;
	bool full;
	struct pflow_bucket average;
	struct pflow_bucket peak;
	struct sk_buff_head queue;
	u32 bytes;
	unsigned long memory;
	u32 queue_bytes;
	u32 queue_packets;
	u32 longest;
	struct flow_shape shape;
	struct flow_counts counts;
	atomic64_t early;
	struct pflow_entity entity;
	struct flow_pattern match;
	struct flow_shape staged;
	bool is_staged;
	bool kept;
	struct list_head list;
	struct rcu_head rcu;
	char name[FLOW_NAME];
};

/**
 * struct flow_link - a flow's place in a table
 * @by_key: in a bucket
 * @by_name: in another; only under flow_mutex
 * @by_cgroup: in a third, if it names one that no other link there does
 * @key: the flow's
 * @flow: it
 * @kind: which of the table's kinds
 */
struct flow_link {
	struct hlist_node by_key;
	struct hlist_node by_name;
	struct hlist_node by_cgroup;
	struct flow_key key;
	struct flow *flow;
	u32 kind;
};

/**
 * struct flow_kind - flows of which the same counts
 * @mask: what that is
 * @bits: how much of it there is; who says more comes first
 * @first: word of @mask that is not 0
 * @end: behind the last one
 */
struct flow_kind {
	struct flow_key mask;
	u32 bits;
	u8 first;
	u8 end;
};

/**
 * struct flow_table - the flows of a namespace; never changed once it is found
 * @number: no two tables ever have the same
 * @kinds: of its flows; those of which more counts first
 * @nr_kinds: how many
 * @order: their numbers, in that order
 * @receivers: some kind asks for the receiver
 * @marks: some kind asks for the mark
 * @fallback: the flow of all other packets, or NULL
 * @links: room for all flows
 * @used: how many of them are
 * @room: how many there are
 * @mask: number of buckets less 1
 * @shift: so much of a hash of 64 bits is not needed for a bucket
 * @names: buckets by name
 * @buckets: by key
 * @cgroups: by control group; NULL: no flow names one
 */
struct flow_table {
	u64 number;
	struct flow_kind kinds[FLOW_KINDS];
	u32 nr_kinds;
	u8 order[FLOW_KINDS];
	bool receivers;
	bool marks;
	struct flow *fallback;
	struct flow_link *links;
	u32 used;
	u32 room;
	u32 mask;
	u32 shift;
	struct hlist_head *names;
	struct hlist_head *buckets;
	struct hlist_head *cgroups;
};

/**
 * struct flow_net - a network namespace
 * @net: it
 * @table: its flows; NULL: none
 * @flows: all of them; read under RCU
 * @number: how many
 * @hooked: our hooks are there
 * @hooks: they, which know whose they are
 * @list: all namespaces
 */
struct flow_net {
	struct net *net;
	struct flow_table __rcu *table;
	struct list_head flows;
	u32 number;
	bool hooked;
	struct nf_hook_ops hooks[FLOW_HOOKS];
	struct list_head list;
};

/**
 * struct flow_wait - what is kept with a packet that waits, at the end of its cb
 * @okfn: how it goes on
 * @since: ns
 * @bytes: on the wire
 * @packets: on the wire; what does not fit is not counted
 * @rank: of its receiver
 */
struct flow_wait {
	int (*okfn)(struct net *net, struct sock *sk, struct sk_buff *skb);
	u64 since;
	u32 bytes;
	u16 packets;
	u8 rank;
};

#define FLOW_WAIT_AT	(sizeof_field(struct sk_buff, cb) - sizeof(struct flow_wait))

static inline struct flow_wait *flow_wait_of(struct sk_buff *skb)
{
	return (struct flow_wait *)(skb->cb + FLOW_WAIT_AT);
}

static inline bool flow_key_same(const struct flow_key *one, const struct flow_key *other)
{
	u64 differ = 0;
	unsigned int i;

	for (i = 0; i < FLOW_WORDS; i++)
		differ |= one->words[i] ^ other->words[i];
	return !differ;
}

/* knobs.c */
extern struct pflow_knob flow_knobs[FLOW_KNOBS];
int flow_exempt_setup(void);

/* nets.c */
extern struct mutex flow_mutex;
int flow_nets_setup(void);
void flow_nets_teardown(void);
int flow_nets_start(void);
void flow_nets_stop(void);
int flow_net_hook(struct flow_net *ours, u32 more);
void flow_net_unhook_unused(struct flow_net *ours);
struct flow_net *flow_net_of(const struct net *net);
void flow_net_set_number(struct flow_net *ours, u32 number);
u32 flow_nets_flows(void);

/* packet.c */
void flow_key_set(struct flow_key *key, const struct sk_buff *skb,
		  const struct nf_hook_state *state);
unsigned int flow_hook_early(void *ours, struct sk_buff *skb, const struct nf_hook_state *state);
unsigned int flow_hook(void *ours, struct sk_buff *skb, const struct nf_hook_state *state);

/* flow.c */
struct flow *flow_alloc(const char *name, const struct flow_pattern *match,
			const struct flow_shape *shape);
void flow_set_shape(struct flow *flow, const struct flow_shape *shape);
void flow_set_door(struct flow *flow, enum flow_door door);
void flow_continue_all(struct flow *flow);
void flow_forget_device(struct flow *flow, const struct net_device *dev);
void flow_set_limits(struct flow *flow);
void flow_serve(struct flow *flow, u64 now);

/**
 * flow_tokens_in() - how long must a packet wait for tokens?
 * @flow: its own
 * @bytes: of it on the wire, IP headers included
 * @now: ns
 *
 * Context: under the flow's lock. Return: ns; 0: it has them.
 */
static inline u64 flow_tokens_in(struct flow *flow, u32 bytes, u64 now)
{
	u64 wait;

	if (unlikely(flow->door != FLOW_CONTROLLED))
		return 0;
	pflow_bucket_fill(&flow->average, now);
	wait = pflow_bucket_wait(&flow->average, bytes);
	if (!flow->peak.rate)
		return wait;
	pflow_bucket_fill(&flow->peak, now);
	return max(wait, pflow_bucket_wait(&flow->peak, bytes));
}

/**
 * flow_spend() - a packet takes its tokens
 * @flow: its own
 * @bytes: of it on the wire, IP headers included
 *
 * Context: under the flow's lock.
 */
static inline void flow_spend(struct flow *flow, u32 bytes)
{
	/* Who needed no tokens leaves no debt to those who will. */
	if (unlikely(flow->door != FLOW_CONTROLLED))
		return;
	pflow_bucket_spend(&flow->average, bytes);
	pflow_bucket_spend(&flow->peak, bytes);
}

/* admit.c */
bool flow_skb_opens(const struct sk_buff *skb, int packets);
bool flow_passes(struct flow *flow, u32 bytes, u32 packets);
unsigned int flow_admit(struct flow *flow, struct sk_buff *skb, const struct nf_hook_state *state,
			u32 bytes, u32 packets, u8 rank, bool *full);

/* parts.c */
bool flow_may_split(const struct flow *flow, u32 bytes, u32 packets);
bool flow_must_split(const struct flow *flow, u32 bytes, u32 packets);
struct sk_buff *flow_split(struct sk_buff *skb);

/* driver.c */
struct xdp_md;
int pflow_xdp_judge_flow(struct xdp_md *ctx);
int flow_driver_register(void);

/* recall.c */
struct flow *flow_recall(const struct flow_table *table, const struct flow_key *key);
bool flow_recall_shown(const struct sk_buff *skb);
bool flow_recall_may_tell(const struct flow_table *table, const struct sk_buff *skb);
void flow_recall_full(const struct flow_table *table, struct flow *flow);
struct flow *flow_recall_full_of(const struct flow_table *table, const struct flow_key *key);
struct flow *flow_recall_early(const struct flow_table *table, const struct sk_buff *skb,
			       const struct nf_hook_state *state);
void flow_set_full(struct flow *flow, bool full);
bool flow_any_full(void);
int flow_recall_setup(void);
void flow_recall_teardown(void);

/* receiver.c */
#define FLOW_RANK_OF(rank)	((rank) + 1)	/* 0: of nobody who is known */
struct flow_receiver flow_receiver_of(const struct flow_table *table, const struct flow_key *key,
				      const struct sk_buff *skb, struct net *net);
int flow_receiver_setup(void);
void flow_receiver_teardown(void);

/* serve.c */
int flow_server_setup(void);
void flow_server_teardown(void);
int flow_server_room(u32 flows);
int flow_server_set_threaded(unsigned int threaded);
int flow_server_start(void);
void flow_server_stop(void);
void flow_server_sleep(struct pflow_entity *entity, const struct flow_wait *next, u64 now,
		       u64 wait);
void flow_server_leave(struct pflow_entity *entity);
void flow_server_settle(struct pflow_entity *entity, u32 served, const struct flow_wait *next,
			u64 now, u64 wait);
void flow_server_reweigh(struct pflow_entity *entity, u32 weight);
bool flow_server_hold(const struct sk_buff *skb, unsigned long held);
void flow_server_release(u32 truesize);
u32 flow_server_waiting(void);
void flow_server_status(struct seq_file *m);
void flow_server_metrics(struct seq_file *m);

/* table.c */
extern u64 flow_key_seed[FLOW_WORDS];
void flow_table_setup(void);
struct flow_table *flow_table_alloc(u32 room);
void flow_table_free(struct flow_table *table);
const char *flow_table_add(struct flow_table *table, struct flow *flow);
void flow_table_remove(struct flow_table *table, struct flow *flow);
const char *flow_table_finish(struct flow_table *table);
bool flow_table_has_cgroup(const struct flow_table *table, u64 cgroup);
struct flow *flow_table_named(const struct flow_table *table, const char *name);
struct flow *flow_table_find(const struct flow_table *table, const struct flow_key *key);

/* Which of FLOW_SLOTS of a CPU is the key's, where something is remembered of it? */
static inline u32 flow_key_slot(const struct flow_key *key)
{
	return pflow_slot_hash(flow_key_seed, key->words, FLOW_WORDS) >> (64 - FLOW_SLOT_BITS);
}

/* parse.c */
const char *flow_parse_name(char **rest, char *name);
const char *flow_parse_match(const struct net *net, char *word, struct flow_pattern *match,
			     bool *taken);
const char *flow_parse_shape(char *word, struct flow_shape *shape);

/* write.c */
int flow_write(struct flow_net *ours, char *text);
extern char flow_error[FLOW_ERROR];

/* show.c */
int flow_files_setup(struct proc_dir_entry *dir);
void flow_status(struct seq_file *m);
void flow_metrics(struct seq_file *m);

#endif
