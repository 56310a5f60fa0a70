// SPDX-License-Identifier: GPL-2.0-only
/*
 * Receiver: how important is the receiver of a packet, and of which control group?
 *
 * It is asked of packets that would have to wait or be dropped, and of all where a flow is matched
 * by one of both. The answer is remembered for the rest of the jiffy, on each CPU. So a flood costs
 * a look-up of its socket once a jiffy.
 *
 * A socket is of the control group in which it was made, as for the rest of the kernel; what a
 * listening socket accepts is of its. Groups are nested: of those in which it is the deepest counts
 * that some flow names.
 *
 * The socket is looked up as the protocol will do: for UDP whichever would get the packet, if the
 * address is this host's; for TCP a connection that is there. What only begins one may wait. Of
 * sockets that share a port the one is asked that would get this packet.
 *
 * Context: softirqs off, RCU read side, unless said otherwise. With PREEMPT_RT nothing is
 * remembered, see recall.c.
 */
#include <linux/cgroup.h>
#include <linux/jiffies.h>
#include <linux/percpu.h>
#include <net/addrconf.h>
#include <net/inet_hashtables.h>
#include <net/l3mdev.h>
#include <net/route.h>

#include "../common/compat/compat.h"
#include "flow.h"

/* Of the last packets: what was answered. */
struct answer {
	struct flow_key key;
	u64 number;	/* of the table */
	u32 at;
	struct flow_receiver receiver;
};

static struct answer __percpu *answers;

static const struct in6_addr *as_in6(const __be32 *address)
{
	return (const struct in6_addr *)address;
}

static bool key_is_local(const struct flow_key *key, const struct sk_buff *skb, struct net *net)
{
	if (key->family == NFPROTO_IPV4)
		return inet_addr_type_dev_table(net, skb->dev, key->destination[0]) == RTN_LOCAL;
#if IS_ENABLED(CONFIG_IPV6)
	return ipv6_chk_addr(net, as_in6(key->destination), skb->dev, 0);
#else
	return false;
#endif
}

/* It stays for as long as RCU's read side lasts. */
static struct sock *key_find_udp(const struct flow_key *key, const struct sk_buff *skb,
				 struct net *net)
{
	if (key->family == NFPROTO_IPV4)
		return pflow_udp4_lookup(net, key->source[0], key->sport, key->destination[0],
					 key->dport, pflow_skb_iif(skb), 0);
	return pflow_udp6_lookup(net, as_in6(key->source), key->sport, as_in6(key->destination),
				 key->dport, pflow_skb_iif(skb), 0);
}

/* With a reference. */
static struct sock *key_find_tcp(const struct flow_key *key, const struct sk_buff *skb,
				 struct net *net)
{
	if (key->family == NFPROTO_IPV4)
		return pflow_tcp4_lookup(net, key->source[0], key->sport, key->destination[0],
					 key->dport, pflow_skb_iif(skb), 0);
	return pflow_tcp6_lookup(net, as_in6(key->source), key->sport, as_in6(key->destination),
				 key->dport, pflow_skb_iif(skb), 0);
}

/* The socket, and with it its group, stays meanwhile. */
static u64 sock_cgroup(const struct flow_table *table, struct sock *sk)
{
#if IS_ENABLED(CONFIG_SOCK_CGROUP_DATA)
	struct cgroup *cgroup;

	if (!table->cgroups)
		return 0;
	for (cgroup = sock_cgroup_ptr(&sk->sk_cgrp_data); cgroup; cgroup = cgroup_parent(cgroup))
		if (flow_table_has_cgroup(table, cgroup_id(cgroup)))
			return cgroup_id(cgroup);
#endif
	return 0;
}

static struct flow_receiver sock_receiver(const struct flow_table *table, struct sock *sk)
{
	struct flow_receiver receiver = {};
	const struct pflow_sock *entry;

	/* Those that are half open or wait for the end have no cookie to ask for. */
	if (!sk || !sk_fullsock(sk))
		return receiver;
	entry = pflow_sock_find(sk);
	if (entry)
		receiver.rank = FLOW_RANK_OF(READ_ONCE(entry->rank));
	receiver.cgroup = sock_cgroup(table, sk);
	return receiver;
}

static struct flow_receiver key_receiver(const struct flow_table *table,
					 const struct flow_key *key, const struct sk_buff *skb,
					 struct net *net)
{
	struct flow_receiver receiver;
	struct sock *sk = NULL;

	/* In a VRF other sockets count, and its device is not known yet. */
	if (netif_is_l3_slave(skb->dev))
		return sock_receiver(table, NULL);
	if (key->protocol == IPPROTO_UDP && key_is_local(key, skb, net))
		return sock_receiver(table, key_find_udp(key, skb, net));
	if (key->protocol == IPPROTO_TCP)
		sk = key_find_tcp(key, skb, net);
	receiver = sock_receiver(table, sk);
	if (sk)
		sock_gen_put(sk);
	return receiver;
}

/**
 * flow_receiver_of() - who receives a packet?
 * @table: in force
 * @key: what it says, nothing of its receiver
 * @skb: it, at its last hook
 * @net: of the hook
 *
 * Return: what is known; nothing, as of what is forwarded: zeros.
 */
struct flow_receiver flow_receiver_of(const struct flow_table *table, const struct flow_key *key,
				      const struct sk_buff *skb, struct net *net)
{
	struct answer *answer;

	if (!key->dport)
		return (struct flow_receiver) {};
	if (IS_ENABLED(CONFIG_PREEMPT_RT))
		return key_receiver(table, key, skb, net);
	answer = this_cpu_ptr(answers) + flow_key_slot(key);
	if (answer->at == (u32)jiffies && answer->number == table->number &&
	    flow_key_same(&answer->key, key))
		return answer->receiver;
	answer->key = *key;
	answer->number = table->number;
	answer->at = (u32)jiffies;
	answer->receiver = key_receiver(table, key, skb, net);
	return answer->receiver;
}

/**
 * flow_receiver_setup() - get the memory for answers
 *
 * Context: process, may sleep. Return: 0 or -ENOMEM.
 */
int flow_receiver_setup(void)
{
	answers = __alloc_percpu(FLOW_SLOTS * sizeof(*answers), __alignof__(*answers));
	return answers ? 0 : -ENOMEM;
}

/**
 * flow_receiver_teardown() - give it back
 *
 * Context: process; no packet is in a hook.
 */
void flow_receiver_teardown(void)
{
	free_percpu(answers);
}
