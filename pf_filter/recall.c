// SPDX-License-Identifier: GPL-2.0-only
/*
 * Recall: whose the packets of a flow were, a moment ago.
 *
 * B1 asks for the receiver's place in the order and not for its socket, and B2
 * needs the socket only where its buffer may be full. Looking up the socket for
 * each packet would be the dearest part of a drop, and of a pass. So a few flows
 * are remembered for each CPU, for the rest of the jiffy. A slot holds the flow and
 * the entry of its socket. If the entry may have left the table since, which a lease
 * tells, the flow is unknown. The socket's address is followed only after the kernel's
 * own table of UDP sockets has shown that the socket is still there.
 *
 * Which slots may be a flow's depends on a random key. There are several for each. With one, two
 * flows that share it would displace each other, and each packet would need a look-up. The last
 * one is shared by all that find the others taken.
 *
 * The slots are this CPU's own and used with softirqs off, which excludes all
 * others, except on PREEMPT_RT, where nothing is remembered.
 *
 * Context: softirq, RCU read side.
 */
#include <linux/ip.h>
#include <linux/rculist.h>

#include "../common/compat/compat.h"
#include "filter.h"
#include "wire.h"

#define SET_BITS	5
#define WAYS		4	/* slots that may be a flow's */
#define SLOT_WORDS	5	/* addresses of IPv6, and ports */
#define CHAIN_MOST	8	/* sockets looked at; with more a look-up is as cheap */

/**
 * struct receiver - whose a flow was when it was last looked up
 * @net: namespace of the packets, an identity
 * @home: namespace of the socket, at @epoch there
 * @entry: of the receiving socket; to be followed only while @lease holds
 * @lease: of @entry
 * @until: jiffies in which this is known to be so
 * @epoch: trails_epoch at that time
 * @routes: what the routes to another namespace were known by then
 * @group: enum filter_group: @entry is that of the most important member that was looked at
 * @tos: of its packets, as the routes to another namespace may depend on it
 */
struct receiver {
	const struct net *net;
	struct net *home;
	struct pflow_sock *entry;
	struct pflow_lease lease;
	u32 until;
	u32 epoch;
	u64 routes;
	u8 group;
	u8 tos;
};

/**
 * struct flow - one remembered flow
 * @to: whose it was
 * @remote: source address
 * @local: destination address
 * @ports: source and destination port
 * @iif: device by which it came
 */
struct flow {
	struct receiver to;
	__be32 remote;
	__be32 local;
	u32 ports;
	int iif;
};

/*
 * Too many for a module's own: all modules of a machine have 8 KiB of that together for each CPU,
 * and what finds too little left is not loaded.
 */
static struct flow __percpu *flows __read_mostly;

/* Strangers choose what is hashed: without it they could have flows displace each other. */
static u64 slot_key[SLOT_WORDS] __read_mostly;

static u32 packet_ports(const struct filter_packet *packet)
{
	return (u32)packet->remote_port << 16 | packet->local_port;
}

static int flows_setup(void)
{
	flows = __alloc_percpu(sizeof(struct flow) * WAYS << SET_BITS, __alignof__(struct flow));
	return flows ? 0 : -ENOMEM;
}

/* No packet is in the hook any more. */
static void flows_teardown(void)
{
	free_percpu(flows);
}

static struct flow *flow_set(const struct filter_packet *packet)
{
	u64 word = (u64)(__force u32)ip_hdr(packet->skb)->saddr << 32 | packet_ports(packet);
	u64 set = pflow_slot_hash(slot_key, &word, 1) >> (64 - SET_BITS);

	return this_cpu_ptr(flows) + set * WAYS;
}

static bool flow_matches(const struct flow *flow, const struct filter_packet *packet)
{
	const struct iphdr *iph = ip_hdr(packet->skb);

	return flow->ports == packet_ports(packet) && flow->remote == iph->saddr &&
	       flow->local == iph->daddr && flow->iif == packet->iif;
}

/* What is known of this packet's flow, or NULL. */
static struct flow *flow_find(const struct filter_packet *packet)
{
	struct flow *flow = flow_set(packet), *end = flow + WAYS;

	for (; flow < end; flow++)
		if (flow_matches(flow, packet))
			return flow;
	return NULL;
}

