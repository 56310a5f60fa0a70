// SPDX-License-Identifier: GPL-2.0-only
/*
 * Admission: does a packet pass, does it wait, or is it dropped?
 *
 * A packet passes at once only where nothing of its flow waits and nothing is being continued.
 * So packets of a flow stay in order, also where it begins to wait and where it ends. There is one
 * exception: what is for a real-time receiver overtakes what waits. That is for others, or came
 * before its receiver was a real-time one.
 *
 * What waits must stay valid after the hook has returned. So its route is held (skb_dst_force). It
 * is not shared, which ip_rcv() has seen to, and it is on no list. Some packets cannot wait, and
 * are dropped where there are no tokens:
 *
 *  - one with a socket that a transparent proxy has found, as the packet may not hold that socket;
 *  - one that a bridge shows to IP, as the bridge's ports may change meanwhile;
 *  - one whose new connection other packets share;
 *  - one whose device is not up.
 *
 * Context: softirqs off, RCU read side.
 */
#include <linux/err.h>
#include <linux/netfilter_bridge.h>
#include <net/dst.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/netfilter/nf_conntrack.h>

#include "flow.h"

#define LONGEST		1048576u	/* packet, as far as buckets follow */

/* No card makes a super-packet of more. A sender with a packet socket may, of tiny packets. */
#define PARTS_MOST	512

/* What IP keeps in cb stays as it is. */
static_assert(sizeof(struct inet_skb_parm) <= FLOW_WAIT_AT);
static_assert(sizeof(struct inet6_skb_parm) <= FLOW_WAIT_AT);
static_assert(IS_ALIGNED(FLOW_WAIT_AT, __alignof__(struct flow_wait)));

/**
 * flow_skb_opens() - does a packet have a connection that none has opened yet?
 * @skb: it
 * @packets: that have this connection, at least
 *
 * Context: any. Return: whether it does.
 */
bool flow_skb_opens(const struct sk_buff *skb, int packets)
{
#if IS_ENABLED(CONFIG_NF_CONNTRACK)
	enum ip_conntrack_info info;
	struct nf_conn *ct = nf_ct_get(skb, &info);

	return ct && !nf_ct_is_confirmed(ct) &&
	       refcount_read(&ct->ct_general.use) >= packets;
#else
	return false;
#endif
}

static bool skb_may_be_split(const struct sk_buff *skb, u32 packets)
{
	/* UFO makes fragments, and source translation would take these for whole packets. */
	return packets > 1 && packets <= PARTS_MOST && !flow_skb_opens(skb, 1) &&
	       !(skb_shinfo(skb)->gso_type & SKB_GSO_UDP);
}

static bool skb_can_wait(struct sk_buff *skb)
{
	if (unlikely(skb->sk || nf_bridge_info_exists(skb) || flow_skb_opens(skb, 2) ||
		     !netif_running(skb->dev)))
		return false;
	/* A route that is not held may be gone. Then the packet has none any more. */
	return !skb_dst(skb) || skb_dst_force(skb);
}

/* A function for each cause, by which those who trace drops know it. */
static noinline void pflow_drop_queue_full(struct sk_buff *skb)
{
	kfree_skb_reason(skb, SKB_DROP_REASON_QDISC_DROP);
	barrier();	/* not a tail call, or the location would be the caller's */
}

/* By the same reason it would be the same code: the compiler would make one function of both. */
static noinline void pflow_drop_cannot_wait(struct sk_buff *skb)
{
	kfree_skb_reason(skb, SKB_DROP_REASON_NETFILTER_DROP);
	barrier();
}

static noinline void pflow_drop_no_memory(struct sk_buff *skb)
{
	kfree_skb_reason(skb, SKB_DROP_REASON_NOMEM);
	barrier();
}

/* What becomes of a packet that does not pass. */
enum flow_fate {
	FLOW_WAITS,
	FLOW_CANNOT_WAIT,
	FLOW_QUEUE_FULL,
	FLOW_NO_MEMORY,
};

static void skb_meet(struct sk_buff *skb, enum flow_fate fate)
{
	if (fate == FLOW_CANNOT_WAIT)
		pflow_drop_cannot_wait(skb);
	else if (fate == FLOW_QUEUE_FULL)
		pflow_drop_queue_full(skb);
	else if (fate == FLOW_NO_MEMORY)
		pflow_drop_no_memory(skb);
}

static bool flow_is_full(const struct flow *flow, u32 bytes)
{
	return flow->queue.qlen >= flow->queue_packets ||
	       (flow->queue.qlen && flow->bytes + bytes > flow->queue_bytes);
}

/* It has to wait, and can. */
static void flow_enqueue(struct flow *flow, struct sk_buff *skb, const struct flow_wait *how)
{
	*flow_wait_of(skb) = *how;
	__skb_queue_tail(&flow->queue, skb);
	flow->bytes += how->bytes;
	flow->memory += skb->truesize;
	if (flow->state != FLOW_IDLE)
		return;
	flow->state = FLOW_QUEUED;
	flow_server_sleep(&flow->entity, how, how->since,
			  flow_tokens_in(flow, how->bytes, how->since));
}

