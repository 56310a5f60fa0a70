// SPDX-License-Identifier: GPL-2.0-only
/*
 * Hook: what each packet meets in a namespace of the network.
 *
 * PRE_ROUTING just after destination NAT: as early as netfilter allows with
 * the final address. On CPUs whose packets are not looked at it is one load and one branch.
 *
 * Context: softirq, RCU read side.
 */
#include "filter.h"

/* All that can happen to a packet, as one function: see packet.c. */
static noinline __flatten unsigned int
filter_handle_packet(struct sk_buff *skb, const struct nf_hook_state *state)
{
	struct filter_packet packet = { .skb = skb };
	enum filter_outcome outcome = filter_classify(&packet, state);

	if (outcome == FILTER_PASS)
		outcome = filter_judge(&packet);
	if (!filter_count_outcome(&packet, outcome))
		return NF_ACCEPT;
	filter_drop(&packet, outcome);
	return NF_STOLEN;
}

static unsigned int filter_hook(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	if (likely(!this_cpu_read(pflow_load.watch)))
		return NF_ACCEPT;
	return filter_handle_packet(skb, state);
}
