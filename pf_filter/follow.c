// SPDX-License-Identifier: GPL-2.0-only
/*
 * Follow: the beginning of a trail (trail.c). In which namespace does what this host forwards end?
 *
 * A packet begins no trail where rules choose its route, where the route has several paths, or
 * where its source or destination is translated further on. If other packets of the same
 * destination have begun one, such a packet follows it, unless a socket may be connected to its
 * source.
 *
 * What a bridge hands on by itself, with a translated address, is left to who receives it.
 *
 * Every %CONFIRM_EVERY another packet is traced. Where it arrives, the trail leads from then on.
 * The trail ends %TRAIL_LASTS after the last traced packet that arrived. A packet that a later
 * filter drops is not received, so it confirms no trail.
 *
 * Context: softirq, RCU read side.
 */
#include <linux/netfilter_bridge.h>
#include <net/ip6_route.h>
#include <net/ip_fib.h>
#include <net/nexthop.h>
#include <net/udp.h>

#include "../common/compat/compat.h"
#include "filter.h"

#define SHARING_MOST	32		/* sockets looked at; of more it is taken to be so */

/* The device by which all packets to this address leave; 0 if there may be several. */
static int packet_way_out4(const struct filter_packet *packet)
{
	const struct iphdr *iph = ip_hdr(packet->skb);
	struct flowi4 fl4 = {
		.daddr = iph->daddr,
		.saddr = iph->saddr,
		.flowi4_iif = packet->skb->dev->ifindex,
		.flowi4_scope = RT_SCOPE_UNIVERSE,
	};
	struct fib_result found = {};

	pflow_flow_tos(&fl4, iph->tos);
#if IS_ENABLED(CONFIG_IP_MULTIPLE_TABLES)
	if (READ_ONCE(packet->net->ipv4.fib_has_custom_rules))
		return 0;
#endif
	if (fib_lookup(packet->net, &fl4, &found, 0) || found.type != RTN_UNICAST ||
	    fib_info_num_path(found.fi) != 1)
		return 0;
	return FIB_RES_DEV(found)->ifindex;
}

#if IS_ENABLED(CONFIG_IPV6)
static int packet_way_out6(const struct filter_packet *packet)
{
	const struct ipv6hdr *ip6h = ipv6_hdr(packet->skb);
	struct flowi6 fl6 = {
		.daddr = ip6h->daddr,
		.saddr = ip6h->saddr,
		.flowi6_iif = packet->skb->dev->ifindex,
	};
	const struct fib6_info *route;
	const struct rt6_info *rt;
	struct dst_entry *dst;
	int oif = 0;

#if IS_ENABLED(CONFIG_IPV6_MULTIPLE_TABLES)
	if (READ_ONCE(packet->net->ipv6.fib6_has_custom_rules))
		return 0;
#endif
	/* Packets of another source may go another way. */
	if (fib6_routes_require_src(packet->net))
		return 0;
	dst = ip6_route_lookup(packet->net, &fl6, packet->skb, 0);
	rt = container_of(dst, struct rt6_info, dst);
	route = rcu_dereference(rt->from);
	if (!dst->error && route && !route->nh && !READ_ONCE(route->fib6_nsiblings) &&
	    !(rt->rt6i_flags & RTF_LOCAL))
		oif = dst->dev->ifindex;
	dst_release(dst);
	return oif;
}
#else
static int packet_way_out6(const struct filter_packet *packet)
{
	return 0;
}
#endif

static int packet_way_out(const struct filter_packet *packet)
{
	return packet->v4 ? packet_way_out4(packet) : packet_way_out6(packet);
}

/*
 * Does a bridge that shows it to IP's hooks hand it on by itself? The bridge does so if the
 * destination has just been translated, and the route to the new one leads back to the bridge.
 */
static bool packet_stays_bridged(const struct filter_packet *packet)
{
#if IS_ENABLED(CONFIG_BRIDGE_NETFILTER)
	const struct sk_buff *skb = packet->skb;
	const struct nf_bridge_info *bridge = nf_bridge_info_get(skb);
	int way;

	if (likely(!bridge) || !bridge->in_prerouting)
		return false;
	if (packet->v4 ? bridge->ipv4_daddr == ip_hdr(skb)->daddr :
			 ipv6_addr_equal(&bridge->ipv6_daddr, &ipv6_hdr(skb)->daddr))
		return false;
	way = packet_way_out(packet);
	return !way || way == skb->dev->ifindex;
#else
	return false;
#endif
}

