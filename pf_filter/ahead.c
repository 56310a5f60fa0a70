// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ahead: what is shed anyway is dropped before its connection is tracked.
 *
 * The hook comes after destination NAT, where a packet's address is final. Where connections are
 * tracked, the packet has by then cost a look-up of its connection, and the translation. For a
 * container behind a published port that is a third of what the host does for a packet. So there
 * is one more hook, in front of connection tracking and behind the administrator's raw rules. It
 * judges packets of the flows that the hook has told of in this jiffy (wire.c). The verdict is the
 * hook's: same receiver, same cut, same coin. A packet of any other flow goes on to the hook,
 * which then tells of it.
 *
 * Before it drops, it asks the table of connections whether the flow is still translated as the
 * hook saw it (tracked.c). A tracked connection still sees a packet in every jiffy, and does
 * not time out.
 *
 * If the socket cannot be found again by what is remembered, only B1 is asked here. The hook asks
 * B2.
 *
 * Not on PREEMPT_RT, as nothing is remembered there.
 *
 * Context: softirq, RCU read side.
 */
#include <linux/netfilter.h>

#include "filter.h"
#include "wire.h"

/* Is it to be dropped? Its addresses are not final: no socket is looked up by them. */
static enum filter_outcome packet_judge_ahead(struct filter_packet *packet)
{
	struct sk_buff *skb = packet->skb;
	enum filter_outcome outcome;

	packet->dev = skb->dev;
	packet->skb = NULL;
	outcome = filter_judge(packet);
	packet->skb = skb;
	return outcome;
}

static noinline __flatten unsigned int
filter_handle_ahead(struct sk_buff *skb, const struct nf_hook_state *state)
{
	struct filter_packet packet = { .skb = skb };
	enum filter_outcome outcome;
	const struct wire *wire;
	struct wire_key key;

	packet.packets = packet_count(skb, skb->len);
	/* A template says that its connection is in another table. */
	if (filter_was_judged(&packet) || packet_read(&packet, state) != FILTER_PASS ||
	    packet.loopback || skb_nfct(skb))
		return NF_ACCEPT;
	packet_read_key(&packet, &key);
	wire = wire_show(&key);
	if (!wire || !wire_recall(wire, &packet))
		return NF_ACCEPT;
	outcome = packet_judge_ahead(&packet);
	if (outcome < FILTER_PASS && !wire_holds(wire, packet.net))
		return NF_ACCEPT;
	if (filter_count_outcome(&packet, outcome)) {
		filter_drop(&packet, outcome);
		return NF_STOLEN;
	}
	this_cpu_write(judged_ahead.skb, skb);
	this_cpu_write(judged_ahead.by_rank, outcome > FILTER_PASS_EXEMPT);
	return NF_ACCEPT;
}

static unsigned int filter_ahead_hook(void *priv, struct sk_buff *skb,
				      const struct nf_hook_state *state)
{
	this_cpu_write(judged_ahead.skb, NULL);
	if (likely(!this_cpu_read(pflow_load.pressed)))
		return NF_ACCEPT;
	return filter_handle_ahead(skb, state);
}
