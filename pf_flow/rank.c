// SPDX-License-Identifier: GPL-2.0-only
/*
 * Rank: how important is the receiver of a packet?
 *
 * It is asked of packets that would have to wait or be dropped, and of all where a flow is matched
 * by it. The answer is remembered for the rest of the jiffy, on each CPU. So a flood costs a
 * look-up of its socket once a jiffy.
 *
 * The socket is looked up as the protocol will do: for UDP whichever would get the packet, if the
 * address is this host's; for TCP a connection that is there. What only begins one may wait. Of
 * sockets that share a port the one is asked that would get this packet.
 *
 * Context: softirqs off, RCU read side, unless said otherwise. With PREEMPT_RT nothing is
 * remembered, see recall.c.
 */
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
	const struct net *net;	/* only compared */
	u32 at;
	u8 rank;
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
					 key->dport, skb->skb_iif, 0);
	return pflow_udp6_lookup(net, as_in6(key->source), key->sport, as_in6(key->destination),
				 key->dport, skb->skb_iif, 0);
}

/* With a reference. */
static struct sock *key_find_tcp(const struct flow_key *key, const struct sk_buff *skb,
				 struct net *net)
{
	if (key->family == NFPROTO_IPV4)
		return pflow_tcp4_lookup(net, key->source[0], key->sport, key->destination[0],
					 key->dport, skb->skb_iif, 0);
	return pflow_tcp6_lookup(net, as_in6(key->source), key->sport, as_in6(key->destination),
				 key->dport, skb->skb_iif, 0);
}

static u8 sock_rank(const struct sock *sk)
{
	const struct pflow_sock *entry = sk ? pflow_sock_find(sk) : NULL;

	return entry ? FLOW_RANK_OF(READ_ONCE(entry->rank)) : 0;
}

static u8 key_rank(const struct flow_key *key, const struct sk_buff *skb, struct net *net)
{
	struct sock *sk;
	u8 rank;

	/* In a VRF other sockets count, and its device is not known yet. */
	if (netif_is_l3_slave(skb->dev))
		return 0;
	if (key->protocol == IPPROTO_UDP)
		return sock_rank(key_is_local(key, skb, net) ? key_find_udp(key, skb, net) : NULL);
	if (key->protocol != IPPROTO_TCP)
		return 0;
	sk = key_find_tcp(key, skb, net);
	if (!sk)
		return 0;
	/* Those that are half open or wait for the end have no cookie to ask for. */
	rank = sock_rank(sk_fullsock(sk) ? sk : NULL);
	sock_gen_put(sk);
	return rank;
}

/**
 * flow_rank() - how important is a packet's receiver?
 * @key: what it says
 * @skb: it, at its last hook
 * @net: of the hook
 *
 * Return: FLOW_RANK_OF() its rank; 0 where none is known, as for what is forwarded.
 */
u8 flow_rank(const struct flow_key *key, const struct sk_buff *skb, struct net *net)
{
	struct answer *answer;

	if (!key->dport)
		return 0;
	if (IS_ENABLED(CONFIG_PREEMPT_RT))
		return key_rank(key, skb, net);
	answer = this_cpu_ptr(answers) + flow_key_slot(key);
	if (answer->at == (u32)jiffies && answer->net == net &&
	    flow_key_same(&answer->key, key))
		return answer->rank;
	answer->key = *key;
	answer->net = net;
	answer->at = (u32)jiffies;
	answer->rank = key_rank(key, skb, net);
	return answer->rank;
}

/**
 * flow_rank_setup() - get the memory for answers
 *
 * Context: process, may sleep. Return: 0 or -ENOMEM.
 */
int flow_rank_setup(void)
{
	answers = __alloc_percpu(FLOW_SLOTS * sizeof(*answers), __alignof__(*answers));
	return answers ? 0 : -ENOMEM;
}

/**
 * flow_rank_teardown() - give it back
 *
 * Context: process; no packet is in a hook.
 */
void flow_rank_teardown(void)
{
	free_percpu(answers);
}
