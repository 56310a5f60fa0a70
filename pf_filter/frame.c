// SPDX-License-Identifier: GPL-2.0-only
/*
 * Frame: the flow of a frame in the driver, which has no buffer yet.
 *
 * It is read as the network layer would read it. The sum of IPv4's header is verified, too, as the
 * kernel does that only later. What is not plain has no flow here: fragments, options, extension
 * headers, what is longer than a packet of its device, and what a program or rule at the
 * device's ingress may redirect. A tag of a VLAN has to be in the frame. A program cannot see one
 * that the card has taken off, or that was never put in.
 *
 * Frames of one flow differ in little. So how the last one looked is kept with its flow, for
 * the rest of the jiffy (struct wire_shape). One that looks like it takes half as long to read.
 * This is for IPv4 without tags, by a device that is not part of a bond or bridge.
 *
 * Context: softirq, RCU read side.
 */
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <net/rtnetlink.h>
#include <net/xdp.h>

#include "../common/compat/compat.h"
#include "../common/compat/driver.h"
#include "filter.h"
#include "wire.h"

#define TAGS_MOST	2

/* The device that the hook would see a frame of this device come by; NULL if that is not sure. */
static struct net_device *device_uppermost(struct net_device *dev)
{
	while (netif_is_lag_port(dev) || netif_is_bridge_port(dev)) {
		dev = netdev_master_upper_dev_get_rcu(dev);
		if (!dev)
			return NULL;
	}
	return dev;
}

/* The VLAN of that tag, above the device or above what it is a port of. */
static struct net_device *device_of_tag(struct net_device *dev, __be16 type, u16 id)
{
	struct net_device *found;

	do {
		found = __vlan_find_dev_deep_rcu(dev, type, id);
		if (found || !(netif_is_lag_port(dev) || netif_is_bridge_port(dev)))
			return found;
		dev = netdev_master_upper_dev_get_rcu(dev);
	} while (dev);
	return NULL;
}

static bool device_has_vlans(struct net_device *dev)
{
	struct net_device *upper;
	struct list_head *at;

	netdev_for_each_upper_dev_rcu(dev, upper, at) {
		if (is_vlan_dev(upper))
			return true;
	}
	return false;
}

/*
 * May a tag of these devices' VLANs be beside the frame, where no program sees it? So it is where
 * the other end of a pair has put it there, whatever this end's settings say.
 */
static bool tag_may_be_hidden(struct net_device *by, struct net_device *dev)
{
	const struct rtnl_link_ops *kind = by->rtnl_link_ops;

	return kind && !strcmp(kind->kind, "veth") &&
	       (device_has_vlans(by) || device_has_vlans(dev));
}

/**
 * struct frame - what is read of a frame
 * @at: next to be read
 * @end: behind its last byte
 * @dev: device that it came by; of a VLAN where it is tagged so
 * @length: of its datagram
 * @tos: of IPv4
 */
struct frame {
	const void *at;
	const void *end;
	struct net_device *dev;
	u16 length;
	u8 tos;
};

static const void *frame_take(struct frame *frame, unsigned int length)
{
	const void *at = frame->at;

	if (frame->end - at < length)
		return NULL;
	frame->at += length;
	return at;
}

/* Past the tags; 0 if it is not sure where it goes. */
static __be16 frame_type(struct frame *frame)
{
	const struct ethhdr *eth = frame_take(frame, sizeof(*eth));
	struct net_device *by = frame->dev;
	unsigned int tags = 0;
	__be16 type;

	if (!eth)
		return 0;
	for (type = eth->h_proto; eth_type_vlan(type); tags++) {
		const struct vlan_hdr *tag = frame_take(frame, sizeof(*tag));

		if (!tag || tags == TAGS_MOST)
			return 0;
		frame->dev = device_of_tag(frame->dev, type,
					   ntohs(tag->h_vlan_TCI) & VLAN_VID_MASK);
		if (!frame->dev)
			return 0;
		type = tag->h_vlan_encapsulated_proto;
	}
	frame->dev = device_uppermost(frame->dev);
	if (!frame->dev || !ether_addr_equal(eth->h_dest, frame->dev->dev_addr) ||
	    (!tags && tag_may_be_hidden(by, frame->dev)))
		return 0;
	return type;
}

static __always_inline bool frame_read_udp(struct frame *frame, struct wire_key *key)
{
	const struct udphdr *uh = frame_take(frame, sizeof(*uh));

	if (!uh)
		return false;
	frame->length = ntohs(uh->len);
	key->ports = (u32)ntohs(uh->source) << 16 | ntohs(uh->dest);
	return frame->length >= sizeof(*uh) &&
	       frame->length - sizeof(*uh) <= frame->end - frame->at;
}

/* As ip_rcv() and packet_parse4() look at it. */
static bool frame_read4(struct frame *frame, struct wire_key *key)
{
	const struct iphdr *iph = frame_take(frame, sizeof(*iph));
	unsigned int length;

	if (!iph || iph->version != 4 || iph->ihl != sizeof(*iph) / 4 ||
	    iph->protocol != IPPROTO_UDP || ip_is_fragment(iph) ||
	    ip_fast_csum(iph, sizeof(*iph) / 4))
		return false;
	length = ntohs(iph->tot_len);
	if (length < sizeof(*iph) || length - sizeof(*iph) > frame->end - frame->at)
		return false;
	frame->end = frame->at + length - sizeof(*iph);
	addresses_pack4(key->address, iph->saddr, iph->daddr);
	frame->tos = iph->tos;
	key->v4 = true;
	return frame_read_udp(frame, key);
}

