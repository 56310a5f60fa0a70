// SPDX-License-Identifier: GPL-2.0-only
/*
 * Flow: what becomes of a packet of one, and of the packets that wait.
 *
 * A packet passes at once only where nothing of its flow waits and nothing is being continued.
 * So packets of a flow stay in order, also where it begins to wait and where it ends: the last
 * one that waited has been handed on before the next one may pass. There is one exception: what is
 * for a real-time receiver overtakes what waits. That is for others, or came before its receiver
 * was a real-time one.
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
 * A device that goes was taken down a grace period before what waits for it is dropped, so nothing
 * comes later.
 *
 * A super-packet that has to wait, and whose tokens take long, is split into the packets that it
 * was on the wire, as NFQUEUE does at this hook. Each goes when it has its tokens. What has a new
 * connection cannot be split: its parts would share that.
 *
 * Context: softirqs off, RCU read side, unless said otherwise.
 */
#include <linux/netfilter_bridge.h>
#include <linux/slab.h>
#include <net/dst.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/netfilter/nf_conntrack.h>
#if defined(PFLOW_HAVE_GSO_HEADER)
#include <net/gso.h>
#endif

#include "flow.h"

#define LONGEST		1048576u	/* packet, as far as buckets follow */

/* What IP keeps in cb stays as it is. */
static_assert(sizeof(struct inet_skb_parm) <= FLOW_WAIT_AT);
static_assert(sizeof(struct inet6_skb_parm) <= FLOW_WAIT_AT);
static_assert(IS_ALIGNED(FLOW_WAIT_AT, __alignof__(struct flow_wait)));

static void flow_set_limits(struct flow *flow)
{
	const struct flow_shape *shape = &flow->shape;
	u64 now = ktime_get_ns();

	lockdep_assert_held(&flow->lock);
	pflow_bucket_set(&flow->average, shape->rate,
			 shape->burst ?: pflow_burst_bytes(shape->rate, flow->longest), now);
	pflow_bucket_set(&flow->peak, shape->peak, pflow_peak_bytes(shape->peak, flow->longest),
			 now);
	flow->queue_bytes = shape->queue ?: pflow_queue_bytes(shape->rate ?: shape->peak);
	flow->queue_packets = pflow_queue_packets(flow->queue_bytes);
}

/**
 * flow_alloc() - make a flow
 * @name: its
 * @match: which packets are its own
 * @shape: what it may do
 *
 * Context: process, may sleep. Return: it, in no table; NULL without memory.
 */
struct flow *flow_alloc(const char *name, const struct flow_pattern *match,
			const struct flow_shape *shape)
{
	struct flow *flow = kzalloc(sizeof(*flow), GFP_KERNEL_ACCOUNT);

	if (!flow)
		return NULL;
	spin_lock_init(&flow->lock);
	__skb_queue_head_init(&flow->queue);
	INIT_LIST_HEAD(&flow->list);
	strscpy(flow->name, name, sizeof(flow->name));
	flow->match = *match;
	flow->shape = *shape;
	flow->entity.weight = shape->weight;
	flow->entity.where = PFLOW_NOWHERE;
	spin_lock_bh(&flow->lock);
	flow_set_limits(flow);
	spin_unlock_bh(&flow->lock);
	return flow;
}

/* How long must a packet wait for tokens? */
static u64 flow_tokens_in(struct flow *flow, u32 bytes, u64 now)
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

static void flow_spend(struct flow *flow, u32 bytes)
{
	/* Who needed no tokens leaves no debt to those who will. */
	if (unlikely(flow->door != FLOW_CONTROLLED))
		return;
	pflow_bucket_spend(&flow->average, bytes);
	pflow_bucket_spend(&flow->peak, bytes);
}

/* The server is to look at it at once. */
static void flow_hurry(struct flow *flow)
{
	lockdep_assert_held(&flow->lock);
	if (flow->state == FLOW_QUEUED)
		flow_server_sleep(&flow->entity, flow_wait_of(skb_peek(&flow->queue)),
				  ktime_get_ns(), 0);
}