static void trail_trace(struct trail *trail, const struct filter_packet *packet)
{
	struct tag *tag = trail_tag_at(trail, packet->skb);

	lockdep_assert_held(&trail->lock);
	*tag = packet_tag(packet);
	tag->hops--;
	trails_announce();
}

static enum filter_outcome trail_follow(struct trail *trail, struct filter_packet *packet)
{
	u64 routes = net_routes(packet->net, packet->v4);

	lockdep_assert_held(&trail->lock);
	/* Of a namespace that goes: its trails are forgotten, or will be with this lock. */
	if (unlikely(!check_net(packet->net)))
		return FILTER_PASS_FORWARDED;
	if (!trail_leads_to(trail, packet) || trail->outer != packet->net)
		trail_begin(trail, packet);
	if (trail->routes != routes) {
		trail_end(trail);
		trail->routes = routes;
	}
	if (!pflow_within(trail->traced, CONFIRM_EVERY)) {
		trail->traced = jiffies;
		trail->oif = packet_way_out(packet);
		if (!trail->oif) {
			trail->home = NULL;
			return FILTER_PASS_FORWARDED;
		}
		trail_trace(trail, packet);
		return FILTER_PASS_TRACED;
	}
	if (!trail_known(trail) || net_routes(trail->home, packet->v4) != trail->home_routes)
		return FILTER_PASS_FORWARDED;
	packet->home = trail->home;
	packet->home_iif = trail->iif;
	packet->routes = routes << 32 | (u32)trail->home_routes;
	return FILTER_PASS;
}

/* May a socket of this port be connected, and get what has a certain source? */
static noinline bool port_depends_on_source(const struct filter_packet *packet)
{
	const struct udp_hslot *slot = udp_hashslot(pflow_udp_table(packet->home), packet->home,
						    packet->local_port);
	unsigned int looked = 0;
	const struct sock *sk;

	sk_for_each_rcu(sk, &slot->head) {
		if (looked++ == SHARING_MOST)
			return true;
		if (READ_ONCE(sk->sk_state) == TCP_ESTABLISHED &&
		    sk->sk_num == packet->local_port && net_eq(sock_net(sk), packet->home))
			return true;
	}
	return false;
}

/**
 * filter_follow() - find the receiver of a packet that is not for this namespace
 * @packet: parsed; @home and @sk are filled in
 *
 * Return: %FILTER_PASS if it is known, or what the packet is let through as.
 */
static enum filter_outcome filter_follow(struct filter_packet *packet)
{
	struct sk_buff *skb = packet->skb;
	enum filter_outcome outcome;
	struct trail *trail;

	if (IS_ENABLED(CONFIG_PREEMPT_RT) || packet->loopback || packet_hops(packet) <= 1 ||
	    packet_stays_bridged(packet))
		return FILTER_PASS_FORWARDED;
	trail = trail_find_or_take(packet);
	if (!trail || !spin_trylock(&trail->lock))
		return FILTER_PASS_FORWARDED;
	outcome = trail_follow(trail, packet);
	spin_unlock(&trail->lock);
	if (outcome != FILTER_PASS)
		return outcome;
	if (packet->v4)
		packet->sk = pflow_udp4_lookup(packet->home, ip_hdr(skb)->saddr,
					       htons(packet->remote_port), ip_hdr(skb)->daddr,
					       htons(packet->local_port), packet->home_iif, 0);
	else
		packet->sk = pflow_udp6_lookup(packet->home, &ipv6_hdr(skb)->saddr,
					       htons(packet->remote_port), &ipv6_hdr(skb)->daddr,
					       htons(packet->local_port), packet->home_iif, 0);
	if (!packet->sk)
		return FILTER_PASS_NO_RECEIVER;
	packet->unsourced = !tracked_keeps_source(skb);
	if (packet->unsourced && port_depends_on_source(packet))
		return FILTER_PASS_FORWARDED;
	return FILTER_PASS;
}
