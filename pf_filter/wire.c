// SPDX-License-Identifier: GPL-2.0-only
/*
 * Wire: flows as the frames of a device show them, and whose they are.
 *
 * A driver that asks about its frames (driver.c) needs to be told whose a flow is. Only the hook
 * finds that out. What the hook found holds for the rest of the jiffy, as in recall.c. It holds for
 * a flow that the driver has shown before. The flow is known by its addresses and ports before
 * translation. Its device must lead to the one where the hook met it. So in each jiffy the first
 * packet of a flow goes up.
 *
 * What was judged in the driver and passed has a mark in front of its frame (XDP's metadata), so
 * that it is not judged again, on whatever CPU the hook meets it. If a driver leaves no room for
 * the mark, its packets are judged twice. The cut then settles lower, because it follows the
 * harm. Where the hook runs on other CPUs than the driver (RPS), nothing is told, and nothing
 * dropped there.
 *
 * Slots are this CPU's own and used with softirqs off, as recall.c's.
 *
 * Context: softirq, RCU read side.
 */
#include <linux/hash.h>
#include <linux/random.h>
#include <net/netfilter/nf_conntrack.h>

#include "../common/compat/compat.h"
#include "filter.h"

#define WIRE_BITS	7
#define SHOWN_FOR	2	/* jiffies until the hook has met what a driver showed */

/**
 * struct wire_key - a flow as frames show it
 * @address: source and destination; IPv4's both in the first word, the others are not used then
 * @ports: source and destination port
 * @iif: device by which the hook would see it
 * @v4: by IPv4
 */
struct wire_key {
	u64 address[4];
	u32 ports;
	u32 iif;
	bool v4;
};

/**
 * struct wire - what is kept of a flow
 * @key: of it
 * @to: whose it is, by the hook
 * @local_port: destination port, as the hook sees it
 * @remote_port: source port, likewise
 * @length: of the packet by which that was told
 * @truesize: what that took of a buffer
 */
struct wire {
	struct wire_key key;
	u16 local_port;
	u16 remote_port;
	u16 length;
	u32 truesize;
	struct receiver to;
};

/* Too many for a module's own. */
static struct wire __percpu *wires;
static DEFINE_PER_CPU(u32, frames_at);	/* jiffies when the driver last showed any */

static void wire_addresses4(struct wire_key *key, __be32 remote, __be32 local)
{
	key->address[0] = (u64)(__force u32)remote << 32 | (__force u32)local;
	key->v4 = true;
}

static void wire_addresses6(struct wire_key *key, const struct in6_addr *remote,
			    const struct in6_addr *local)
{
	memcpy(&key->address[0], remote, sizeof(*remote));
	memcpy(&key->address[2], local, sizeof(*local));
	key->v4 = false;
}

static struct wire *wire_slot(const struct wire_key *key)
{
	u32 hash = (key->address[0] >> 32) ^ key->ports;

	if (!key->v4)
		hash ^= key->address[1] ^ key->address[1] >> 32;
	return this_cpu_ptr(wires) + hash_32(hash, WIRE_BITS);
}

static bool wire_matches(const struct wire *wire, const struct wire_key *key)
{
	const struct wire_key *known = &wire->key;

	if (known->address[0] != key->address[0] || known->ports != key->ports ||
	    known->iif != key->iif || known->v4 != key->v4)
		return false;
	return key->v4 || !memcmp(&known->address[1], &key->address[1], 3 * sizeof(u64));
}

/* The flow of a packet at the hook as it came on the wire, before it was translated. */
static bool wire_read_key(const struct filter_packet *packet, struct wire_key *key)
{
	const struct sk_buff *skb = packet->skb;

	key->iif = skb->skb_iif;
#if IS_ENABLED(CONFIG_NF_CONNTRACK)
	{
		enum ip_conntrack_info info;
		const struct nf_conn *ct = nf_ct_get(skb, &info);

		if (ct) {
			const struct nf_conntrack_tuple *tuple =
				&ct->tuplehash[CTINFO2DIR(info)].tuple;

			if (packet->v4)
				wire_addresses4(key, tuple->src.u3.ip, tuple->dst.u3.ip);
			else
				wire_addresses6(key, &tuple->src.u3.in6, &tuple->dst.u3.in6);
			key->ports = (u32)ntohs(tuple->src.u.udp.port) << 16 |
				      ntohs(tuple->dst.u.udp.port);
			/* An error message carries another flow's. */
			return nf_ct_protonum(ct) == IPPROTO_UDP;
		}
	}
#endif
	if (packet->v4)
		wire_addresses4(key, ip_hdr(skb)->saddr, ip_hdr(skb)->daddr);
	else
		wire_addresses6(key, &ipv6_hdr(skb)->saddr, &ipv6_hdr(skb)->daddr);
	key->ports = (u32)packet->remote_port << 16 | packet->local_port;
	return true;
}

/* Its slot, if the driver of this CPU's device has shown it. */
static noinline struct wire *wire_find(const struct filter_packet *packet)
{
	struct wire_key key;
	struct wire *wire;

	if (!wire_read_key(packet, &key))
		return NULL;
	wire = wire_slot(&key);
	return wire_matches(wire, &key) ? wire : NULL;
}

/**
 * filter_find_wire() - has a driver shown this packet's flow?
 * @packet: parsed
 *
 * Return: what is kept of it, or NULL.
 */
static struct wire *filter_find_wire(const struct filter_packet *packet)
{
	if (likely((u32)jiffies - this_cpu_read(frames_at) > SHOWN_FOR))
		return NULL;
	return wire_find(packet);
}

static u64 judged_mark;	/* a number that no other program's is */

/**
 * filter_was_judged() - was this packet judged in the driver?
 * @skb: its buffer
 *
 * Return: whether it was.
 */
static bool filter_was_judged(const struct sk_buff *skb)
{
	return unlikely(skb_metadata_len(skb) == sizeof(judged_mark)) &&
	       !memcmp(skb_metadata_end(skb) - sizeof(judged_mark), &judged_mark,
		       sizeof(judged_mark));
}

/**
 * filter_teach_driver() - tell the driver whose a flow is, for the rest of the jiffy
 * @wire: of the flow; NULL: not shown
 * @packet: one of it, classified
 */
static void filter_teach_driver(struct wire *wire, const struct filter_packet *packet)
{
	if (!wire || !packet->lasting)
		return;
	receiver_remember(&wire->to, packet);
	wire->local_port = packet->local_port;
	wire->remote_port = packet->remote_port;
	wire->length = packet->length;
	wire->truesize = packet->truesize;
}

static int wires_setup(void)
{
	int cpu;

	judged_mark = get_random_u64();
	wires = __alloc_percpu(sizeof(struct wire) << WIRE_BITS, __alignof__(struct wire));
	if (!wires)
		return -ENOMEM;
	for_each_possible_cpu(cpu)
		per_cpu(frames_at, cpu) = pflow_stamp_past(SHOWN_FOR);
	return 0;
}

static void wires_teardown(void)
{
	free_percpu(wires);
}