/* As ip6_rcv_core() and packet_parse6() look at it; a jumbogram has an extension header. */
static bool frame_read6(struct frame *frame, struct wire_key *key)
{
	const struct ipv6hdr *ip6h = frame_take(frame, sizeof(*ip6h));
	unsigned int length;

	if (!ip6h || ip6h->version != 6 || ip6h->nexthdr != IPPROTO_UDP)
		return false;
	length = ntohs(ip6h->payload_len);
	if (!length || length > frame->end - frame->at)
		return false;
	frame->end = frame->at + length;
	addresses_pack6(key->address, &ip6h->saddr, &ip6h->daddr);
	key->v4 = false;
	return frame_read_udp(frame, key);
}

/* The flow of a frame, if it is one that may be judged. */
static bool frame_read(struct frame *frame, const struct net_device *by, struct wire_key *key)
{
	__be16 type;

	if (by->features & (NETIF_F_HW_VLAN_CTAG_RX | NETIF_F_HW_VLAN_STAG_RX))
		return false;
	if (pflow_ingress_used(by))
		return false;
	type = frame_type(frame);
	/* Longer than a packet of this device can be, it is several (a tap's, or after GRO). */
	if (!type || frame->end - frame->at > READ_ONCE(frame->dev->mtu))
		return false;
	key->iif = frame->dev->ifindex;
	if (frame->dev != by && pflow_ingress_used(frame->dev))
		return false;
	if (type == htons(ETH_P_IP))
		return frame_read4(frame, key);
	return type == htons(ETH_P_IPV6) && frame_read6(frame, key);
}

/* What such a frame begins with. */
struct plain_headers {
	struct ethhdr eth;
	struct iphdr ip;
	struct udphdr udp;
} __packed;

static u32 header_plain(const struct iphdr *iph)
{
	return (u32)(__force u16)iph->frag_off << 16 | iph->protocol;
}

/* Of the words that differ from packet to packet. */
static u32 header_sum_differing(const struct iphdr *iph)
{
	return (__force u16)iph->tot_len + (__force u16)iph->id +
	       get_unaligned((const u16 *)&iph->ttl) + (__force u16)iph->check;
}

/* Of a frame that was read, and found to be of that wire's flow. */
static void frame_note_shape(const struct frame *frame, const struct xdp_buff *xdp,
			     struct wire *wire)
{
	const struct plain_headers *headers = xdp->data;
	struct wire_shape *shape = &wire->shape;

	/* The device of a tagged frame is the VLAN's, and that of a port its bridge or bond. */
	if (!wire->key.v4 || frame->dev != xdp->rxq->dev)
		return;
	shape->dev = frame->dev;
	memcpy(shape->begin, headers, sizeof(shape->begin));
	shape->most = ETH_HLEN + READ_ONCE(frame->dev->mtu);
	shape->until = wire->shown;
	shape->plain = header_plain(&headers->ip);
	/* All words add up to a multiple of U16_MAX, as the sum was right. This is the others'. */
	shape->sum = 4 * U16_MAX - header_sum_differing(&headers->ip);
}

static bool frame_has_shape(const struct plain_headers *headers, const struct wire_shape *shape)
{
	const struct iphdr *iph = &headers->ip;

	return !memcmp(headers, shape->begin, sizeof(shape->begin)) &&
	       header_plain(iph) == shape->plain &&
	       !csum_fold((__force __wsum)(shape->sum + header_sum_differing(iph)));
}

/*
 * The wire with these addresses and ports, if the frame is UDP over IPv4, which is not verified
 * yet. NULL: it is to be read.
 */
static struct wire *headers_find_wire(const struct plain_headers *headers)
{
	u32 ports = get_unaligned_be32(&headers->udp);
	struct wire *wire, *end;
	u64 addresses;

	addresses_pack4(&addresses, headers->ip.saddr, headers->ip.daddr);
	wire = wire_set_at(wire_hash4(addresses, ports));
	for (end = wire + WIRE_WAYS; wire < end; wire++)
		if (wire->key.address[0] == addresses && wire->key.ports == ports)
			return wire;
	return NULL;
}

/* The wire of a frame that looks like an earlier one of this jiffy. NULL: it is to be read. */
static struct wire *frame_recognise(struct frame *frame, const struct xdp_buff *xdp)
{
	const struct plain_headers *headers = xdp->data;
	unsigned int size = xdp->data_end - xdp->data, length;
	const struct wire_shape *shape;
	struct wire *wire;

	if (size < sizeof(*headers))
		return NULL;
	wire = headers_find_wire(headers);
	if (!wire)
		return NULL;
	shape = &wire->shape;
	if (shape->until != (u32)jiffies || shape->dev != frame->dev || size > shape->most ||
	    !frame_has_shape(headers, shape) || pflow_ingress_used(frame->dev))
		return NULL;
	length = ntohs(headers->ip.tot_len);
	frame->length = ntohs(headers->udp.len);
	frame->tos = headers->ip.tos;
	if (length > size - ETH_HLEN || frame->length < sizeof(headers->udp) ||
	    frame->length + sizeof(headers->ip) > length)
		return NULL;
	return wire;
}

/*
 * The same, by reading the frame. Out of line, as few come here: the compiler would clear for every
 * one what it clears here at the beginning.
 */
static noinline struct wire *frame_find_wire(struct frame *frame, const struct xdp_buff *xdp)
{
	struct wire_key key;
	struct wire *wire;

	if (!frame_read(frame, xdp->rxq->dev, &key))
		return NULL;
	wire = wire_show(&key);
	if (wire)
		frame_note_shape(frame, xdp, wire);
	return wire;
}
