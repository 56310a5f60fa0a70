// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tracked: what the kernel's tracking of connections says of a flow.
 *
 * Where an address is translated, the table of connections says into which. A rule that changes
 * does not change it for a flow that is known; whoever wants that deletes its entry. So before a
 * packet is dropped ahead of its translation, the table is asked whether it still says what the
 * hook has seen.
 *
 * A look-up by the flow would cost more than the rest of the drop, most of it for the hash. So it
 * is remembered where in the table the entry was: its address, and its chain. The chain's end
 * tells its number. A look walks that chain, where it has mostly one or two entries to pass, and
 * follows no address but what it finds there. The memory of the entry may be another connection's
 * by then, so what it says is compared again. If the table has moved, nothing is found.
 *
 * Lifetimes: the table is freed a grace period after another one has taken its place. Entries
 * stay entries for as long (SLAB_TYPESAFE_BY_RCU). Tracking is a module of its own, which may not
 * be loaded. Its variables are taken while some namespace tracks, and given back.
 *
 * Context: softirq, RCU read side, unless said otherwise.
 */
#include "filter.h"
#include "wire.h"

#if IS_ENABLED(CONFIG_NF_CONNTRACK)
#include <linux/rculist_nulls.h>
#include <net/netfilter/nf_conntrack.h>
#include <net/netfilter/nf_conntrack_core.h>

/* Translated, or asked whether it is to be: a new connection of the same flow is asked again. */
#define ASKED_FOR_NAT	(IPS_NAT_MASK | IPS_DST_NAT_DONE)

#define CHAIN_LONGEST	16	/* entries; in a full table of the kernel's own size it is less */

/* Of tracking; NULL: nothing is tracked. */
static typeof(nf_conntrack_hash) *tracked_table;
static typeof(nf_conntrack_htable_size) *tracked_table_size;

static void key_from_tuple(const struct nf_conntrack_tuple *tuple, struct wire_key *key)
{
	key->v4 = tuple->src.l3num == NFPROTO_IPV4;
	if (key->v4)
		addresses_pack4(key->address, tuple->src.u3.ip, tuple->dst.u3.ip);
	else
		addresses_pack6(key->address, &tuple->src.u3.in6, &tuple->dst.u3.in6);
	key->ports = (u32)ntohs(tuple->src.u.udp.port) << 16 | ntohs(tuple->dst.u.udp.port);
}

static bool tuple_has_key(const struct nf_conntrack_tuple *tuple, const struct wire_key *key)
{
	bool v4 = tuple->src.l3num == NFPROTO_IPV4;
	u64 both;

	if (v4 != key->v4 ||
	    ntohs(tuple->src.u.udp.port) != key->ports >> 16 ||
	    ntohs(tuple->dst.u.udp.port) != (u16)key->ports)
		return false;
	if (!key->v4)
		return !memcmp(&tuple->src.u3.in6, &key->address[0], sizeof(struct in6_addr)) &&
		       !memcmp(&tuple->dst.u3.in6, &key->address[2], sizeof(struct in6_addr));
	addresses_pack4(&both, tuple->src.u3.ip, tuple->dst.u3.ip);
	return both == key->address[0];
}

/* A reply's source is the flow's destination. The flow's source may be translated later. */
static bool tuple_answers_key(const struct nf_conntrack_tuple *tuple, const struct wire_key *key)
{
	bool v4 = tuple->src.l3num == NFPROTO_IPV4;

	if (v4 != key->v4 ||
	    ntohs(tuple->src.u.udp.port) != (u16)key->ports)
		return false;
	if (!key->v4)
		return !memcmp(&tuple->src.u3.in6, &key->address[2], sizeof(struct in6_addr));
	return (__force u32)tuple->src.u3.ip == (u32)key->address[0];
}

/**
 * tracked_read_key() - the flow of a packet at the hook as it came from the wire
 * @packet: parsed
 * @key: filled in
 *
 * Return: whether its connection is tracked.
 */
static bool tracked_read_key(const struct filter_packet *packet, struct wire_key *key)
{
	enum ip_conntrack_info info;
	const struct nf_conn *ct = nf_ct_get(packet->skb, &info);

	if (!ct || nf_ct_protonum(ct) != IPPROTO_UDP)
		return false;
	key_from_tuple(&ct->tuplehash[CTINFO2DIR(info)].tuple, key);
	key->iif = packet->iif;
	return true;
}

/* The entry at that place, if there is one. */
static const struct nf_conntrack_tuple_hash *tracked_find(const struct tracked *at)
{
	/* Pairs with tracked_use(). */
	typeof(tracked_table) now = smp_load_acquire(&tracked_table);
	const struct hlist_nulls_node *node;
	unsigned int passed, size;

	if (!now)
		return NULL;
	size = READ_ONCE(*tracked_table_size);
	/* Another table is put in its place before its size is. */
	smp_rmb();
	if (READ_ONCE(*now) != at->chains || at->chain >= size)
		return NULL;
	node = rcu_dereference_raw(hlist_nulls_first_rcu(&at->chains[at->chain]));
	for (passed = 0; !is_a_nulls(node) && passed < CHAIN_LONGEST; passed++) {
		if (node == at->node)
			return container_of(node, struct nf_conntrack_tuple_hash, hnnode);
		node = rcu_dereference_raw(hlist_nulls_next_rcu(node));
	}
	return NULL;
}

