// SPDX-License-Identifier: GPL-2.0-only
/*
 * Classify: is this packet one process's, and whose?
 *
 * Only packets that surely end at one receiver are judged: UDP for an address of
 * this host, whole, without IP options or extension headers (a source route
 * may still send it on), not bridged, not claimed by a transparent proxy. Where
 * IPVS has services nothing is judged, because IPVS takes packets later, on their way
 * to a socket. The hook runs after destination NAT, so the address is final; it is checked to
 * be local, since a lookup by port alone would match forwarded packets. With a
 * VRF the packet passes here twice: the second time, when the device is the
 * VRF's, the lookup is right. What is forwarded to a socket in another namespace of this
 * host counts as for this host (trail.c). Everything else passes untouched.
 *
 * Context: softirq, RCU read side (both held by the netfilter hook). The socket
 * found is a UDP socket, freed after a grace period, so it stays readable.
 */
#include <linux/hash.h>
#include <linux/netdevice.h>
#include <linux/netfilter_bridge.h>
#include <linux/netfilter_ipv4.h>
#include <linux/udp.h>
#include <net/addrconf.h>
#include <net/dst_metadata.h>
#include <net/inet_sock.h>
#include <net/ip.h>
#include <net/ip6_route.h>
#include <net/route.h>
#include <net/sock_reuseport.h>

#include "../common/compat/compat.h"
#include "../common/compat/driver.h"
#include "filter.h"

#define GROUP_LOOKS	16	/* members of a group */

/*
 * How many packets a buffer is that carries so much behind its headers. What comes from a
 * virtio or tun device may leave the count to the receiver.
 */
static unsigned int packet_count(const struct sk_buff *skb, unsigned int size)
{
	const struct skb_shared_info *shinfo = skb_shinfo(skb);

	if (!skb_is_gso(skb))
		return 1;
	return shinfo->gso_segs ?: DIV_ROUND_UP(size, shinfo->gso_size);
}

/* A datagram that was only to be cut into fragments (UFO) is one still. */
static unsigned int datagram_count(const struct sk_buff *skb, unsigned int size)
{
	if (!(skb_shinfo(skb)->gso_type & (SKB_GSO_UDP_L4 | SKB_GSO_FRAGLIST)))
		return 1;
	return packet_count(skb, size) ?: 1;
}

/* A UDP datagram, if all of what its header announces is there. */
static __always_inline enum filter_outcome
packet_parse_udp(struct filter_packet *packet, unsigned int header_length)
{
	const struct sk_buff *skb = packet->skb;
	unsigned int offset = skb_network_offset(skb) + header_length;
	struct udphdr buffer;
	const struct udphdr *uh = skb_header_pointer(skb, offset, sizeof(buffer), &buffer);
	unsigned int length;

	if (!uh)
		return FILTER_PASS_NOT_PLAIN;
	length = ntohs(uh->len);
	if (length < sizeof(*uh) || length > skb->len - offset)
		return FILTER_PASS_NOT_PLAIN;
	/* The kernel drops what it cannot trim: the place of the sum may be behind the end. */
	if (unlikely(length < skb->len - offset) && skb->ip_summed == CHECKSUM_PARTIAL)
		return FILTER_PASS_NOT_PLAIN;
	if (unlikely(packet->packets > 1))
		packet->packets = datagram_count(skb, length - sizeof(*uh));
	packet->length = length;
	packet->local_port = ntohs(uh->dest);
	packet->remote_port = ntohs(uh->source);
	return FILTER_PASS;
}

/*
 * The last address found local, for the rest of the jiffy, as the route lookup that answers costs
 * more than all the rest of a drop. Address and time are two halves of one word, so that they are
 * never of two answers.
 */
static DEFINE_PER_CPU(u64, local4);

static bool address_is_local(struct net *net, const struct net_device *dev, __be32 address)
{
	u64 known = (u64)(__force u32)address << 32 | (u32)jiffies;

	known ^= hash_64((unsigned long)net + dev->ifindex, 64);
	if (this_cpu_read(local4) == known)
		return true;
	if (inet_addr_type_dev_table(net, dev, address) != RTN_LOCAL)
		return false;
	this_cpu_write(local4, known);
	return true;
}

static enum filter_outcome packet_parse4(struct filter_packet *packet)
{
	const struct iphdr *iph = ip_hdr(packet->skb);

