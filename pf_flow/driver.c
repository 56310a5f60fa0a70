// SPDX-License-Identifier: GPL-2.0-only
/*
 * Driver: what is dropped because its flow's queue is full is dropped before it costs a buffer.
 *
 * Where an administrator asks for it (packetflow xdp attach), a program in a device's driver (XDP)
 * asks here about each frame. Whose it is cannot be known there. The hooks tell (recall.c), as they
 * tell the early hook: the same packets of the wire had the same fate in this jiffy. The driver
 * sees no marks, so it drops only what came to the early hook without one. It is ahead of raw
 * rules: one that gives some packets of a flow another port or address is not seen (design.md).
 *
 * What is not plain UDP or TCP passes (common/frames/frame.c), and all on PREEMPT_RT, where nothing
 * is remembered.
 *
 * A program that is loaded holds the module, so what it calls is always there. A table in force
 * holds its flows. Its namespace is there, as the device is.
 *
 * Context: softirq; RCU is taken here.
 */
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <net/xdp.h>

#include "../common/compat/compat.h"
#include "../common/compat/driver.h"
#include "../common/frame.h"
#include "flow.h"

/* What UDP's and TCP's headers both begin with. */
struct frame_ports {
	__be16 source;
	__be16 destination;
};

/* Past the network header. Return: whether a protocol with ports is next. */
static bool frame_read_ip(struct pflow_frame *frame, __be16 type, struct flow_key *key)
{
	if (type == htons(ETH_P_IP)) {
		const struct iphdr *ip = pflow_frame_take_ip4(frame);

		if (!ip)
			return false;
		key->family = NFPROTO_IPV4;
		key->source[0] = ip->saddr;
		key->destination[0] = ip->daddr;
		key->protocol = ip->protocol;
	} else if (type == htons(ETH_P_IPV6)) {
		const struct ipv6hdr *ip = pflow_frame_take_ip6(frame);

		if (!ip)
			return false;
		key->family = NFPROTO_IPV6;
		memcpy(key->source, &ip->saddr, sizeof(key->source));
		memcpy(key->destination, &ip->daddr, sizeof(key->destination));
		key->protocol = ip->nexthdr;
	}
	return key->protocol == IPPROTO_UDP || key->protocol == IPPROTO_TCP;
}

/* What the early hook would read of its packet, see flow_key_set(). */
static bool frame_read(struct pflow_frame *frame, struct flow_key *key)
{
	__be16 type = pflow_frame_open(frame);
	const struct frame_ports *ports;

	if (!type || !frame_read_ip(frame, type, key))
		return false;
	ports = pflow_frame_take(frame, sizeof(*ports));
	if (!ports)
		return false;
	key->iif = frame->dev->ifindex;
	key->sport = ports->source;
	key->dport = ports->destination;
	return true;
}

/* Whose the frame is, if that flow's queue is full. Under RCU. */
static struct flow *frame_full_flow(struct pflow_frame *frame)
{
	const struct flow_table *table;
	struct flow_key key = {};

	if (!frame_read(frame, &key))
		return NULL;
	table = rcu_dereference(flow_net_of(dev_net(frame->dev))->table);
	return table ? flow_recall_full_of(table, &key) : NULL;
}

static noinline int frame_decide(struct xdp_buff *xdp)
{
	struct pflow_frame frame = { .at = xdp->data, .end = xdp->data_end, .dev = xdp->rxq->dev };
	struct flow *flow;

	/* With softirqs on, as in a test run before 6.3, nothing that is remembered is ours. */
	if (!softirq_count() || xdp_buff_has_frags(xdp))
		return XDP_PASS;
	rcu_read_lock();	/* some drivers rely on softirqs being off */
	flow = frame_full_flow(&frame);
	if (flow)
		atomic64_inc(&flow->early);
	rcu_read_unlock();
	return flow ? XDP_DROP : XDP_PASS;
}

/**
 * pflow_xdp_judge_flow() - is a frame to be dropped in the driver, as its flow's queue is full?
 * @ctx: it
 *
 * For XDP programs.
 *
 * Context: a device's poll, softirq. Return: %XDP_PASS or %XDP_DROP.
 */
__bpf_kfunc int pflow_xdp_judge_flow(struct xdp_md *ctx)
{
	return flow_any_full() ? frame_decide((struct xdp_buff *)ctx) : XDP_PASS;
}

BTF_KFUNCS_START(driver_ids)
BTF_ID_FLAGS(func, pflow_xdp_judge_flow)
BTF_KFUNCS_END(driver_ids)

static const struct btf_kfunc_id_set driver_set = {
	.owner = THIS_MODULE,
	.set = &driver_ids,
};

/**
 * flow_driver_register() - let XDP programs ask
 *
 * Once in the module's life; the kernel takes it back itself.
 *
 * Context: process. Return: 0 or a negative error.
 */
int flow_driver_register(void)
{
	return pflow_driver_register(&driver_set);
}
