// SPDX-License-Identifier: GPL-2.0-only
/*
 * Meet: the end of a trail (trail.c). Was this packet seen before, in another namespace?
 *
 * A packet that was traced is known by its buffer and its header. It is judged here. If it has a
 * receiver, the trail leads here from now on.
 *
 * What the host judged is not judged in the container again. Packets from other containers of this
 * host are not judged while there is a trail. Neither are packets of the loopback.
 *
 * Context: softirq, RCU read side.
 */
#include <linux/etherdevice.h>

#include "filter.h"

/* What a packet turned out to be that is at the end of a trail, perhaps. */
enum meeting {
	MET_FIRST,	/* judge it */
	MET_UNSURE,	/* judge it, but the host may judge the others of its flow */
	MET_TRACED,	/* judge it, and confirm */
	MET_AGAIN,	/* judged where this host first saw it */
};

static struct tag *tag_find(struct trail *trail, const struct filter_packet *packet)
{
	struct tag *found = trail_tag_at(trail, packet->skb), tag;

	lockdep_assert_held(&trail->lock);
	if (likely(found->skb != packet->skb))
		return NULL;
	tag = packet_tag(packet);
	return tag_same(found, &tag) ? found : NULL;
}

static noinline enum meeting trail_meet(const struct filter_packet *packet)
{
	struct trail *trail = trail_find(packet);
	enum meeting met = MET_FIRST;

	if (!trail)
		return MET_FIRST;
	if (!spin_trylock(&trail->lock))
		return MET_UNSURE;
	if (trail_leads_to(trail, packet) && trail->outer != packet->net) {
		met = MET_UNSURE;
		if (tag_find(trail, packet))
			met = MET_TRACED;
		else if (trail->home == packet->net && trail_known(trail))
			met = MET_AGAIN;
	}
	spin_unlock(&trail->lock);
	return met;
}

/**
 * filter_meet() - was this packet seen before, in another namespace?
 * @packet: parsed
 *
 * Return: what it is.
 */
static enum meeting filter_meet(const struct filter_packet *packet)
{
	if (likely(time_after32((u32)jiffies, READ_ONCE(trails_until))))
		return MET_FIRST;
	return trail_meet(packet);
}

/**
 * filter_confirm_trail() - a traced packet has a receiver here
 * @packet: traced, and classified
 */
static noinline void filter_confirm_trail(const struct filter_packet *packet)
{
	const struct sk_buff *skb = packet->skb;
	struct trail *trail = trail_find(packet);
	struct tag *tag;

	if (!trail || !spin_trylock(&trail->lock))
		return;
	tag = trail_leads_to(trail, packet) ? tag_find(trail, packet) : NULL;
	if (!tag)
		goto out;
	tag->skb = NULL;
	trail->home = NULL;
	if (inet_sdif(skb) || !check_net(packet->net))
		goto out;
	trail->home = packet->net;
	trail->home_routes = net_routes(packet->net, packet->v4);
	trail->iif = skb->skb_iif;
	trail->confirmed = jiffies;
	trail->ethernet = skb->dev->type == ARPHRD_ETHER && skb_mac_header_was_set(skb);
	if (trail->ethernet)
		ether_addr_copy(trail->hardware, eth_hdr(skb)->h_dest);
	trails_announce();
out:
	spin_unlock(&trail->lock);
}
