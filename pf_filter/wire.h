/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a flow is known by, before and after its addresses are translated.
 */
#ifndef _PFLOW_FILTER_WIRE_H
#define _PFLOW_FILTER_WIRE_H

#include <linux/ip.h>
#include <linux/ipv6.h>

#include "filter.h"

/**
 * struct wire_key - a flow as it comes from the wire, or as the hook sees it
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
 * struct tracked - where a flow's connection was in the table
 * @chains: the table, an identity
 * @node: of the connection, an identity; NULL: the table is not to be asked
 * @chain: in which it is
 */
struct tracked {
	const struct hlist_nulls_head *chains;
	const struct hlist_nulls_node *node;
	u32 chain;
};

/**
 * struct wire_shape - how the frames of a flow look in the driver: Ethernet, IPv4, UDP
 * @dev: device that they come by, an identity
 * @begin: their first bytes, up to IPv4's type of service
 * @most: length of the longest that can be one packet, bytes
 * @until: jiffies in which this is known to be so
 * @plain: IPv4's word of fragments, and its protocol
 * @sum: what the words of IPv4's header that stay the same add to its sum, modulo %U16_MAX
 */
struct wire_shape {
	const struct net_device *dev;
	u64 begin[2];
	u32 most;
	u32 until;
	u32 plain;
	u32 sum;
};

static inline void addresses_pack4(u64 *address, __be32 remote, __be32 local)
{
	address[0] = (u64)(__force u32)remote << 32 | (__force u32)local;
}

static inline void addresses_pack6(u64 *address, const struct in6_addr *remote,
				   const struct in6_addr *local)
{
	memcpy(&address[0], remote, sizeof(*remote));
	memcpy(&address[2], local, sizeof(*local));
}

static inline bool addresses_same(const u64 *one, const u64 *other, bool v4)
{
	return one[0] == other[0] && (v4 || !memcmp(&one[1], &other[1], 3 * sizeof(u64)));
}

/* The flow of a packet as its headers say: not translated yet, or translated already. */
static inline void packet_read_key(const struct filter_packet *packet, struct wire_key *key)
{
	const struct sk_buff *skb = packet->skb;

	if (packet->v4)
		addresses_pack4(key->address, ip_hdr(skb)->saddr, ip_hdr(skb)->daddr);
	else
		addresses_pack6(key->address, &ipv6_hdr(skb)->saddr, &ipv6_hdr(skb)->daddr);
	key->ports = (u32)packet->remote_port << 16 | packet->local_port;
	key->iif = packet->iif;
	key->v4 = packet->v4;
}

#endif