/**
 * flow_set_shape() - let a flow do something else from now on
 * @flow: packets of which may be waiting
 * @shape: what
 *
 * Context: process, under flow_mutex.
 */
void flow_set_shape(struct flow *flow, const struct flow_shape *shape)
{
	spin_lock_bh(&flow->lock);
	flow->shape = *shape;
	flow_set_full(flow, false);
	flow_set_limits(flow);
	flow_server_reweigh(&flow->entity, shape->weight);
	flow_hurry(flow);
	spin_unlock_bh(&flow->lock);
}

/**
 * flow_set_door() - who may wait from now on?
 * @flow: it
 * @door: who; what waits already is continued at once, in order, unless it is FLOW_CONTROLLED
 *
 * Context: process, under flow_mutex.
 */
void flow_set_door(struct flow *flow, enum flow_door door)
{
	spin_lock_bh(&flow->lock);
	flow->door = door;
	flow_hurry(flow);
	spin_unlock_bh(&flow->lock);
}

/* A connection that no packet has opened yet, which so many packets have. */
static bool skb_has_new_connection(const struct sk_buff *skb, int packets)
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

static bool skb_can_wait(struct sk_buff *skb)
{
	if (unlikely(skb->sk || nf_bridge_info_exists(skb) || skb_has_new_connection(skb, 2) ||
		     !netif_running(skb->dev)))
		return false;
	/* A route that is not held may be gone. */
	return !skb_dst(skb) || skb_dst_force(skb);
}

static void skb_continue(struct sk_buff *skb)
{
	/* IP may use all of cb. */
	int (*okfn)(struct net *net, struct sock *sk, struct sk_buff *skb) =
		flow_wait_of(skb)->okfn;

	okfn(dev_net(skb->dev), NULL, skb);
}

/* A function for each cause, by which those who trace drops know it. */
static noinline void pflow_drop_queue_full(struct sk_buff *skb)
{
	kfree_skb_reason(skb, SKB_DROP_REASON_QDISC_DROP);
	barrier();	/* not a tail call, or the location would be the caller's */
}

static noinline void pflow_drop_cannot_wait(struct sk_buff *skb)
{
	kfree_skb_reason(skb, SKB_DROP_REASON_QDISC_DROP);
	barrier();
}

static noinline void pflow_drop_no_memory(struct sk_buff *skb)
{
	kfree_skb_reason(skb, SKB_DROP_REASON_NOMEM);
	barrier();
}

static noinline void pflow_drop_device_gone(struct sk_buff *skb)
{
	kfree_skb_reason(skb, SKB_DROP_REASON_DEV_READY);
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
	if (!flow_server_hold(skb, flow->memory)) {
		flow->counts.memory += how->packets;
		return FLOW_NO_MEMORY;
	}
	flow_enqueue(flow, skb, how);
	return FLOW_WAITS;
}

/* A super-packet for whose tokens it would have to wait for long. */
static bool flow_is_lumpy(const struct flow *flow, u32 bytes, u32 packets)
{
	return packets > 1 && flow->door == FLOW_CONTROLLED &&
	       (pflow_bucket_slow(&flow->average, bytes) ||
		pflow_bucket_slow(&flow->peak, bytes));
}

/* One that never has all of its tokens at once. */
static bool flow_is_too_lumpy(const struct flow *flow, u32 bytes, u32 packets)
{
	return flow_is_lumpy(flow, bytes, packets) &&
	       !(pflow_bucket_holds(&flow->average, bytes) &&
		 pflow_bucket_holds(&flow->peak, bytes));
}

/* Under the lock. */
static bool flow_try_pass(struct flow *flow, u32 bytes, u32 packets, u64 now)
{
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
	if (unlikely(bytes > flow->longest) && !flow_is_lumpy(flow, bytes, packets)) {
		flow->longest = min(bytes, LONGEST);
		flow_set_limits(flow);
	}
	passes = flow->state == FLOW_IDLE && !flow_is_too_lumpy(flow, bytes, packets) &&
		 flow_try_pass(flow, bytes, packets, ktime_get_ns());
	spin_unlock(&flow->lock);
	return passes;
}

