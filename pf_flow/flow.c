// SPDX-License-Identifier: GPL-2.0-only
/*
 * Flow: what becomes of a packet of one, and of the packets that wait.
 *
 * A packet passes at once only where nothing of its flow waits and nothing is being continued.
 * So packets of a flow stay in order, also where it begins to wait and where it ends: the last
 * one that waited has been handed on before the next one may pass.
 *
 * What waits has been made the kernel's own for longer than the hook lasts: its route is held
 * (skb_dst_force), it is not shared (ip_rcv() has seen to that) and is on no list. What cannot
 * wait is dropped where there are no tokens: a packet with a socket that a transparent proxy has
 * found, which may not hold it; one that a bridge shows to IP, whose ports may change meanwhile;
 * and one whose new connection other packets share.
 *
 * Context: softirqs off, RCU read side, unless said otherwise.
 */
#include <linux/netfilter_bridge.h>
#include <linux/slab.h>
#include <net/dst.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/netfilter/nf_conntrack.h>

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

	if (unlikely(flow->open || flow_server_is_open()))
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
	pflow_bucket_spend(&flow->average, bytes);
	pflow_bucket_spend(&flow->peak, bytes);
}

/* The server is to look at it at once. */
static void flow_hurry(struct flow *flow)
{
	lockdep_assert_held(&flow->lock);
	if (flow->state == FLOW_QUEUED)
		flow_server_sleep(&flow->entity, flow_wait_of(skb_peek(&flow->queue))->bytes,
				  ktime_get_ns());
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
 * flow_open() - nothing of a flow is to wait any more
 * @flow: that is about to go; what waits is continued at once, in order
 *
 * Context: process, under flow_mutex.
 */
void flow_open(struct flow *flow)
{
	spin_lock_bh(&flow->lock);
	flow->open = true;
	flow_hurry(flow);
	spin_unlock_bh(&flow->lock);
}

static bool skb_shares_new_connection(const struct sk_buff *skb)
{
#if IS_ENABLED(CONFIG_NF_CONNTRACK)
	enum ip_conntrack_info info;
	struct nf_conn *ct = nf_ct_get(skb, &info);

	return ct && !nf_ct_is_confirmed(ct) && refcount_read(&ct->ct_general.use) > 1;
#else
	return false;
#endif
}

static bool skb_can_wait(struct sk_buff *skb)
{
	if (unlikely(skb->sk || nf_bridge_info_exists(skb) || skb_shares_new_connection(skb)))
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
static noinline unsigned int pflow_drop_queue_full(struct sk_buff *skb)
{
	kfree_skb_reason(skb, SKB_DROP_REASON_QDISC_DROP);
	barrier();	/* not a tail call, or the location would be the caller's */
	return NF_STOLEN;
}

static noinline unsigned int pflow_drop_cannot_wait(struct sk_buff *skb)
{
	kfree_skb_reason(skb, SKB_DROP_REASON_QDISC_DROP);
	barrier();
	return NF_STOLEN;
}

static noinline unsigned int pflow_drop_no_memory(struct sk_buff *skb)
{
	kfree_skb_reason(skb, SKB_DROP_REASON_NOMEM);
	barrier();
	return NF_STOLEN;
}

static noinline void pflow_drop_device_gone(struct sk_buff *skb)
{
	kfree_skb_reason(skb, SKB_DROP_REASON_DEV_READY);
	barrier();
}

static bool flow_is_full(const struct flow *flow, u32 bytes)
{
	return flow->queue.qlen >= flow->queue_packets ||
	       (flow->queue.qlen && flow->bytes + bytes > flow->queue_bytes);
}

/* It has to wait, and can. */
static void flow_enqueue(struct flow *flow, struct sk_buff *skb, const struct nf_hook_state *state,
			 u32 bytes, u32 packets, u64 now, u64 wait)
{
	*flow_wait_of(skb) = (struct flow_wait) {
		.okfn = state->okfn, .since = now, .bytes = bytes, .packets = packets,
	};
	__skb_queue_tail(&flow->queue, skb);
	flow->bytes += bytes;
	if (flow->state != FLOW_IDLE)
		return;
	flow->state = FLOW_QUEUED;
	flow_server_sleep(&flow->entity, bytes, now + wait);
}

/**
 * flow_admit() - what becomes of a packet?
 * @flow: its own
 * @skb: it, at its last hook
 * @state: of that hook
 * @bytes: of it on the wire, IP headers included
 * @packets: that it was on the wire
 *
 * Return: NF_ACCEPT, or NF_STOLEN: it waits or is gone.
 */
unsigned int flow_admit(struct flow *flow, struct sk_buff *skb, const struct nf_hook_state *state,
			u32 bytes, u32 packets)
{
	unsigned int (*drop)(struct sk_buff *skb) = NULL;
	u64 now = ktime_get_ns(), wait = 0;
	bool can;

	spin_lock(&flow->lock);
	if (unlikely(bytes > flow->longest)) {
		flow->longest = min(bytes, LONGEST);
		flow_set_limits(flow);
	}
	/* Behind others only who cannot wait asks for tokens. */
	can = flow->state == FLOW_IDLE || skb_can_wait(skb);
	if (flow->state == FLOW_IDLE || !can) {
		wait = flow_tokens_in(flow, bytes, now);
		if (!wait) {
			flow_spend(flow, bytes);
			flow->counts.direct += packets;
			flow->counts.direct_bytes += bytes;
			spin_unlock(&flow->lock);
			return NF_ACCEPT;
		}
		can = can && skb_can_wait(skb);
	}
	if (!can) {
		flow->counts.unfit += packets;
		drop = pflow_drop_cannot_wait;
	} else if (flow_is_full(flow, bytes)) {
		flow->counts.full += packets;
		flow_set_full(flow, true);
		drop = pflow_drop_queue_full;
	} else if (!flow_server_hold(skb)) {
		flow->counts.memory += packets;
		drop = pflow_drop_no_memory;
	} else {
		flow_enqueue(flow, skb, state, bytes, packets, now, wait);
	}
	spin_unlock(&flow->lock);
	return drop ? drop(skb) : NF_STOLEN;
}

static struct sk_buff *flow_dequeue(struct flow *flow, u64 now)
{
	struct sk_buff *skb = __skb_dequeue(&flow->queue);
	struct flow_wait *wait = flow_wait_of(skb);
	u64 delay = now > wait->since ? now - wait->since : 0;

	flow_set_full(flow, false);
	flow->bytes -= wait->bytes;
	flow->counts.deferred += wait->packets;
	flow->counts.deferred_bytes += wait->bytes;
	flow->counts.delay_ns += delay * wait->packets;
	flow->counts.delay_most_ns = max(flow->counts.delay_most_ns, delay);
	return skb;
}

/* After a packet, or where there was none to serve: what does the flow do next? */
static void flow_settle(struct flow *flow, u32 served, u64 now)
{
	struct sk_buff *next = skb_peek(&flow->queue);

	lockdep_assert_held(&flow->lock);
	if (next) {
		u32 bytes = flow_wait_of(next)->bytes;

		flow->state = FLOW_QUEUED;
		flow_server_settle(&flow->entity, served, bytes, now,
				   flow_tokens_in(flow, bytes, now));
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
 * From when it was picked until its lock is taken, somebody else may have emptied it, and others
 * may have filled it again. Then it is idle, or in a heap.
 *
 * The device of the packet may be going, which drops all that waits for it. This packet does not
 * wait any more. But a device goes a grace period later, and we are in RCU's read side.
 */
void flow_serve(struct flow *flow, u64 now)
{
	struct sk_buff *skb;
	u32 bytes, truesize;

	spin_lock(&flow->lock);
	if (flow->state != FLOW_QUEUED || flow->entity.where != PFLOW_NOWHERE) {
		spin_unlock(&flow->lock);
		return;
	}
	bytes = flow_wait_of(skb_peek(&flow->queue))->bytes;
	if (flow_tokens_in(flow, bytes, now)) {
		flow_settle(flow, 0, now);
		spin_unlock(&flow->lock);
		return;
	}
	flow_spend(flow, bytes);
	skb = flow_dequeue(flow, now);
	flow->state = FLOW_SERVED;
	spin_unlock(&flow->lock);
	truesize = skb->truesize;
	skb_continue(skb);
	flow_server_release(truesize);
	spin_lock(&flow->lock);
	flow_settle(flow, bytes, now);
	spin_unlock(&flow->lock);
}

/* Take all that waits, or all that waits for a device; under the lock. */
static void flow_take(struct flow *flow, const struct net_device *dev, struct sk_buff_head *to)
{
	struct sk_buff *skb, *next;

	lockdep_assert_held(&flow->lock);
	skb_queue_walk_safe(&flow->queue, skb, next) {
		if (dev && skb->dev != dev)
			continue;
		__skb_unlink(skb, &flow->queue);
		flow->bytes -= flow_wait_of(skb)->bytes;
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
 * Context: process, under flow_mutex.
 */
void flow_forget_device(struct flow *flow, const struct net_device *dev)
{
	struct sk_buff_head dropped;
	struct sk_buff *skb;

	__skb_queue_head_init(&dropped);
	spin_lock_bh(&flow->lock);
	flow_take(flow, dev, &dropped);
	skb_queue_walk(&dropped, skb)
		flow->counts.gone += flow_wait_of(skb)->packets;
	spin_unlock_bh(&flow->lock);
	while ((skb = __skb_dequeue(&dropped)))
		pflow_drop_device_gone(skb);
}

/**
 * flow_empty() - continue all that waits in a flow, now
 * @flow: that no new packet finds
 *
 * The devices of what waits are there: who drops what waits for one takes flow_mutex, and their
 * going takes a grace period after that.
 *
 * Context: process, may sleep, under flow_mutex. The server does not serve it when it returns.
 */
void flow_empty(struct flow *flow)
{
	struct sk_buff_head taken;
	struct sk_buff *skb;
	bool served;

	__skb_queue_head_init(&taken);
	do {
		spin_lock_bh(&flow->lock);
		served = flow->state == FLOW_SERVED;
		if (!served)
			flow_take(flow, NULL, &taken);
		spin_unlock_bh(&flow->lock);
		if (served)
			usleep_range(20, 100);
	} while (served);
	while ((skb = __skb_dequeue(&taken))) {
		local_bh_disable();
		rcu_read_lock();
		skb_continue(skb);
		rcu_read_unlock();
		local_bh_enable();
		cond_resched();
	}
}
