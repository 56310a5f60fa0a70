// SPDX-License-Identifier: GPL-2.0-only
/*
 * Parts: super-packets that have to wait go packet by packet.
 *
 * A super-packet is made of many packets that came one after the other (GRO), and is sent on as
 * these. If it waited whole, its flow would be still for as long as all its tokens take, and then
 * burst. So where that is long, it is split into the packets that it was on the wire, as NFQUEUE
 * does at this hook. Each goes when it has its tokens. What has a new connection cannot be split:
 * its parts would share that (admit.c).
 */
#include <linux/err.h>
#include <linux/etherdevice.h>
#include <linux/if_arp.h>
#include <linux/netdev_features.h>
#include <linux/skbuff.h>
#if defined(PFLOW_HAVE_GSO_HEADER)
#include <net/gso.h>
#endif

#include "flow.h"

/**
 * flow_may_split() - is a packet to be split if it has to wait?
 * @flow: its own
 * @bytes: of it on the wire, IP headers included
 * @packets: that it was on the wire
 *
 * Context: under the flow's lock. Return: it is a super-packet whose tokens take long.
 */
bool flow_may_split(const struct flow *flow, u32 bytes, u32 packets)
{
	return packets > 1 && flow->door == FLOW_CONTROLLED &&
	       (pflow_bucket_slow(&flow->average, bytes) ||
		pflow_bucket_slow(&flow->peak, bytes));
}

/**
 * flow_must_split() - can a super-packet only go in parts?
 * @flow: its own
 * @bytes: of it on the wire, IP headers included
 * @packets: that it was on the wire
 *
 * Context: under the flow's lock. Return: it never has all of its tokens at once.
 */
bool flow_must_split(const struct flow *flow, u32 bytes, u32 packets)
{
	return flow_may_split(flow, bytes, packets) &&
	       !(pflow_bucket_holds(&flow->average, bytes) &&
		 pflow_bucket_holds(&flow->peak, bytes));
}

/* Of its Ethernet header, which is in front of its data; 0: it has none. */
static unsigned int skb_ethernet_length(const struct sk_buff *skb)
{
	if (skb->dev->type != ARPHRD_ETHER || !skb_mac_header_was_set(skb) ||
	    skb_mac_offset(skb) != -ETH_HLEN)
		return 0;
	return ETH_HLEN;
}

/**
 * flow_split() - split a super-packet
 * @skb: it, with no new connection
 *
 * Each of its packets keeps the Ethernet header, as rules further on may ask for an address there.
 *
 * Context: any. Return: the packets that it was on the wire, in a list; @skb is gone then. NULL:
 * it is as it was. A negative error: it may be in pieces, and can only be freed.
 */
struct sk_buff *flow_split(struct sk_buff *skb)
{
	unsigned int ethernet = skb_ethernet_length(skb);
	struct sk_buff *parts, *part;

	__skb_push(skb, ethernet);
	parts = skb_gso_segment(skb, NETIF_F_SG | NETIF_F_HW_CSUM);
	if (IS_ERR(parts))
		return parts;
	if (!parts) {
		__skb_pull(skb, ethernet);
		return NULL;
	}
	for (part = parts; part; part = part->next)
		__skb_pull(part, ethernet);
	consume_skb(skb);
	return parts;
}
