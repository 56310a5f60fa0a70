// SPDX-License-Identifier: GPL-2.0-only
/*
 * Trail: in which namespace of this host the packets that it forwards end.
 *
 * A packet for a container passes the hook twice: in the namespace that has the card, where it
 * is forwarded, and in the container's, where all of the work is done. Whose it is can only be
 * told in the second, and should be known in the first. So now and then one that is forwarded
 * is *traced*: let through, and met again as the same buffer, with the same header. Its
 * destination then has a trail: what has the same destination will go the same way, and its
 * socket is looked up there, as for a packet of one's own. Nothing is known of how the container
 * is connected.
 *
 * A trail must never lead astray. Of two packets for one address the second goes where the first
 * went, as long as nothing changes in between and the way does not depend on where they come from.
 * So a trail ends in three cases: routes change in either namespace (the kernel drops its own
 * cached routes then, too); the address moves to another neighbour or bridge port; or one of the
 * namespaces goes. It is begun and followed in follow.c, where the host forwards the packet, and
 * confirmed in meet.c, where it is received. A packet does not confirm it if somebody else may
 * have received the same packet, or if it may be another one in the same buffer.
 *
 * Slots are taken by destination and written under their lock, which the packet path only tries;
 * where it fails, the packet is treated as if nothing were known. What ends trails holds the lock
 * of each that it may concern, softirqs off.
 *
 * There are fewer slots than destinations that a stranger may think of. So of the packets that
 * find no free slot, one in %GIVE_WAY takes a slot that is in use. A destination that is sent most
 * has a trail most of the time, and nobody can keep others from one by a few packets a second.
 *
 * Lifetimes: a trail's namespaces are followed under RCU. filter_trails_forget_net() is called
 * when a namespace has begun to go, and the kernel waits for a grace period before it is freed; a
 * namespace that has begun to is not taken into a trail.
 *
 * Context: softirq, RCU read side, unless said otherwise.
 */
#include <linux/etherdevice.h>
#include <linux/hash.h>
#include <linux/jhash.h>
#include <net/inet_ecn.h>
#include <net/ip6_fib.h>

#include "filter.h"

#define TRAIL_SETS_BITS	6
#define TRAIL_WAYS	4
#define TAG_BITS	4
#define CONFIRM_EVERY	(HZ / 25)	/* with so many tags, longer than a backlog takes */
#define TRAIL_LASTS	HZ
#define TRAIL_BEGINS	(HZ / 4)	/* so long a slot is left to who waits for the first */
#define GIVE_WAY	64

/**
 * struct tag - what a traced packet is known by
 * @skb: its buffer, an identity; NULL: none
 * @id: of IPv4
 * @check: of UDP
 * @length: likewise
 * @source: hash of its source address and port
 * @hops: that it may still make, this host's taken off
 */
struct tag {
	const struct sk_buff *skb;
	u32 source;
	__be16 id;
	__sum16 check;
	__be16 length;
	u8 hops;
};

/**
 * struct trail - where the packets for one destination go
 * @lock: of the rest
 * @key: hash of the destination; read without the lock, to find it
 * @outer: namespace that forwards them; NULL: this slot is free
 * @home: namespace that receives them; NULL: not known yet
 * @local: destination address; IPv4 as mapped address
 * @port: destination port
 * @tos: of IPv4, as routes may depend on it
 * @routes: what those of @outer were known by when the packet traced last came
 * @home_routes: what those of @home were known by when it last was confirmed
 * @oif: device by which @outer sent the packet that was traced last
 * @iif: device by which they come to @home
 * @hardware: address to which they are sent there, where @ethernet
 * @sender: address from which they are sent there, likewise
 * @ethernet: whether they are sent to one
 * @began: jiffies
 * @traced: jiffies when a packet was traced last
 * @confirmed: jiffies when one last arrived
 * @tags: of those under way, by their buffers
 */
struct trail {
	spinlock_t lock;	/* of the rest */
	u32 key;
	struct net *outer;
	struct net *home;
	struct in6_addr local;
	u16 port;
	u8 tos;
	bool ethernet;
	u8 hardware[ETH_ALEN];
	u8 sender[ETH_ALEN];
	u64 routes;
	u64 home_routes;
	int oif;
	int iif;
	u32 began;
	u32 traced;
	u32 confirmed;
	struct tag tags[1 << TAG_BITS];
};

static struct trail trails[TRAIL_WAYS << TRAIL_SETS_BITS];
static DEFINE_PER_CPU(u32, trails_sought);
static u32 trails_seed;
static u32 trails_until;	/* jiffies until which there may be any */
static u32 trails_epoch;	/* changes when any has ended but by routes */

static struct in6_addr packet_local(const struct filter_packet *packet)
{
	struct in6_addr local;

	if (packet->v4)
		ipv6_addr_set_v4mapped(ip_hdr(packet->skb)->daddr, &local);
	else
		local = ipv6_hdr(packet->skb)->daddr;
	return local;
}