/* Where a packet's connection is in the table, if it will be found there. */
static bool tracked_locate(const struct nf_conntrack_tuple_hash *entry, struct tracked *at)
{
	/* Pairs with tracked_use(). */
	typeof(tracked_table) now = smp_load_acquire(&tracked_table);
	const struct hlist_nulls_node *node;
	unsigned int passed = 0;

	if (!now)
		return false;
	at->chains = READ_ONCE(*now);
	for (node = &entry->hnnode; !is_a_nulls(node);
	     node = rcu_dereference_raw(hlist_nulls_next_rcu(node)))
		if (passed++ == CHAIN_LONGEST)
			return false;
	at->chain = get_nulls_value(node);
	at->node = &entry->hnnode;
	return tracked_find(at);
}

/**
 * tracked_remember() - where will the table tell of a packet's connection?
 * @skb: the packet's buffer, at the hook
 * @at: filled in; its @node is NULL where the table is not to be asked: the flow is not tracked, or
 *	it is new and nothing here translates addresses
 *
 * What is new is in the table when its first packet has been received. If that is never, as its
 * receiver's buffer is full, each packet begins a connection of its own. Where nothing translates
 * addresses, it is as if it were not tracked. Else the next one may be translated otherwise, as
 * where rules spread connections over several receivers.
 *
 * Return: false if that cannot be told, or the flow is in another table (zone).
 */
static bool tracked_remember(const struct sk_buff *skb, struct tracked *at)
{
	enum ip_conntrack_info info;
	const struct nf_conn *ct = nf_ct_get(skb, &info);

	at->node = NULL;
	if (!ct)
		return true;
	if (nf_ct_zone_id(nf_ct_zone(ct), CTINFO2DIR(info)) != NF_CT_DEFAULT_ZONE_ID)
		return false;
	if (!nf_ct_is_confirmed(ct))
		return !(READ_ONCE(ct->status) & ASKED_FOR_NAT);
	/*
	 * What has left the table keeps its pointer to the next one, which may be gone. What has
	 * not begun to leave has a next one that is there as long as RCU is read here.
	 */
	if (nf_ct_is_dying(ct))
		return false;
	return tracked_locate(&ct->tuplehash[CTINFO2DIR(info)], at);
}

/**
 * tracked_keeps_source() - will a forwarded packet arrive with the source that it has here?
 * @skb: its buffer, at the hook
 *
 * Of a new connection that is decided behind the hook, and may be at any time where addresses are
 * translated.
 *
 * Return: whether it surely will, as far as tracking knows.
 */
static bool tracked_keeps_source(const struct sk_buff *skb)
{
	enum ip_conntrack_info info;
	const struct nf_conn *ct = nf_ct_get(skb, &info);
	unsigned long status;

	if (!ct)
		return true;
	status = READ_ONCE(ct->status);
	if (CTINFO2DIR(info) == IP_CT_DIR_REPLY)
		return !(status & IPS_DST_NAT);
	if (nf_ct_is_confirmed(ct))
		return !(status & IPS_SRC_NAT);
	return !(status & ASKED_FOR_NAT);
}

/**
 * tracked_leads_to() - is a flow still translated so?
 * @at: where it was in the table
 * @net: namespace of its packets
 * @key: of it, as it comes from the wire
 * @seen: of it, as the hook saw it
 *
 * Return: whether a connection is there that says so.
 */
static bool tracked_leads_to(const struct tracked *at, const struct net *net,
			     const struct wire_key *key, const struct wire_key *seen)
{
	const struct nf_conntrack_tuple_hash *found = tracked_find(at);
	const struct nf_conn *ct;

	if (!found)
		return false;
	ct = nf_ct_tuplehash_to_ctrack(found);
	if (!tuple_has_key(&found->tuple, key) ||
	    nf_ct_net(ct) != net || nf_ct_protonum(ct) != IPPROTO_UDP ||
	    !nf_ct_is_confirmed(ct) || nf_ct_is_expired(ct) || nf_ct_is_dying(ct) ||
	    nf_ct_zone_id(nf_ct_zone(ct), NF_CT_DIRECTION(found)) != NF_CT_DEFAULT_ZONE_ID)
		return false;
	return tuple_answers_key(&ct->tuplehash[!NF_CT_DIRECTION(found)].tuple, seen);
}

/**
 * tracked_use() - may the table be asked?
 * @on: whether any namespace tracks
 *
 * While it may, its module stays loaded.
 *
 * Context: process, may sleep.
 */
static void tracked_use(bool on)
{
	if (on == !!tracked_table)
		return;
	if (on) {
		tracked_table_size = symbol_get(nf_conntrack_htable_size);
		if (!tracked_table_size)
			return;
		/* Pairs with who takes the table: its size is there. */
		smp_store_release(&tracked_table, symbol_get(nf_conntrack_hash));
		if (!tracked_table)
			symbol_put(nf_conntrack_htable_size);
		return;
	}
	WRITE_ONCE(tracked_table, NULL);
	synchronize_net();
	symbol_put(nf_conntrack_hash);
	symbol_put(nf_conntrack_htable_size);
}
#else
static bool tracked_read_key(const struct filter_packet *packet, struct wire_key *key)
{
	return false;
}

static bool tracked_remember(const struct sk_buff *skb, struct tracked *at)
{
	at->node = NULL;
	return true;
}

static bool tracked_keeps_source(const struct sk_buff *skb)
{
	return true;
}

static bool tracked_leads_to(const struct tracked *at, const struct net *net,
			     const struct wire_key *key, const struct wire_key *seen)
{
	return false;
}

static void tracked_use(bool on)
{
}
#endif