/* Where to remember a flow: in the first slot that is not in use in this jiffy, or the last. */
static struct flow *flow_spare(const struct filter_packet *packet)
{
	struct flow *flow = flow_set(packet), *last = flow + WAYS - 1;

	while (flow < last && flow->to.until == (u32)jiffies)
		flow++;
	return flow;
}

/* It is not remembered by which of a VRF's devices a packet came. */
static bool packet_came_by_vrf(const struct filter_packet *packet)
{
	return packet->v4 ? inet_sdif(packet->skb) : inet6_sdif(packet->skb);
}

static bool packet_may_be_recalled(const struct filter_packet *packet)
{
	return !IS_ENABLED(CONFIG_PREEMPT_RT) && packet->v4 && !packet_came_by_vrf(packet);
}

static void receiver_remember(struct receiver *to, const struct filter_packet *packet)
{
	to->net = packet->net;
	to->home = packet->home;
	to->entry = packet->entry;
	pflow_lease_take(&to->lease, to->entry);
	to->until = jiffies;
	to->epoch = packet->epoch;
	to->routes = packet->routes;
	to->group = packet->group;
	to->tos = packet_tos(packet);
}

/* Is the other namespace still there, and do the routes of IPv4 still lead to it? */
static bool receiver_still_there(const struct receiver *to, const struct net *net)
{
	return to->epoch == READ_ONCE(trails_epoch) &&
	       ((u64)rt_genid_ipv4(net) << 32 | (u32)rt_genid_ipv4(to->home)) == to->routes;
}

/* The packet's entry, and where that is, if it is known yet. */
static bool receiver_recall(const struct receiver *to, struct filter_packet *packet)
{
	if (to->until != (u32)jiffies || to->net != packet->net)
		return false;
	if (unlikely(to->home != packet->net)) {
		if (!packet->v4 || to->tos != packet_tos(packet) ||
		    !receiver_still_there(to, packet->net))
			return false;
		packet->epoch = to->epoch;
		packet->routes = to->routes;
	}
	if (!pflow_lease_holds(&to->lease))
		return false;
	packet->entry = to->entry;
	packet->home = to->home;
	packet->group = to->group;
	packet->lasting = true;
	return true;
}

/**
 * filter_remember() - keep whose a packet is for the next ones of its flow
 * @packet: classified; its receiver depends on nothing but the flow
 */
static void filter_remember(struct filter_packet *packet)
{
	const struct iphdr *iph = ip_hdr(packet->skb);
	struct flow *flow;

	if (packet_came_by_vrf(packet))
		return;
	packet->lasting = true;
	if (!packet_may_be_recalled(packet))
		return;
	flow = flow_find(packet);
	/* What is old moves to the first one free: it may be in the last, which any flow takes. */
	if (!flow || flow->to.until != (u32)jiffies)
		flow = flow_spare(packet);
	receiver_remember(&flow->to, packet);
	flow->remote = iph->saddr;
	flow->local = iph->daddr;
	flow->ports = packet_ports(packet);
	flow->iif = packet->iif;
}

/**
 * filter_recall() - does this packet belong to a flow just seen?
 * @packet: parsed; its @entry is filled in if so
 *
 * Return: whether it does.
 */
static bool filter_recall(struct filter_packet *packet)
{
	const struct flow *flow;

	if (!packet_may_be_recalled(packet))
		return false;
	flow = flow_find(packet);
	return flow && receiver_recall(&flow->to, packet);
}

/**
 * filter_revive_sock() - get hold of a recalled packet's socket
 * @packet: recalled; @sk is filled in if its socket is still there
 *
 * A socket on the kernel's chain for the port is alive, and as UDP sockets are
 * freed a grace period after they leave it, stays readable. The chain may lead
 * astray while a socket moves; then this one is not found, and looked up.
 *
 * Return: whether it is there.
 */
static bool filter_revive_sock(struct filter_packet *packet)
{
	const struct pflow_sock *entry = packet->entry;
	struct udp_hslot *slot = udp_hashslot(pflow_udp_table(packet->home), packet->home,
					      packet->local_port);
	unsigned int looked = 0;
	struct sock *sk;

	sk_for_each_rcu(sk, &slot->head) {
		if (sk == entry->sk && atomic64_read(&sk->sk_cookie) == entry->cookie) {
			packet->sk = sk;
			return true;
		}
		if (++looked == CHAIN_MOST)
			break;
	}
	return false;
}