	if (iph->protocol != IPPROTO_UDP)
		return FILTER_PASS_OTHER_PROTOCOL;
	if (iph->ihl != sizeof(*iph) / 4 || ip_is_fragment(iph))
		return FILTER_PASS_NOT_PLAIN;
	return packet_parse_udp(packet, sizeof(*iph));
}

/*
 * No route leads here for this packet, though its address may be ours. It is dropped later, and by
 * no socket. It is not asked here whether a route leads back to its source (rp_filter).
 */
static bool packet_is_martian(const struct filter_packet *packet, const struct iphdr *iph)
{
	if (ipv4_is_multicast(iph->saddr) || ipv4_is_lbcast(iph->saddr) ||
	    ipv4_is_zeronet(iph->saddr))
		return true;
	return !packet->loopback && (ipv4_is_loopback(iph->saddr) ||
				     ipv4_is_loopback(iph->daddr) || iph->saddr == iph->daddr);
}

static enum filter_outcome packet_find_sock4(struct filter_packet *packet)
{
	struct sk_buff *skb = packet->skb;
	const struct iphdr *iph = ip_hdr(skb);

	if (packet_is_martian(packet, iph))
		return FILTER_PASS_NOT_HOST;
	packet->sk = pflow_udp4_lookup(packet->net, iph->saddr, htons(packet->remote_port),
				       iph->daddr, htons(packet->local_port),
				       skb_valid_dst(skb) ? inet_iif(skb) : packet->iif,
				       inet_sdif(skb));
	if (!packet->sk)
		return FILTER_PASS_NO_RECEIVER;
	if (!address_is_local(packet->net, skb->dev, iph->daddr))
		return FILTER_PASS_FORWARDED;
	return FILTER_PASS;
}

#if IS_ENABLED(CONFIG_IPV6)
static enum filter_outcome packet_parse6(struct filter_packet *packet)
{
	const struct ipv6hdr *ip6h = ipv6_hdr(packet->skb);

	if (ip6h->nexthdr != IPPROTO_UDP)
		return ipv6_ext_hdr(ip6h->nexthdr) ? FILTER_PASS_NOT_PLAIN :
						     FILTER_PASS_OTHER_PROTOCOL;
	return packet_parse_udp(packet, sizeof(*ip6h));
}

static enum filter_outcome packet_find_sock6(struct filter_packet *packet)
{
	struct sk_buff *skb = packet->skb;
	const struct ipv6hdr *ip6h = ipv6_hdr(skb);

	packet->sk = pflow_udp6_lookup(packet->net, &ip6h->saddr, htons(packet->remote_port),
				       &ip6h->daddr, htons(packet->local_port),
				       inet6_iif(skb) ?: packet->iif, inet6_sdif(skb));
	if (!packet->sk)
		return FILTER_PASS_NO_RECEIVER;
	if (!ipv6_chk_addr(packet->net, &ip6h->daddr, skb->dev, 0))
		return FILTER_PASS_FORWARDED;
	return FILTER_PASS;
}
#else
static enum filter_outcome packet_parse6(struct filter_packet *packet)
{
	return FILTER_PASS_OTHER_PROTOCOL;
}

static enum filter_outcome packet_find_sock6(struct filter_packet *packet)
{
	return FILTER_PASS_NO_RECEIVER;
}
#endif

/*
 * What a packet takes of a buffer, and what it surely takes, if it is received. A super-packet is
 * split again first, unless its receiver merges; how much each segment takes depends on who
 * allocates it, but no less than an empty buffer does.
 */
static void packet_measure(struct filter_packet *packet)
{
	packet->truesize = packet->skb->truesize;
	packet->least = packet->packets > 1 ? SKB_TRUESIZE(0) : packet->truesize;
}

static bool sock_would_drop(const struct filter_packet *packet, const struct sock *sk)
{
	return pflow_udp_would_drop(pflow_rmem(sk), READ_ONCE(sk->sk_rcvbuf),
				    packet->least);
}

/* Of several sockets that share a port the kernel picks one by the source. */
static bool group_member_is_known(const struct filter_packet *packet,
				  const struct sock_reuseport *group)
{
	return packet->sk->sk_state == TCP_ESTABLISHED ||
	       !(packet->unsourced || rcu_access_pointer(group->prog));
}

/*
 * Of a group, either a BPF program picks the receiver later, by means unknown here, or the source
 * decides, which may not be known yet. So the most important member stands for all, and the packet
 * is sure to be dropped only if all are full. The array only grows in place. Its members are freed
 * after a grace period.
 *
 * Anybody may make a group of thousands. Of a large one a few members are looked at, in each jiffy
 * others, so that no packet costs more.
 */