static u32 packet_source(const struct filter_packet *packet)
{
	if (packet->v4)
		return jhash_2words((__force u32)ip_hdr(packet->skb)->saddr,
				    packet->remote_port, trails_seed);
	return jhash2((const u32 *)&ipv6_hdr(packet->skb)->saddr, 4,
		      trails_seed ^ packet->remote_port);
}

/* What a namespace's routes are known by: it changes when they do. */
static u64 net_routes(struct net *net, bool v4)
{
#if IS_ENABLED(CONFIG_IPV6)
	if (!v4) {
		u64 made = atomic_read(&net->ipv6.fib6_sernum);

		/* Written plainly; an older value is as good as having looked before. */
		return made << 32 | data_race(net->ipv6.rt6_stats->fib_discarded_routes);
	}
#endif
	return rt_genid_ipv4(net);
}

static u8 packet_hops(const struct filter_packet *packet)
{
	return packet->v4 ? ip_hdr(packet->skb)->ttl : ipv6_hdr(packet->skb)->hop_limit;
}

/* The type of service, by which routes may be chosen, without the ECN bits. */
static u8 packet_tos(const struct filter_packet *packet)
{
	u8 tos;

	if (packet->skb)
		tos = packet->v4 ? ip_hdr(packet->skb)->tos : 0;
	else
		tos = packet->tos;
	return tos & ~INET_ECN_MASK;
}

/* The same in both namespaces; keyed, as strangers choose addresses. */
static u32 packet_key(const struct filter_packet *packet)
{
	const struct sk_buff *skb = packet->skb;
	u32 port = (u32)packet_tos(packet) << 16 | packet->local_port;

	if (packet->v4)
		return jhash_2words((__force u32)ip_hdr(skb)->daddr, port, trails_seed);
	return jhash2((const u32 *)&ipv6_hdr(skb)->daddr, 4, trails_seed ^ port);
}

static struct trail *trail_slots_of(u32 key)
{
	return &trails[(key >> (32 - TRAIL_SETS_BITS)) * TRAIL_WAYS];
}

/* The one of this destination, most likely: whoever has its lock looks again. */
static struct trail *trail_find(const struct filter_packet *packet)
{
	u32 key = packet_key(packet);
	struct trail *set = trail_slots_of(key);
	unsigned int i;

	for (i = 0; i < TRAIL_WAYS; i++)
		if (READ_ONCE(set[i].key) == key)
			return &set[i];
	return NULL;
}

static bool trail_leads_to(const struct trail *trail, const struct filter_packet *packet)
{
	struct in6_addr local;

	if (!trail->outer || trail->port != packet->local_port || trail->tos != packet_tos(packet))
		return false;
	local = packet_local(packet);
	return ipv6_addr_equal(&trail->local, &local);
}

static bool trail_known(const struct trail *trail)
{
	return trail->home && pflow_within(trail->confirmed, TRAIL_LASTS);
}

static bool trail_in_use(const struct trail *trail)
{
	/* Read without the lock: one that changes meanwhile gives way, or does not. */
	return data_race(trail->outer && (trail_known(trail) ||
					  pflow_within(trail->began, TRAIL_BEGINS)));
}

/* Does a slot in use give way to this packet, and which of a set? */
static bool trail_gives_way(unsigned int *way)
{
	u32 sought = this_cpu_inc_return(trails_sought);

	*way = sought / GIVE_WAY % TRAIL_WAYS;
	return sought % GIVE_WAY == 0;
}

/*
 * The trail of this packet, or where it may begin; NULL: nowhere. Of two namespaces that forward to
 * the same address one has a trail.
 */
static struct trail *trail_find_or_take(const struct filter_packet *packet)
{
	struct trail *trail = trail_find(packet), *set = trail_slots_of(packet_key(packet));
	unsigned int i;

	if (trail) {
		/* Without the lock, as in trail_in_use(). */
		if (data_race(trail->outer) == packet->net || !trail_in_use(trail))
			return trail;
		return trail_gives_way(&i) ? trail : NULL;
	}
	for (i = 0; i < TRAIL_WAYS; i++)
		if (!trail_in_use(&set[i]))
			return &set[i];
	return trail_gives_way(&i) ? &set[i] : NULL;
}

/* Traced packets that are still under way confirm nothing any more. */
static void trail_end(struct trail *trail)
{
	trail->home = NULL;
	memset(trail->tags, 0, sizeof(trail->tags));
}

static void trail_begin(struct trail *trail, const struct filter_packet *packet)
{
	lockdep_assert_held(&trail->lock);
	trail_end(trail);
	WRITE_ONCE(trail->key, packet_key(packet));
	trail->outer = packet->net;
	trail->local = packet_local(packet);
	trail->port = packet->local_port;
	trail->tos = packet_tos(packet);
	trail->began = jiffies;
	trail->traced = pflow_stamp_past(CONFIRM_EVERY);
}

