// SPDX-License-Identifier: GPL-2.0-only
/*
 * Driver: what is shed anyway is dropped before it costs a buffer.
 *
 * An early drop at the hook has cost its buffer and the way there, more than half of what softirqs
 * take for a packet. Where an administrator asks for it (packetflow xdp attach), a program of two
 * instructions runs in a device's driver (XDP) and asks here about each frame. The verdict
 * is the hook's: same receiver, same cut, same coin (judge.c).
 *
 * Whose a flow is, the hook tells (wire.c). A frame of a flow that it has not told of goes up.
 *
 * All else passes: what pf_filter leaves alone, and what a program or rule at the device's
 * ingress may redirect before it reaches the hook. A tag of a VLAN has to be in the frame, as a
 * program cannot see one that the card has taken off, or that was never put in. The sum of IPv4's
 * header is verified here, as the kernel verifies it only later.
 *
 * A program that is loaded holds the module, so what it calls is always there. @judging says
 * whether frames are judged.
 *
 * On PREEMPT_RT all passes, as nothing is remembered there.
 *
 * Context: softirq, RCU read side.
 */
#include <linux/bpf.h>
#include <linux/etherdevice.h>
#include <linux/filter.h>
#include <linux/if_vlan.h>
#include <net/rtnetlink.h>
#include <net/xdp.h>

#include "../common/compat/compat.h"
#include "../common/compat/driver.h"
#include "filter.h"
#include "wire.h"

#define TAGS_MOST	2

static bool judging;

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

/* The packet of a frame whose flow is known. */
static bool frame_recall(const struct wire *wire, struct filter_packet *packet,
			 const struct frame *frame)
{
	packet->net = dev_net(frame->dev);
	packet->v4 = wire->key.v4;
	packet->length = frame->length;
	packet->tos = frame->tos;
	packet->loopback = frame->dev->flags & IFF_LOOPBACK;
	packet->truesize = wire->truesize;
	/* A longer one takes no less. */
	packet->least = frame->length >= wire->length ? wire->truesize : SKB_TRUESIZE(0);
	return wire_recall(wire, packet);
}

/* What is passed has a mark, where the driver leaves a place for it that nobody uses. */
static void frame_mark(struct xdp_buff *xdp)
{
	void *mark = xdp->data - sizeof(judged_mark);

	if (xdp->data_meta != xdp->data ||
	    mark < xdp->data_hard_start + sizeof(struct xdp_frame))
		return;
	memcpy(mark, &judged_mark, sizeof(judged_mark));
	xdp->data_meta = mark;
}

/* Is this frame to be dropped? What cannot be judged here is left to the hook. */
static bool frame_judge(const struct wire *wire, const struct frame *frame, struct xdp_buff *xdp)
{
	struct filter_packet packet = { .packets = 1 };
	enum filter_outcome outcome;

	if (!frame_recall(wire, &packet, frame))
		return false;
	outcome = filter_judge(&packet);
	if (outcome < FILTER_PASS && !wire_holds(wire, packet.net))
		return false;
	if (filter_outcome_drops(&packet, outcome)) {
		filter_drop(&packet, outcome);
		return true;
	}
	if (outcome <= FILTER_PASS_EXEMPT)
		frame_mark(xdp);
	return false;
}

static noinline int frame_decide(struct xdp_buff *xdp)
{
	struct frame frame = { .at = xdp->data, .end = xdp->data_end, .dev = xdp->rxq->dev };
	struct wire_key key;
	struct wire *wire;

	/* With softirqs on, as in a test run of a program, what is remembered is not ours. */
	if (!READ_ONCE(judging) || !softirq_count() || xdp_buff_has_frags(xdp) ||
	    !frame_read(&frame, xdp->rxq->dev, &key))
		return XDP_PASS;
	wire = wire_show(&key);
	return wire && frame_judge(wire, &frame, xdp) ? XDP_DROP : XDP_PASS;
}

/**
 * pflow_xdp_judge() - is a frame to be dropped in the driver?
 * @ctx: it
 *
 * For XDP programs.
 *
 * Context: a device's poll, softirq. Return: %XDP_PASS or %XDP_DROP.
 */
__bpf_kfunc int pflow_xdp_judge(struct xdp_md *ctx)
{
	if (likely(!this_cpu_read(pflow_load.pressed)) || IS_ENABLED(CONFIG_PREEMPT_RT))
		return XDP_PASS;
	return frame_decide((struct xdp_buff *)ctx);
}

BTF_KFUNCS_START(driver_ids)
BTF_ID_FLAGS(func, pflow_xdp_judge)
BTF_KFUNCS_END(driver_ids)

static const struct btf_kfunc_id_set driver_set = {
	.owner = THIS_MODULE,
	.set = &driver_ids,
};

/**
 * filter_driver_register() - let XDP programs ask
 *
 * Once in the module's life; the kernel takes it back itself. Without type information of the
 * module (BTF), which some kernels' headers cannot make, there is nothing to be registered.
 *
 * Context: process. Return: 0 or a negative error.
 */
int filter_driver_register(void)
{
	if (!pflow_has_btf(THIS_MODULE))
		return 0;
	return register_btf_kfunc_id_set(BPF_PROG_TYPE_XDP, &driver_set);
}

/**
 * filter_driver_watch() - judge frames, or let all pass
 * @on: which
 *
 * Context: process. One that is being judged is done with after a grace period.
 */
void filter_driver_watch(bool on)
{
	WRITE_ONCE(judging, on);
}