static enum filter_outcome packet_find_in_group(struct filter_packet *packet,
						const struct sock_reuseport *group)
{
	unsigned int n = READ_ONCE(group->num_socks), looks = min(n, GROUP_LOOKS), at = 0;

	smp_rmb();	/* pairs with smp_wmb() in __reuseport_add_sock() */
	packet->group = FILTER_GROUP_WHOLE;
	if (looks < n) {
		packet->group = FILTER_GROUP_PART;
		at = (u32)jiffies * GROUP_LOOKS % n;
	}
	packet->full = packet->group == FILTER_GROUP_WHOLE;
	packet->entry = NULL;
	for (; looks; looks--) {
		struct sock *sk = READ_ONCE(group->socks[at]);
		struct pflow_sock *entry = sk ? pflow_sock_find(sk) : NULL;

		if (!entry)
			return FILTER_PASS_UNTRACKED;
		if (!packet->entry || READ_ONCE(entry->rank) > READ_ONCE(packet->entry->rank)) {
			packet->entry = entry;
			packet->sk = sk;
		}
		packet->full = packet->full && sock_would_drop(packet, sk);
		at = at + 1 < n ? at + 1 : 0;
	}
	if (!packet->entry)
		return FILTER_PASS_UNTRACKED;
	filter_remember(packet);
	pflow_sock_settle(packet->entry, packet->sk);
	return FILTER_PASS;
}

static enum filter_outcome packet_find_entry(struct filter_packet *packet)
{
	const struct sock_reuseport *group;

	packet->group = FILTER_GROUP_NONE;
	if (READ_ONCE(udp_sk(packet->sk)->encap_type) || READ_ONCE(udp_sk(packet->sk)->encap_rcv))
		return FILTER_PASS_KERNEL_SOCKET;
	group = rcu_dereference(packet->sk->sk_reuseport_cb);
	if (group && !group_member_is_known(packet, group))
		return packet_find_in_group(packet, group);
	packet->entry = pflow_sock_find(packet->sk);
	if (!packet->entry)
		return FILTER_PASS_UNTRACKED;
	filter_remember(packet);
	pflow_sock_settle(packet->entry, packet->sk);
	packet->full = sock_would_drop(packet, packet->sk);
	return FILTER_PASS;
}

/* Is there a hook of this priority? What is hooked stays readable, as nfnetlink_hook reads it. */
static bool hooked_at(const struct nf_hook_entries *entries, int priority)
{
	struct nf_hook_ops **ops;
	unsigned int i;

	if (!entries)
		return false;
	ops = nf_hook_entries_get_hook_ops(entries);
	for (i = 0; i < entries->num_hook_entries; i++)
		if (READ_ONCE(ops[i])->priority == priority)
			return true;
	return false;
}

/*
 * IPVS takes the packets of its services at LOCAL_IN, after this hook. They are for an address of
 * this host, and for none of its sockets. Which packets they are, IPVS alone knows. It is hooked
 * there, at this priority in both families, only while the namespace has services. net->ipvs tells
 * no more than that the module is there: what it points to is freed without a grace period.
 */
static bool ipvs_serves(const struct nf_hook_state *state)
{
#if IS_ENABLED(CONFIG_IP_VS)
	const struct netns_nf *nf = &state->net->nf;

	if (likely(!READ_ONCE(state->net->ipvs)))
		return false;
	return hooked_at(state->pf == NFPROTO_IPV4 ?
			 rcu_dereference(nf->hooks_ipv4[NF_INET_LOCAL_IN]) :
			 rcu_dereference(nf->hooks_ipv6[NF_INET_LOCAL_IN]), NF_IP_PRI_NAT_SRC - 1);
#else
	return false;
#endif
}

static noinline enum filter_outcome packet_find_receiver(struct filter_packet *packet)
{
	enum filter_outcome outcome;

	packet->epoch = READ_ONCE(trails_epoch);
	outcome = packet->v4 ? packet_find_sock4(packet) : packet_find_sock6(packet);
	if (outcome == FILTER_PASS_NO_RECEIVER || outcome == FILTER_PASS_FORWARDED)
		outcome = filter_follow(packet);
	return outcome == FILTER_PASS ? packet_find_entry(packet) : outcome;
}