/* The packets that it was on the wire; it is gone then. NULL: it is as it was. */
static struct sk_buff *skb_to_parts(struct sk_buff *skb)
{
	struct sk_buff *parts = skb_gso_segment(skb, NETIF_F_SG | NETIF_F_HW_CSUM);

	if (IS_ERR_OR_NULL(parts))
		return NULL;
	consume_skb(skb);
	return parts;
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
	bool can = skb_can_wait(skb);
	bool parts = packets > 1 && can && !skb_has_new_connection(skb, 1);
	struct flow_wait how = {
		.okfn = state->okfn, .since = ktime_get_ns(), .bytes = bytes,
		.packets = min_t(u32, packets, U16_MAX), .rank = rank,
	};
	struct sk_buff *first;
	enum flow_fate fate;
	bool asks;

	spin_lock(&flow->lock);
	if (unlikely(rank > PFLOW_RANK_RT_BASE)) {
		flow->counts.urgent += packets;
		spin_unlock(&flow->lock);
		return NF_ACCEPT;
	}
	/* Behind others only who cannot wait asks for tokens. */
	asks = can ? flow->state == FLOW_IDLE : flow->door != FLOW_SHUT;
	if (asks && !(parts && flow_is_too_lumpy(flow, bytes, packets)) &&
	    flow_try_pass(flow, bytes, packets, how.since)) {
		spin_unlock(&flow->lock);
		return NF_ACCEPT;
	}
	/* Where not even one has room, to split it would only cost. */
	if (parts && flow_is_lumpy(flow, bytes, packets) &&
	    !flow_is_full(flow, bytes / packets)) {
		spin_unlock(&flow->lock);
		first = skb_to_parts(skb);
		if (first) {
			*full = flow_hold_parts(flow, first, &how);
			return NF_STOLEN;
		}
		spin_lock(&flow->lock);
	}
	fate = flow_hold(flow, skb, &how, can);
	spin_unlock(&flow->lock);
	*full = fate == FLOW_QUEUE_FULL;
	skb_meet(skb, fate);
	return NF_STOLEN;
}

static struct sk_buff *flow_dequeue(struct flow *flow, u64 now)
{
	struct sk_buff *skb = __skb_dequeue(&flow->queue);
	struct flow_wait *wait = flow_wait_of(skb);
	u64 delay = now > wait->since ? now - wait->since : 0;

	flow_set_full(flow, false);
	flow->bytes -= wait->bytes;
	flow->memory -= skb->truesize;
	flow->counts.deferred += wait->packets;
	flow->counts.deferred_bytes += wait->bytes;
	flow->counts.delay_ns += delay * wait->packets;
	flow->counts.delay_most_ns = max(flow->counts.delay_most_ns, delay);
	return skb;
}

/*
 * The lock is given up meanwhile.
 *
 * The device of the packet may be going, and then all that waits for it is dropped. This packet
 * does not wait any more, so it is not dropped. But its device stays, because it goes a grace
 * period later, and we are in RCU's read side.
 */
static void flow_continue_first(struct flow *flow, u64 now)
{
	struct sk_buff *skb = flow_dequeue(flow, now);
	u32 truesize = skb->truesize;

	flow->state = FLOW_SERVED;
	spin_unlock(&flow->lock);
	skb_continue(skb);
	flow_server_release(truesize);
	spin_lock(&flow->lock);
}

/* After a packet, or where there was none to serve: what does the flow do next? */
static void flow_settle(struct flow *flow, u32 served, u64 now)
{
	struct sk_buff *next = skb_peek(&flow->queue);

	lockdep_assert_held(&flow->lock);
	if (next) {
		const struct flow_wait *wait = flow_wait_of(next);

		flow->state = FLOW_QUEUED;
		flow_server_settle(&flow->entity, served, wait, now,
				   flow_tokens_in(flow, wait->bytes, now));
	} else {
		flow->state = FLOW_IDLE;
		flow_server_leave(&flow->entity);
	}
}

