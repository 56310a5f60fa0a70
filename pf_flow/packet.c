// SPDX-License-Identifier: GPL-2.0-only
/*
 * Packet: whose it is, how long it was on the wire, and the hook that it meets.
 *
 * The hook is last at PRE_ROUTING: addresses are translated, connections known and marks
 * set, and the route is still to be found. What IP does next is state->okfn, at which a packet that
 * waited goes on.
 *
 * A packet is counted as it was on the wire, from its IP header on: of a super-packet that GRO
 * made, each packet with the headers that it had.
 *
 * Some packets come twice. What a VRF's device shows IP once more was counted when its own
 * device did, and what goes on behind that hook is nothing that could be called later.
 *
 * Context: softirqs off, RCU read side.
 */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/l3mdev.h>

#include "flow.h"

/* Ports of a packet that has any, and is no fragment. */
static void key_set_ports(struct flow_key *key, const struct sk_buff *skb, int offset)
{
	__be16 buffer[2];
	const __be16 *ports;

	switch (key->protocol) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_UDPLITE:
	case IPPROTO_SCTP:
	case IPPROTO_DCCP:
		ports = skb_header_pointer(skb, offset, sizeof(buffer), buffer);
		if (!ports)
			return;
		key->sport = ports[0];
		key->dport = ports[1];
	}
}

static void key_set4(struct flow_key *key, const struct sk_buff *skb)
{
	const struct iphdr *ip = ip_hdr(skb);

	key->source[0] = ip->saddr;
	key->destination[0] = ip->daddr;
	key->protocol = ip->protocol;
	if (!ip_is_fragment(ip))
		key_set_ports(key, skb, skb_network_offset(skb) + ip->ihl * 4);
}

static void key_set6(struct flow_key *key, const struct sk_buff *skb)
{
	const struct ipv6hdr *ip = ipv6_hdr(skb);
	int offset = skb_network_offset(skb) + sizeof(*ip);
	u8 protocol = ip->nexthdr;
	__be16 fragment = 0;

	memcpy(key->source, &ip->saddr, sizeof(key->source));
	memcpy(key->destination, &ip->daddr, sizeof(key->destination));
	if (ipv6_ext_hdr(protocol))
		offset = ipv6_skip_exthdr(skb, offset, &protocol, &fragment);
	key->protocol = protocol;
	if (offset >= 0 && !fragment)
		key_set_ports(key, skb, offset);
}

/**
 * flow_key_set() - read what a packet says
 * @key: filled in
 * @skb: the packet
 * @state: of the hook that it is at
 */
void flow_key_set(struct flow_key *key, const struct sk_buff *skb,
		  const struct nf_hook_state *state)
{
	memset(key, 0, sizeof(*key));
	key->family = state->pf;
	key->iif = state->in->ifindex;
	key->mark = skb->mark;
	if (state->pf == NFPROTO_IPV4)
		key_set4(key, skb);
	else
		key_set6(key, skb);
}

/* Where the last header is that each packet of a super-packet had: of a tunnel, the inner one. */
static int gso_transport_offset(const struct sk_buff *skb)
{
	int offset = skb_network_offset(skb) + sizeof(struct ipv6hdr);
	__be16 fragment;
	u8 protocol;

	if (skb->encapsulation)
		return skb_inner_transport_offset(skb);
	if (ip_hdr(skb)->version == 4)
		return skb_network_offset(skb) + ip_hdrlen(skb);
	protocol = ipv6_hdr(skb)->nexthdr;
	return ipv6_ext_hdr(protocol) ? ipv6_skip_exthdr(skb, offset, &protocol, &fragment) :
					offset;
}

/* Bytes of headers that each packet of a super-packet had. */
static u32 gso_headers(const struct sk_buff *skb)
{
	int offset = gso_transport_offset(skb);
	int headers = max(offset - skb_network_offset(skb), 0);

	if (skb_shinfo(skb)->gso_type & (SKB_GSO_TCPV4 | SKB_GSO_TCPV6)) {
		const struct tcphdr *tcp;
		struct tcphdr buffer;

		tcp = offset < 0 ? NULL : skb_header_pointer(skb, offset, sizeof(buffer), &buffer);
		return headers + (tcp ? __tcp_hdrlen(tcp) : sizeof(buffer));
	}
	return headers + sizeof(struct udphdr);
}

