// SPDX-License-Identifier: GPL-2.0-only
/*
 * Urgent: is a packet for a receiver of a real-time or deadline class?
 *
 * It is asked of packets that would have to wait or be dropped, and the answer is remembered for
 * the rest of the jiffy, on each CPU. So a flood costs a look-up of its socket once a jiffy.
 *
 * The socket is looked up as the protocol will do: for UDP whichever would get the packet, if the
 * address is this host's; for TCP a connection that is there. What only begins one may wait. Of
 * sockets that share a port the one is asked that would get this packet.
 *
 * Context: softirqs off, RCU read side, unless said otherwise. With PREEMPT_RT nothing is
 * remembered, see recall.c.
 */
#include <linux/jhash.h>
#include <linux/jiffies.h>
#include <linux/percpu.h>
#include <net/addrconf.h>
#include <net/inet_hashtables.h>
#include <net/l3mdev.h>
#include <net/route.h>

#include "../common/compat/compat.h"
#include "flow.h"

#define SLOTS	64

/* Of the last packets: what was answered. */
struct answer {
	struct flow_key key;
	const struct net *net;	/* only compared */
	u32 at;
	bool urgent;
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

static bool sock_is_urgent(const struct sock *sk)
{
	const struct pflow_sock *entry = sk ? pflow_sock_find(sk) : NULL;

	return entry && READ_ONCE(entry->rank) > PFLOW_RANK_RT_BASE;
}

static bool key_is_urgent(const struct flow_key *key, const struct sk_buff *skb, struct net *net)
{
	struct sock *sk;
	bool urgent;

	/* In a VRF other sockets count, and its device is not known yet. */
	if (netif_is_l3_slave(skb->dev))
		return false;
	if (key->protocol == IPPROTO_UDP)
		return key_is_local(key, skb, net) &&
		       sock_is_urgent(key_find_udp(key, skb, net));
	if (key->protocol != IPPROTO_TCP)
		return false;
	sk = key_find_tcp(key, skb, net);
	if (!sk)
		return false;
	/* No entry is ever one of those that are half open or wait for the end. */
	urgent = sk_fullsock(sk) && sock_is_urgent(sk);
	sock_gen_put(sk);
	return urgent;
}

/**
 * flow_urgent() - is a packet for a real-time receiver?
 * @key: what it says
 * @skb: it, at its last hook
 * @net: of the hook
 *
 * Return: whether it surely is.
 */
bool flow_urgent(const struct flow_key *key, const struct sk_buff *skb, struct net *net)
{
	struct answer *answer;

	if (!key->dport)
		return false;
	if (IS_ENABLED(CONFIG_PREEMPT_RT))
		return key_is_urgent(key, skb, net);
	answer = this_cpu_ptr(answers) + jhash2((const u32 *)key, sizeof(*key) / sizeof(u32), 0) %
		 SLOTS;
	if (answer->at == (u32)jiffies && answer->net == net &&
	    !memcmp(&answer->key, key, sizeof(*key)))
		return answer->urgent;
	answer->key = *key;
	answer->net = net;
	answer->at = (u32)jiffies;
	answer->urgent = key_is_urgent(key, skb, net);
	return answer->urgent;
}

/**
 * flow_urgent_setup() - get the memory for answers
 *
 * Context: process, may sleep. Return: 0 or -ENOMEM.
 */
int flow_urgent_setup(void)
{
	answers = __alloc_percpu(SLOTS * sizeof(*answers), __alignof__(*answers));
	return answers ? 0 : -ENOMEM;
}

/**
 * flow_urgent_teardown() - give it back
 *
 * Context: process; no packet is in a hook.
 */
void flow_urgent_teardown(void)
{
	free_percpu(answers);
}