static struct tag packet_tag(const struct filter_packet *packet)
{
	const struct sk_buff *skb = packet->skb;
	unsigned int header = packet->v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	struct udphdr buffer;
	const struct udphdr *uh = skb_header_pointer(skb, skb_network_offset(skb) + header,
						     sizeof(buffer), &buffer);

	return (struct tag){
		.skb = skb,
		.source = packet_source(packet),
		.id = packet->v4 ? ip_hdr(skb)->id : 0,
		.check = uh ? uh->check : 0,
		.length = uh ? uh->len : 0,
		.hops = packet_hops(packet),
	};
}

/* Where a packet's tag is, or would be. */
static struct tag *trail_tag_at(struct trail *trail, const struct sk_buff *skb)
{
	return &trail->tags[hash_ptr(skb, TAG_BITS)];
}

static bool tag_same(const struct tag *one, const struct tag *other)
{
	return one->skb == other->skb && one->source == other->source && one->id == other->id &&
	       one->check == other->check && one->length == other->length &&
	       one->hops == other->hops;
}

/* Whoever ends trails must see this one before the packet is on its way. */
static void trails_announce(void)
{
	WRITE_ONCE(trails_until, (u32)jiffies + TRAIL_LASTS);
	smp_mb();	/* pairs with trails_any() */
}

/* What was remembered of a trail for the rest of the jiffy is not to be followed any more. */
static void trails_renew_epoch(void)
{
	/* Of two at once one may be lost: it is another number than before. */
	WRITE_ONCE(trails_epoch, READ_ONCE(trails_epoch) + 1);
}

/* Events end trails, of which there mostly are none. */
static bool trails_any(void)
{
	smp_mb();	/* pairs with trails_announce() */
	return pflow_ahead(READ_ONCE(trails_until), TRAIL_LASTS);
}

/**
 * filter_trails_forget_net() - end all trails from and to a namespace
 * @net: it begins to go; it is freed a grace period after this
 *
 * Context: process.
 */
void filter_trails_forget_net(const struct net *net)
{
	struct trail *trail;

	for (trail = trails; trail < trails + ARRAY_SIZE(trails); trail++) {
		spin_lock_bh(&trail->lock);
		if (trail->outer == net || trail->home == net) {
			trail_end(trail);
			trail->outer = NULL;
		}
		spin_unlock_bh(&trail->lock);
	}
	trails_renew_epoch();
}

/*
 * Is this trail one that may have moved? Its lock is not taken to find out, since anybody can have
 * neighbours and bridges tell of moves, as often as he likes. A trail may be begun meanwhile. Then
 * all of this is written before the packet that it traces goes on (trails_announce()). So a trail
 * that is not seen here yet leads to where the address is now.
 */
static bool trail_may_be_moved(const struct trail *trail, const struct net *net,
			       const struct in6_addr *local, const u8 *hardware)
{
	/* Half of one trail and half of another is none that was there when this happened. */
	return data_race(trail->outer == net &&
			 (local ? ipv6_addr_equal(&trail->local, local) :
				  ether_addr_equal(trail->hardware, hardware)));
}

static bool trail_moved(const struct trail *trail, const struct net *net,
			const struct in6_addr *local, const u8 *hardware)
{
	bool same = trail->ethernet && ether_addr_equal(trail->hardware, hardware);

	lockdep_assert_held(&trail->lock);
	if (trail->outer != net)
		return false;
	return local ? ipv6_addr_equal(&trail->local, local) && !same : trail->home && same;
}

/**
 * filter_trails_moved() - end all trails to what is elsewhere now
 * @net: namespace in which that was seen; what others see says nothing of trails from here
 * @local: address of a neighbour, IPv4 as mapped address; NULL: a bridge has found @hardware at
 *	some port, perhaps another one
 * @hardware: where the neighbour is now, %ETH_ALEN bytes
 *
 * Context: any but hard interrupt.
 */
void filter_trails_moved(const struct net *net, const struct in6_addr *local, const u8 *hardware)
{
	struct trail *trail;
	bool any = false;

	if (!trails_any())
		return;
	for (trail = trails; trail < trails + ARRAY_SIZE(trails); trail++) {
		if (!trail_may_be_moved(trail, net, local, hardware))
			continue;
		spin_lock_bh(&trail->lock);
		if (trail_moved(trail, net, local, hardware)) {
			trail_end(trail);
			any = true;
		}
		spin_unlock_bh(&trail->lock);
	}
	if (any)
		trails_renew_epoch();
}

/* Before any packet is looked at. */
static void trails_setup(void)
{
	struct trail *trail;

	trails_seed = get_random_u32();
	trails_until = (u32)jiffies - 1;
	for (trail = trails; trail < trails + ARRAY_SIZE(trails); trail++) {
		spin_lock_init(&trail->lock);
		trail_end(trail);
		trail->outer = NULL;
		trail->key = 0;
	}
}