/**
 * filter_find_sock() - look at the socket of a recalled packet
 * @packet: recalled without its socket; @sk, @entry and @full are filled in. Without a buffer,
 *	as a frame, it is not looked up anew if that socket is not found. A group is looked at anew
 *
 * Context: softirq, RCU read side. Return: %FILTER_PASS if it may be judged,
 * or why it may not.
 */
static enum filter_outcome filter_find_sock(struct filter_packet *packet)
{
	if (packet->group != FILTER_GROUP_NONE || !filter_revive_sock(packet))
		return packet->skb ? packet_find_receiver(packet) : FILTER_PASS_UNTRACKED;
	packet->full = sock_would_drop(packet, packet->sk);
	return FILTER_PASS;
}

/*
 * A bridge may show a packet to IP's hooks before it has found out where that goes (br_netfilter).
 * What has the hardware address of the bridge, or of the port, goes to this host's IP, which does
 * not show it a second time. So it is judged here, as if it came by the bridge. Anything else may
 * be for others. Where programs on the bridge's device come first, they may take anything.
 */
static bool packet_may_be_bridged(const struct sk_buff *skb)
{
#if IS_ENABLED(CONFIG_BRIDGE_NETFILTER)
	const struct nf_bridge_info *bridge = nf_bridge_info_get(skb);

	return bridge && bridge->in_prerouting &&
	       (bridge->pkt_otherhost || bridge->orig_proto != BRNF_PROTO_UNCHANGED ||
		skb_vlan_tag_present(skb) || pflow_ingress_used(skb->dev) ||
		rcu_access_pointer(skb->dev->xdp_prog) ||
		rcu_access_pointer(skb->dev->rx_handler));
#else
	return false;
#endif
}

/* What its headers say, if it is a packet that may be judged. */
static __always_inline enum filter_outcome packet_read(struct filter_packet *packet,
						       const struct nf_hook_state *state)
{
	const struct sk_buff *skb = packet->skb;
	enum filter_outcome outcome;

	if (skb->pkt_type != PACKET_HOST)
		return FILTER_PASS_NOT_HOST;
	/* With softirqs on, as after a queue of user space, what is remembered is not ours. */
	if (!softirq_count() || skb->sk || packet_may_be_bridged(skb) ||
	    netif_is_l3_slave(state->in))
		return FILTER_PASS_NOT_PLAIN;
	packet->v4 = state->pf == NFPROTO_IPV4;
	packet->loopback = state->in->flags & IFF_LOOPBACK;
	packet->net = state->net;
	packet->home = state->net;
	packet->iif = pflow_skb_iif(skb);
	outcome = packet->v4 ? packet_parse4(packet) : packet_parse6(packet);
	if (outcome != FILTER_PASS)
		return outcome;
	if (ipvs_serves(state))
		return FILTER_PASS_NOT_PLAIN;
	packet_measure(packet);
	return FILTER_PASS;
}

/**
 * filter_classify() - find a packet's receiver
 * @packet: @skb is set, the rest is filled in; @sk stays NULL if the receiver
 *	was recalled without its socket
 * @state: of the hook
 *
 * Context: softirq, RCU read side. Return: %FILTER_PASS if it may be judged,
 * or why it may not.
 */
static enum filter_outcome filter_classify(struct filter_packet *packet,
					   const struct nf_hook_state *state)
{
	bool before = filter_places_used(), recalled;
	struct wire *wire = NULL;
	enum filter_outcome outcome;
	enum meeting met;

	packet->packets = packet_count(packet->skb, packet->skb->len);
	if (unlikely(before) && filter_was_judged(packet))
		return FILTER_PASS_BEFORE;
	outcome = packet_read(packet, state);
	if (outcome != FILTER_PASS)
		return outcome;
	if (unlikely(before))
		wire = filter_find_wire(packet);
	recalled = filter_recall(packet);
	/* This is the beginning of a trail, not its end. */
	if (recalled && packet->home != packet->net) {
		if (unlikely(wire))
			filter_teach_wire(wire, packet);
		return FILTER_PASS;
	}
	met = filter_meet(packet);
	if (met == MET_AGAIN)
		return FILTER_PASS_BEFORE;
	outcome = recalled ? FILTER_PASS : packet_find_receiver(packet);
	/* Else the others of its flow may be judged by the host. */
	if (unlikely(wire) && met == MET_FIRST)
		filter_teach_wire(wire, packet);
	if (unlikely(met == MET_TRACED) && outcome == FILTER_PASS && packet->home == packet->net)
		filter_confirm_trail(packet);
	return outcome;
}
