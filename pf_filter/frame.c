// SPDX-License-Identifier: GPL-2.0-only
/*
 * Frame: the flow of a frame in the driver, which has no buffer yet.
 *
 * It is read by common/frames/frame.c. What is not plain UDP has no flow here.
 *
 * Frames of one flow differ in little. So how the last one looked is kept with its flow, for
 * the rest of the jiffy (struct wire_shape). One that looks like it takes half as long to read.
 * This is for IPv4 without tags, by a device that is not part of a bond or bridge.
 *
 * Context: softirq, RCU read side.
 */
#include <linux/if_ether.h>
#include <net/xdp.h>

#include "../common/compat/compat.h"
#include "../common/compat/driver.h"
#include "../common/frame.h"
#include "filter.h"
#include "wire.h"

/**
 * struct frame - what is read of a frame
 * @in: what is left, and the device that it came by
 * @length: of its datagram
 * @tos: of IPv4
 */
struct frame {
	struct pflow_frame in;
	u16 length;
	u8 tos;
};

static __always_inline bool frame_read_udp(struct frame *frame, struct wire_key *key)
{
	const struct udphdr *uh = pflow_frame_take(&frame->in, sizeof(*uh));

	if (!uh)
		return false;
	frame->length = ntohs(uh->len);
	key->ports = (u32)ntohs(uh->source) << 16 | ntohs(uh->dest);
	return frame->length >= sizeof(*uh) &&
	       frame->length - sizeof(*uh) <= frame->in.end - frame->in.at;
}

/* As packet_parse4() looks at it. */
static bool frame_read4(struct frame *frame, struct wire_key *key)
{
	const struct iphdr *iph = pflow_frame_take_ip4(&frame->in);

	if (!iph || iph->protocol != IPPROTO_UDP)
		return false;
	addresses_pack4(key->address, iph->saddr, iph->daddr);
	frame->tos = iph->tos;
	key->v4 = true;
	return frame_read_udp(frame, key);
}

/* As packet_parse6() looks at it; a jumbogram has an extension header. */
static bool frame_read6(struct frame *frame, struct wire_key *key)
{
	const struct ipv6hdr *ip6h = pflow_frame_take_ip6(&frame->in);

	if (!ip6h || ip6h->nexthdr != IPPROTO_UDP)
		return false;
	addresses_pack6(key->address, &ip6h->saddr, &ip6h->daddr);
	key->v4 = false;
	return frame_read_udp(frame, key);
}

/* The flow of a frame, if it is one that may be judged. */
static bool frame_read(struct frame *frame, struct wire_key *key)
{
	__be16 type = pflow_frame_open(&frame->in);

	if (!type)
		return false;
	key->iif = frame->in.dev->ifindex;
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
	if (!wire->key.v4 || frame->in.dev != xdp->rxq->dev)
		return;
	shape->dev = frame->in.dev;
	memcpy(shape->begin, headers, sizeof(shape->begin));
	shape->most = ETH_HLEN + READ_ONCE(frame->in.dev->mtu);
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
	if (shape->until != (u32)jiffies || shape->dev != frame->in.dev || size > shape->most ||
	    !frame_has_shape(headers, shape) || pflow_ingress_used(frame->in.dev))
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

	if (!frame_read(frame, &key))
		return NULL;
	wire = wire_show(&key);
	if (wire)
		frame_note_shape(frame, xdp, wire);
	return wire;
}
