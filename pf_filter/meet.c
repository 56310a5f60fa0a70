// SPDX-License-Identifier: GPL-2.0-only
/*
 * Meet: the end of a trail (trail.c). Was this packet seen before, in another namespace?
 *
 * A packet that was traced is known by its buffer and its header. It is judged here. If it has a
 * receiver, the trail leads here from now on. Two things might lead a trail astray, and a stranger
 * may bring them about:
 *
 *  - A traced packet that is lost on its way leaves its buffer to another packet, perhaps to one
 *    with the same header that somebody sends to himself. So packets of the loopback confirm no
 *    trail. In the namespace of another user only packets confirm one that came by a pair of
 *    devices straight from the namespace that forwards. Nobody can put an end of his own pair into
 *    that namespace against its will.
 *  - A bridge that has not found an address sends what is for it to all its ports, and one of them
 *    gets the very buffer. So a port confirms a trail only if the bridge has found the address
 *    there, and if bridges tell of it when they find it at another port later (moves.c).
 *
 * What the host judged is not judged in the container again. It is known by the trail's device, and
 * by the hardware address that traced packets come from. So what a neighbour sends over the bridge
 * that they share is judged in the container. So is what the container sends itself. What the
 * host's own programs send, and what it forwards unjudged, looks the same. It is judged nowhere.
 *
 * Context: softirq, RCU read side.
 */
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>

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

static bool packet_has_ethernet(const struct sk_buff *skb)
{
	return skb->dev->type == ARPHRD_ETHER && skb_mac_header_was_set(skb);
}

/* Does it come from where the host's packets come from? */
static bool trail_sends(const struct trail *trail, const struct filter_packet *packet)
{
	const struct sk_buff *skb = packet->skb;

	lockdep_assert_held(&trail->lock);
	if (trail->iif != packet->iif || trail->ethernet != packet_has_ethernet(skb))
		return false;
	return !trail->ethernet || ether_addr_equal(trail->sender, eth_hdr(skb)->h_source);
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
		else if (trail->home == packet->net && trail_known(trail) &&
			 trail_sends(trail, packet))
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
	if (likely(!pflow_ahead(READ_ONCE(trails_until), TRAIL_LASTS)))
		return MET_FIRST;
	return trail_meet(packet);
}

/* To the device below this one by which it sends to that hardware address, if that is known. */
static bool path_goes_on(struct net_device_path_ctx *ctx)
{
	struct net_device_path path = {};

	return !ctx->dev->netdev_ops->ndo_fill_forward_path(ctx, &path);
}

/* What the namespace that forwards sends to that hardware address leaves by this port alone. */
static bool trail_leaves_by(const struct trail *trail, const struct net_device *port,
			    const u8 *hardware)
{
	struct net_device_path_ctx ctx = {
		.dev = dev_get_by_index_rcu(trail->outer, trail->oif),
	};

	ether_addr_copy(ctx.daddr, hardware);
	/* Of VLANs upon each other the kernel takes two. */
	while (ctx.dev && is_vlan_dev(ctx.dev))
		if (!path_goes_on(&ctx))
			return false;
	return ctx.dev && netif_is_bridge_master(ctx.dev) && path_goes_on(&ctx) && ctx.dev == port;
}

/* Is this where it was sent, and nowhere else? */
static bool trail_ends_here(const struct trail *trail, const struct filter_packet *packet)
{
	struct sk_buff *skb = packet->skb;
	const struct net_device_ops *ops = skb->dev->netdev_ops;
	const struct net_device *peer = ops->ndo_get_peer_dev ? ops->ndo_get_peer_dev(skb->dev) :
								NULL;

	lockdep_assert_held(&trail->lock);
	if (packet->loopback)
		return false;
	if (!peer || dev_net(peer) != trail->outer)
		return packet->net->user_ns == trail->outer->user_ns;
	if (!netif_is_bridge_port(peer))
		return true;
	return IS_ENABLED(CONFIG_NET_SWITCHDEV) &&
	       trail_leaves_by(trail, peer, eth_hdr(skb)->h_dest);
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
	if (inet_sdif(skb) || !check_net(packet->net) || !trail_ends_here(trail, packet))
		goto out;
	trail->home = packet->net;
	trail->home_routes = net_routes(packet->net, packet->v4);
	trail->iif = packet->iif;
	trail->confirmed = jiffies;
	trail->ethernet = packet_has_ethernet(skb);
	if (trail->ethernet) {
		ether_addr_copy(trail->hardware, eth_hdr(skb)->h_dest);
		ether_addr_copy(trail->sender, eth_hdr(skb)->h_source);
	}
	trails_announce();
out:
	spin_unlock(&trail->lock);
}
