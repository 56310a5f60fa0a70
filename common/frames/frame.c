// SPDX-License-Identifier: GPL-2.0-only
/*
 * Frame: what a frame in the driver says, and which device the network layer would see it come by.
 *
 * It is read as the network layer would read it. The sum of IPv4's header is verified, too, as the
 * kernel does that only later. What is not plain is left to the hooks: fragments, options,
 * extension headers, what is longer than a packet of its device, and what a program or rule at the
 * device's ingress may redirect. A tag of a VLAN has to be in the frame. A program cannot see one
 * that the card has taken off, or that was never put in.
 *
 * Context: softirq, RCU read side.
 */
#include <linux/etherdevice.h>
#include <linux/export.h>
#include <linux/if_vlan.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <net/ip.h>
#include <net/rtnetlink.h>

#include "../compat/compat.h"
#include "../compat/driver.h"
#include "../frame.h"

#define TAGS_MOST	2

/* Of which one is a port. NULL: it goes just now, or somebody looks at what comes there. */
static struct net_device *device_master(struct net_device *dev)
{
	dev = netdev_master_upper_dev_get_rcu(dev);
	return dev && !pflow_ingress_used(dev) ? dev : NULL;
}

/* The device by which the network layer sees a frame of this one; NULL if that is not sure. */
static struct net_device *device_uppermost(struct net_device *dev)
{
	while (dev && (netif_is_lag_port(dev) || netif_is_bridge_port(dev)))
		dev = device_master(dev);
	return dev;
}

/* The VLAN of that tag, above the device or above what it is a port of. */
static struct net_device *device_of_tag(struct net_device *dev, __be16 type, u16 id)
{
	struct net_device *found;

	/* It looks above ports itself. What is in between has its turn in this loop. */
	while (dev && !pflow_ingress_used(dev)) {
		found = __vlan_find_dev_deep_rcu(dev, type, id);
		if (found && vlan_dev_priv(found)->real_dev == dev)
			return found;
		if (!(netif_is_lag_port(dev) || netif_is_bridge_port(dev)))
			return NULL;
		dev = device_master(dev);
	}
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

/* A bridge that filters VLANs takes what has no tag for one of them: that of its port. */
static bool tag_may_be_added(struct net_device *dev)
{
	return netif_is_bridge_master(dev) && device_has_vlans(dev);
}

/* Past the tags; 0 if it is not sure where it goes. */
static __be16 frame_type(struct pflow_frame *frame)
{
	const struct ethhdr *eth = pflow_frame_take(frame, sizeof(*eth));
	struct net_device *by = frame->dev;
	unsigned int tags = 0;
	__be16 type;

	if (!eth)
		return 0;
	for (type = eth->h_proto; eth_type_vlan(type); tags++) {
		const struct vlan_hdr *tag = pflow_frame_take(frame, sizeof(*tag));

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
	    (!tags && (tag_may_be_hidden(by, frame->dev) || tag_may_be_added(frame->dev))))
		return 0;
	return type;
}

/**
 * pflow_frame_open() - read a frame up to its network header
 * @frame: it, from its first byte on, and the device whose driver has it; its @dev is filled in
 *
 * Context: softirq, RCU read side. Return: type of Ethernet's; 0: it is not sure what the network
 * layer will make of it.
 */
__be16 pflow_frame_open(struct pflow_frame *frame)
{
	const struct net_device *by = frame->dev;
	__be16 type;

	if (by->features & (NETIF_F_HW_VLAN_CTAG_RX | NETIF_F_HW_VLAN_STAG_RX))
		return 0;
	if (pflow_ingress_used(by))
		return 0;
	type = frame_type(frame);
	/* Longer than a packet of this device can be, it is several (a tap's, or after GRO). */
	if (!type || frame->end - frame->at > READ_ONCE(frame->dev->mtu))
		return 0;
	if (frame->dev != by && pflow_ingress_used(frame->dev))
		return 0;
	return type;
}
EXPORT_SYMBOL_GPL(pflow_frame_open);

/**
 * pflow_frame_take_ip4() - read IPv4's header, as ip_rcv() looks at it
 * @frame: it, at this header; it ends where its packet does then
 *
 * Context: softirq, RCU read side. Return: the header of a whole packet without options; NULL: it
 * is none.
 */
const struct iphdr *pflow_frame_take_ip4(struct pflow_frame *frame)
{
	const struct iphdr *iph = pflow_frame_take(frame, sizeof(*iph));
	unsigned int length;

	if (!iph || iph->version != 4 || iph->ihl != sizeof(*iph) / 4 || ip_is_fragment(iph) ||
	    ip_fast_csum(iph, sizeof(*iph) / 4))
		return NULL;
	length = ntohs(iph->tot_len);
	if (length < sizeof(*iph) || length - sizeof(*iph) > frame->end - frame->at)
		return NULL;
	frame->end = frame->at + length - sizeof(*iph);
	return iph;
}
EXPORT_SYMBOL_GPL(pflow_frame_take_ip4);

/**
 * pflow_frame_take_ip6() - read IPv6's header, as ip6_rcv_core() looks at it
 * @frame: it, at this header; it ends where its packet does then
 *
 * Context: softirq, RCU read side. Return: the header; NULL: there is none, or the packet is not
 * whole, or a jumbogram.
 */
const struct ipv6hdr *pflow_frame_take_ip6(struct pflow_frame *frame)
{
	const struct ipv6hdr *ip6h = pflow_frame_take(frame, sizeof(*ip6h));
	unsigned int length;

	if (!ip6h || ip6h->version != 6)
		return NULL;
	length = ntohs(ip6h->payload_len);
	if (!length || length > frame->end - frame->at)
		return NULL;
	frame->end = frame->at + length;
	return ip6h;
}
EXPORT_SYMBOL_GPL(pflow_frame_take_ip6);
