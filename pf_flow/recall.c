// SPDX-License-Identifier: GPL-2.0-only
/*
 * Recall: whose the last packets were, on each CPU; and a drop ahead of all that costs much.
 *
 * A small cache is in front of the table. It is worth its own look where the table has more than
 * one kind of flows. What it says holds as long as the table is the same one, which is told by a
 * number that no two tables share. A table in force holds its flows, so the flow is there, too.
 *
 * The early hook is ahead of connection tracking, behind the administrator's raw rules. It drops
 * what the last hook would drop, before it has cost a look-up of its connection, translation and
 * rules. Whose a packet is cannot be known there: its mark may still change, and its addresses.
 * So the early hook shows the packet to the last one, which tells it whose it was, if it was
 * dropped as its flow's queue was full. That holds for the same packet of the wire, for the rest
 * of the jiffy. It is not told where such packets may belong to several flows all the same: where
 * rules that come in between may mark them, and flows ask for marks; or may translate each in
 * another way, as none has opened the connection yet. So one packet of each goes the whole way in
 * each jiffy, and whatever changes is followed as soon as that. While no queue is full the hook is
 * a load and a branch. What the early hook is told the driver may use as well (driver.c).
 *
 * Context: softirqs off, RCU read side, unless said otherwise. With PREEMPT_RT softirqs
 * interrupt each other on newer kernels, and there is neither.
 */
#include <linux/jiffies.h>
#include <linux/percpu.h>

#include "flow.h"

/* Whose a packet was. */
struct recalled {
	struct flow_key key;
	u64 number;
	struct flow *flow;
	u32 at;
};

/* What a CPU remembers. */
struct recall {
	struct recalled late[FLOW_SLOTS];
	struct recalled early[FLOW_SLOTS];
	struct flow_key shown_key;
	const struct sk_buff *shown;
	u32 shown_at;
};

static struct recall __percpu *recall;
static atomic_t full_flows;

static bool recalled_is(const struct recalled *one, const struct flow_table *table,
			const struct flow_key *key)
{
	return one->number == table->number && flow_key_same(&one->key, key);
}

static void recalled_set(struct recalled *one, const struct flow_table *table,
			 const struct flow_key *key, struct flow *flow)
{
	one->key = *key;
	one->number = table->number;
	one->flow = flow;
	one->at = (u32)jiffies;
}

/**
 * flow_recall() - whose is a packet?
 * @table: in force
 * @key: what the packet says
 *
 * Return: its flow; NULL: it is none's.
 */
struct flow *flow_recall(const struct flow_table *table, const struct flow_key *key)
{
	struct recalled *one;

	if (IS_ENABLED(CONFIG_PREEMPT_RT) || table->nr_kinds < 2)
		return flow_table_find(table, key);
	one = &this_cpu_ptr(recall)->late[flow_key_slot(key)];
	if (!recalled_is(one, table, key))
		recalled_set(one, table, key, flow_table_find(table, key));
	return one->flow;
}

/**
 * flow_recall_shown() - was this packet shown just now?
 * @skb: it, at its last hook; the address is only compared
 *
 * A packet that somebody in between has taken or dropped stays shown. Another one with the same
 * buffer may be mistaken for it, if no queue was full when that one was at the early hook: each
 * is shown while one is. Then for the rest of a jiffy the early hook drops such packets as are
 * dropped or taken behind it, and nobody else's.
 *
 * Return: whether it was, and by the same mark.
 */
bool flow_recall_shown(const struct sk_buff *skb)
{
	struct recall *ours = this_cpu_ptr(recall);

	if (likely(ours->shown != skb))
		return false;
	ours->shown = NULL;
	return ours->shown_key.mark == skb->mark && ours->shown_at == (u32)jiffies;
}

/**
 * flow_recall_may_tell() - do all packets like this one belong to its flow?
 * @table: in force
 * @skb: that was shown
 *
 * Return: whether they do, as far as that can be told.
 */
bool flow_recall_may_tell(const struct flow_table *table, const struct sk_buff *skb)
{
	return !table->marks && !flow_skb_opens(skb, 1);
}

/**
 * flow_recall_full() - tell the early hook whose the packet was that was shown
 * @table: in force
 * @flow: its own, whose queue was full
 */
void flow_recall_full(const struct flow_table *table, struct flow *flow)
{
	struct recall *ours = this_cpu_ptr(recall);

	recalled_set(&ours->early[flow_key_slot(&ours->shown_key)], table, &ours->shown_key, flow);
}

/**
 * flow_recall_full_of() - is a packet to be dropped ahead of its last hook?
 * @table: in force
 * @key: what the packet says as it comes from the wire
 *
 * Return: the flow whose queue is full; NULL: no, or that was not told on this CPU.
 */
struct flow *flow_recall_full_of(const struct flow_table *table, const struct flow_key *key)
{
	const struct recalled *one = &this_cpu_ptr(recall)->early[flow_key_slot(key)];

	if (one->at != (u32)jiffies || !recalled_is(one, table, key) ||
	    !READ_ONCE(one->flow->full))
		return NULL;
	return one->flow;
}

/**
 * flow_recall_early() - is a packet to be dropped by the early hook?
 * @table: in force
 * @skb: the packet
 * @state: of the hook
 *
 * It is shown to the last hook.
 *
 * Return: the flow whose queue is full; NULL: no.
 */
struct flow *flow_recall_early(const struct flow_table *table, const struct sk_buff *skb,
			       const struct nf_hook_state *state)
{
	struct recall *ours = this_cpu_ptr(recall);
	struct flow *flow;

	flow_key_set(&ours->shown_key, skb, state);
	flow = flow_recall_full_of(table, &ours->shown_key);
	ours->shown = flow ? NULL : skb;
	ours->shown_at = (u32)jiffies;
	return flow;
}

/**
 * flow_set_full() - a queue is full from now on, or no longer
 * @flow: whose; its lock is held
 * @full: whether it is
 */
void flow_set_full(struct flow *flow, bool full)
{
	lockdep_assert_held(&flow->lock);
	if (flow->full == full)
		return;
	WRITE_ONCE(flow->full, full);
	atomic_add(full ? 1 : -1, &full_flows);
}

/**
 * flow_any_full() - is any queue full?
 *
 * Context: any. Return: whether packets are to be shown to flow_recall_early().
 */
bool flow_any_full(void)
{
	return !IS_ENABLED(CONFIG_PREEMPT_RT) && atomic_read(&full_flows);
}

/**
 * flow_recall_setup() - get the memory for it
 *
 * Context: process, may sleep. Return: 0 or -ENOMEM.
 */
int flow_recall_setup(void)
{
	recall = alloc_percpu(struct recall);
	return recall ? 0 : -ENOMEM;
}

/**
 * flow_recall_teardown() - give it back
 *
 * Context: process; no packet is in a hook.
 */
void flow_recall_teardown(void)
{
	free_percpu(recall);
}