static u32 packet_count(const struct sk_buff *skb, u32 *bytes)
{
	const struct skb_shared_info *shared = skb_shinfo(skb);
	u32 packets;

	*bytes = skb->len;
	if (!skb_is_gso(skb))
		return 1;
	packets = shared->gso_segs ?: DIV_ROUND_UP(skb->len, shared->gso_size);
	if (packets > 1)
		*bytes += (packets - 1) * gso_headers(skb);
	return packets;
}

static bool port_is_exempt(__be16 port)
{
	const struct pflow_ports *exempt =
		rcu_dereference(flow_knobs[FLOW_KNOB_EXEMPT].ports);

	return exempt && test_bit(ntohs(port), exempt->local);
}

static const struct flow_table *hook_table(const struct flow_net *ours,
					   const struct nf_hook_state *state)
{
	return netif_is_l3_master(state->in) ? NULL : rcu_dereference(ours->table);
}

/* What user space has looked at in between goes on with softirqs on. Return: whether they were. */
static bool softirqs_off(void)
{
	if (likely(softirq_count()))
		return false;
	local_bh_disable();
	return true;
}

static void softirqs_back(bool were_on)
{
	if (unlikely(were_on))
		local_bh_enable();
}

/* It gives no verdict: of one that is always the same the compiler would make another function. */
static noinline void pflow_drop_queue_full_ahead(struct sk_buff *skb)
{
	kfree_skb_reason(skb, SKB_DROP_REASON_QDISC_DROP);
	barrier();	/* not a tail call, or the location would be the caller's */
}

/**
 * flow_hook_early() - what a packet meets ahead of connection tracking
 * @ours: the namespace's struct flow_net
 * @skb: the packet
 * @state: of the hook
 *
 * Return: a verdict of netfilter's.
 */
unsigned int flow_hook_early(void *ours, struct sk_buff *skb, const struct nf_hook_state *state)
{
	const struct flow_table *table;
	struct flow *flow;
	u32 bytes;
	bool on;

	if (likely(!flow_any_full()))
		return NF_ACCEPT;
	table = hook_table(ours, state);
	if (!table)
		return NF_ACCEPT;
	on = softirqs_off();
	flow = flow_recall_early(table, skb, state);
	softirqs_back(on);
	if (!flow)
		return NF_ACCEPT;
	atomic64_add(packet_count(skb, &bytes), &flow->early);
	pflow_drop_queue_full_ahead(skb);
	return NF_STOLEN;
}

/**
 * flow_hook() - what a packet meets last at PRE_ROUTING
 * @ours: the namespace's struct flow_net
 * @skb: the packet
 * @state: of the hook
 *
 * Return: a verdict of netfilter's.
 */
unsigned int flow_hook(void *ours, struct sk_buff *skb, const struct nf_hook_state *state)
{
	const struct flow_table *table = hook_table(ours, state);
	unsigned int verdict = NF_ACCEPT;
	bool on, shown, full = false;
	u32 bytes, packets;
	u8 rank;
	struct flow_receiver receiver = {};
	struct flow_key key;
	struct flow *flow;

	if (!table)
		return NF_ACCEPT;
	flow_key_set(&key, skb, state);
	on = softirqs_off();
	if (unlikely(table->receivers)) {
		receiver = flow_receiver_of(table, &key, skb, state->net);
		key.rank = receiver.rank;
		key.cgroup = receiver.cgroup;
	}
	flow = port_is_exempt(key.dport) ? NULL : flow_recall(table, &key);
	shown = flow_recall_shown(skb) && flow_recall_may_tell(table, skb);
	if (flow) {
		packets = packet_count(skb, &bytes);
		if (!flow_passes(flow, bytes, packets)) {
			if (likely(!table->receivers))
				receiver = flow_receiver_of(table, &key, skb, state->net);
			rank = receiver.rank ? receiver.rank - FLOW_RANK_OF(0) : PFLOW_RANK_NICE0;
			verdict = flow_admit(flow, skb, state, bytes, packets, rank, &full);
		}
	}
	if (unlikely(shown && full))
		flow_recall_full(table, flow);
	softirqs_back(on);
	return verdict;
}