static enum flow_fate flow_lack_memory(struct flow *flow, const struct flow_wait *how)
{
	lockdep_assert_held(&flow->lock);
	flow->counts.memory += how->packets;
	return FLOW_NO_MEMORY;
}

/* It does not pass. */
static enum flow_fate flow_hold(struct flow *flow, struct sk_buff *skb,
				const struct flow_wait *how, bool can)
{
	lockdep_assert_held(&flow->lock);
	if (!can || flow->door == FLOW_SHUT) {
		flow->counts.unfit += how->packets;
		return FLOW_CANNOT_WAIT;
	}
	if (flow_is_full(flow, how->bytes)) {
		flow->counts.full += how->packets;
		flow_set_full(flow, true);
		return FLOW_QUEUE_FULL;
	}
	if (!flow_server_hold(skb, flow->memory))
		return flow_lack_memory(flow, how);
	flow_enqueue(flow, skb, how);
	return FLOW_WAITS;
}

static bool flow_try_pass(struct flow *flow, u32 bytes, u32 packets, u64 now)
{
	lockdep_assert_held(&flow->lock);
	if (flow_tokens_in(flow, bytes, now))
		return false;
	flow_spend(flow, bytes);
	flow->counts.direct += packets;
	flow->counts.direct_bytes += bytes;
	return true;
}

/**
 * flow_passes() - may a packet pass at once?
 * @flow: its own
 * @bytes: of it on the wire, IP headers included
 * @packets: that it was on the wire
 *
 * Return: it does; else see flow_admit().
 */
bool flow_passes(struct flow *flow, u32 bytes, u32 packets)
{
	bool passes;

	spin_lock(&flow->lock);
	if (unlikely(bytes > flow->longest) && !flow_may_split(flow, bytes, packets)) {
		flow->longest = min(bytes, LONGEST);
		flow_set_limits(flow);
	}
	passes = flow->state == FLOW_IDLE && !flow_must_split(flow, bytes, packets) &&
		 flow_try_pass(flow, bytes, packets, ktime_get_ns());
	spin_unlock(&flow->lock);
	return passes;
}

/* Each waits or is dropped by itself. Return: whether the queue was full for one. */
static bool flow_hold_parts(struct flow *flow, struct sk_buff *parts, struct flow_wait *how)
{
	struct sk_buff *skb, *next;
	enum flow_fate fate;
	bool full = false;

	how->packets = 1;
	skb_list_walk_safe(parts, skb, next) {
		skb_mark_not_on_list(skb);
		how->bytes = skb->len;
		spin_lock(&flow->lock);
		fate = flow_hold(flow, skb, how, true);
		spin_unlock(&flow->lock);
		skb_meet(skb, fate);
		full = full || fate == FLOW_QUEUE_FULL;
	}
	return full;
}

/**
 * flow_admit() - what becomes of a packet that did not pass at once?
 * @flow: its own
 * @skb: it, at its last hook
 * @state: of that hook
 * @bytes: of it on the wire, IP headers included
 * @packets: that it was on the wire
 * @rank: of its receiver; who has a real-time class waits for no tokens, and takes none
 * @full: filled in: it is gone, or some of it, as the queue was full
 *
 * Return: NF_ACCEPT, or NF_STOLEN: it waits or is gone.
 */
unsigned int flow_admit(struct flow *flow, struct sk_buff *skb, const struct nf_hook_state *state,
			u32 bytes, u32 packets, u8 rank, bool *full)
{
	bool routed = skb_dst(skb);
	bool can = skb_can_wait(skb);
	bool lost = routed && !skb_dst(skb);	/* its route, on which who set it counts */
	bool parts = can && skb_may_be_split(skb, packets);
	struct flow_wait how = {
		.okfn = state->okfn, .since = ktime_get_ns(), .bytes = bytes,
		.packets = min_t(u32, packets, U16_MAX), .rank = rank,
	};
	struct sk_buff *first = NULL;
	enum flow_fate fate;
	bool asks;

	spin_lock(&flow->lock);
	if (unlikely(rank > PFLOW_RANK_RT_BASE) && !lost) {
		flow->counts.urgent += packets;
		spin_unlock(&flow->lock);
		return NF_ACCEPT;
	}
	/* Behind others only who cannot wait asks for tokens. */
	asks = can ? flow->state == FLOW_IDLE : flow->door != FLOW_SHUT && !lost;
	if (asks && !(parts && flow_must_split(flow, bytes, packets)) &&
	    flow_try_pass(flow, bytes, packets, how.since)) {
		spin_unlock(&flow->lock);
		return NF_ACCEPT;
	}
	/* Where not even one has room, to split it would only cost. */
	if (parts && flow_may_split(flow, bytes, packets) &&
	    !flow_is_full(flow, bytes / packets)) {
		spin_unlock(&flow->lock);
		first = flow_split(skb);
		if (!IS_ERR_OR_NULL(first)) {
			*full = flow_hold_parts(flow, first, &how);
			return NF_STOLEN;
		}
		spin_lock(&flow->lock);
	}
	fate = IS_ERR(first) ? flow_lack_memory(flow, &how) : flow_hold(flow, skb, &how, can);
	spin_unlock(&flow->lock);
	*full = fate == FLOW_QUEUE_FULL;
	skb_meet(skb, fate);
	return NF_STOLEN;
}