/**
 * flow_serve() - continue a packet of a flow
 * @flow: that was picked
 * @now: ns
 *
 * From when it was picked until its lock is taken, somebody else may have taken what waited, and
 * others may have filled it again. Then it does not compete, or is in a heap.
 */
void flow_serve(struct flow *flow, u64 now)
{
	u32 bytes;

	spin_lock(&flow->lock);
	if (flow->state == FLOW_QUEUED && flow->entity.competes &&
	    flow->entity.where == PFLOW_NOWHERE) {
		bytes = flow_wait_of(skb_peek(&flow->queue))->bytes;
		if (flow_tokens_in(flow, bytes, now)) {
			bytes = 0;
		} else {
			flow_spend(flow, bytes);
			flow_continue_first(flow, now);
		}
		flow_settle(flow, bytes, now);
	}
	spin_unlock(&flow->lock);
}

/* Take all that waits for a device. */
static void flow_take(struct flow *flow, const struct net_device *dev, struct sk_buff_head *to)
{
	struct sk_buff *skb, *next;

	lockdep_assert_held(&flow->lock);
	skb_queue_walk_safe(&flow->queue, skb, next) {
		if (skb->dev != dev)
			continue;
		__skb_unlink(skb, &flow->queue);
		flow->bytes -= flow_wait_of(skb)->bytes;
		flow->memory -= skb->truesize;
		flow->counts.gone += flow_wait_of(skb)->packets;
		__skb_queue_tail(to, skb);
		flow_server_release(skb->truesize);
	}
	flow_set_full(flow, false);
	if (flow->state == FLOW_QUEUED && skb_queue_empty(&flow->queue)) {
		flow->state = FLOW_IDLE;
		flow_server_leave(&flow->entity);
	}
}

/**
 * flow_forget_device() - drop what waits for a device that goes
 * @flow: in whose queue it may be
 * @dev: that goes
 *
 * Context: process, RCU read side.
 */
void flow_forget_device(struct flow *flow, const struct net_device *dev)
{
	struct sk_buff_head dropped;
	struct sk_buff *skb;

	/* What came before the device went down is seen without the lock. */
	if (skb_queue_empty_lockless(&flow->queue))
		return;
	__skb_queue_head_init(&dropped);
	spin_lock_bh(&flow->lock);
	flow_take(flow, dev, &dropped);
	spin_unlock_bh(&flow->lock);
	while ((skb = __skb_dequeue(&dropped)))
		pflow_drop_device_gone(skb);
}

/* Return: whether there may be more; the server, too, may be continuing a packet. */
static bool flow_empty_one(struct flow *flow, bool *served)
{
	bool more;

	local_bh_disable();
	rcu_read_lock();
	spin_lock(&flow->lock);
	*served = flow->state == FLOW_SERVED;
	if (flow->state == FLOW_QUEUED) {
		/* It is nobody's turn but ours; who has picked it already finds that out. */
		flow_server_leave(&flow->entity);
		flow_continue_first(flow, ktime_get_ns());
		flow->state = skb_queue_empty(&flow->queue) ? FLOW_IDLE : FLOW_QUEUED;
	}
	more = flow->state != FLOW_IDLE;
	spin_unlock(&flow->lock);
	rcu_read_unlock();
	local_bh_enable();
	return more;
}

/**
 * flow_empty() - continue all that waits in a flow, now and in order
 * @flow: whose door is shut, or that no packet finds; it is idle afterwards and stays so
 *
 * Context: process, may sleep, under flow_mutex.
 */
void flow_empty(struct flow *flow)
{
	bool served;

	while (flow_empty_one(flow, &served)) {
		if (served)
			usleep_range(20, 100);
		else
			cond_resched();
	}
}
