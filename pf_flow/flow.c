// SPDX-License-Identifier: GPL-2.0-only
/*
 * Flow: what it may do, and how the packets that wait in it are continued.
 *
 * A flow is idle, or packets wait in its queue (admit.c puts them there), or the server is
 * continuing one of them, which is done without the flow's lock. Only where it is idle may the
 * next packet pass by itself. So the last one that waited has been handed on before.
 *
 * A device that goes was taken down a grace period before what waits for it is dropped, so nothing
 * comes later.
 *
 * Context: softirqs off, RCU read side, unless said otherwise.
 */
#include <linux/slab.h>

#include "flow.h"

/**
 * flow_set_limits() - work out what a flow's shape means
 * @flow: its shape, or its longest packet, has changed
 *
 * Context: under the flow's lock.
 */
void flow_set_limits(struct flow *flow)
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
	lockdep_assert_held(&flow_mutex);
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
	lockdep_assert_held(&flow_mutex);
	spin_lock_bh(&flow->lock);
	flow->door = door;
	flow_hurry(flow);
	spin_unlock_bh(&flow->lock);
}

static void skb_continue(struct sk_buff *skb)
{
	/* IP may use all of cb. */
	int (*okfn)(struct net *net, struct sock *sk, struct sk_buff *skb) =
		flow_wait_of(skb)->okfn;

	okfn(dev_net(skb->dev), NULL, skb);
}

/* A function of its own, by which those who trace drops know the cause. */
static noinline void pflow_drop_device_gone(struct sk_buff *skb)
{
	kfree_skb_reason(skb, SKB_DROP_REASON_DEV_READY);
	barrier();	/* not a tail call, or the location would be the caller's */
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

/* How long is the next packet to wait, by itself or for those behind it? */
static u64 flow_batch_in(struct flow *flow, const struct flow_wait *how, u64 now)
{
	u64 wait = flow_tokens_in(flow, how->bytes, now);
	const struct pflow_bucket *bucket = &flow->average;

	if (!wait || now <= how->since)
		return wait;
	if (pflow_bucket_wait(bucket, how->bytes) < wait)
		bucket = &flow->peak;
	return pflow_bucket_batch(bucket, wait, now - how->since);
}

/* After a packet, or where there was none to serve: what does the flow do next? */
static void flow_settle(struct flow *flow, u32 served, u64 now)
{
	struct sk_buff *next = skb_peek(&flow->queue);

	lockdep_assert_held(&flow->lock);
	if (next) {
		const struct flow_wait *how = flow_wait_of(next);

		flow->state = FLOW_QUEUED;
		flow_server_settle(&flow->entity, served, how, now,
				   flow_batch_in(flow, how, now));
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
	/* What is first now may have its tokens sooner. */
	flow_hurry(flow);
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
static bool flow_continue_some(struct flow *flow, bool *served)
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
 * flow_continue_all() - continue all that waits in a flow, now and in order
 * @flow: whose door is shut, or that no packet finds; it is idle afterwards and stays so
 *
 * Context: process, may sleep, under flow_mutex.
 */
void flow_continue_all(struct flow *flow)
{
	bool served;

	lockdep_assert_held(&flow_mutex);
	while (flow_continue_some(flow, &served)) {
		if (served)
			usleep_range(20, 100);
		else
			cond_resched();
	}
}
