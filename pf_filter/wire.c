// SPDX-License-Identifier: GPL-2.0-only
/*
 * Wire: flows as they come from the wire, and whose they are.
 *
 * Packets can be judged in two places before the hook: in the driver, by their frames (driver.c),
 * and ahead of connection tracking (ahead.c). There it is not known whose a flow is, as its
 * address may be translated later. Only the hook finds that out, and tells. What it found holds
 * for the rest of the jiffy, as in recall.c, for a flow that an earlier place has shown before.
 * The flow is known by its addresses and ports before translation. Its device must lead to the one
 * where the hook met it. So in each jiffy the first packet of a flow goes up to the hook.
 *
 * What an earlier place has judged and passed is not judged again. In the driver it gets a mark
 * in front of its frame (XDP's metadata), to be known on whatever CPU the hook meets it. If a
 * driver leaves no room for the mark, only what finds its socket full is dropped there. Where the
 * hook runs on other CPUs than the driver (RPS), nothing is told, and nothing dropped there. From
 * ahead of connection tracking the hook is met next, on the same CPU, so that the packet is known
 * by its buffer.
 *
 * Slots are this CPU's own and used with softirqs off, as recall.c's.
 *
 * Context: softirq, RCU read side.
 */
#include <linux/random.h>

#include "../common/compat/compat.h"
#include "filter.h"
#include "wire.h"

#define WIRE_SET_BITS	5
#define WIRE_WAYS	4	/* as in recall.c */
#define PLACES_LAST	HZ	/* since a place before the hook last showed a flow */

/**
 * struct wire - what is kept of a flow
 * @key: of it
 * @to: whose it is, by the hook
 * @seen: of it, as the hook sees it
 * @tracked: where its connection is in the table, which may have translated it
 * @length: of the packet by which that was told
 * @truesize: what that took of a buffer
 * @shape: how its frames look in the driver
 * @shown: jiffies in which an earlier place has shown it
 */
struct wire {
	struct wire_shape shape;
	struct wire_key key;
	struct wire_key seen;
	struct tracked tracked;
	u32 shown;
	u16 length;
	u32 truesize;
	struct receiver to;
};

/* Too many for a module's own. */
static struct wire __percpu *wires;
static u32 places_until;	/* jiffies until which any place before the hook may be at work */

static u64 wire_hash4(u64 addresses, u32 ports)
{
	return pflow_slot_hash(slot_key, &addresses, 1) + ports * slot_key[SLOT_WORDS - 1];
}

static struct wire *wire_set_at(u64 hash)
{
	return this_cpu_ptr(wires) + (hash >> (64 - WIRE_SET_BITS)) * WIRE_WAYS;
}

static struct wire *wire_set(const struct wire_key *key)
{
	u64 hash = wire_hash4(key->address[0], key->ports);

	if (!key->v4)
		hash += pflow_slot_hash(slot_key + 1, key->address + 1, 3);
	return wire_set_at(hash);
}

static bool wire_matches(const struct wire *wire, const struct wire_key *key)
{
	const struct wire_key *known = &wire->key;

	return known->ports == key->ports && known->iif == key->iif && known->v4 == key->v4 &&
	       addresses_same(known->address, key->address, key->v4);
}

/* What is kept of a flow, or NULL. */
static struct wire *wire_find(const struct wire_key *key)
{
	struct wire *wire = wire_set(key), *end = wire + WIRE_WAYS;

	for (; wire < end; wire++)
		if (wire_matches(wire, key))
			return wire;
	return NULL;
}

/* Where to keep a flow: in the first slot that is not in use in this jiffy, or the last. */
static struct wire *wire_spare(const struct wire_key *key)
{
	struct wire *wire = wire_set(key), *last = wire + WIRE_WAYS - 1;

	while (wire < last && wire->shown == (u32)jiffies)
		wire++;
	return wire;
}

/**
 * filter_places_used() - does any place before the hook show flows, or judge packets?
 *
 * Return: whether one did within the last second. Otherwise there is nothing to be looked for.
 */
static bool filter_places_used(void)
{
	return pflow_ahead(READ_ONCE(places_until), PLACES_LAST);
}

static void places_note_use(void)
{
	u32 until = (u32)jiffies + PLACES_LAST;

	/* All CPUs read it, for each packet. */
	if (until - READ_ONCE(places_until) > PLACES_LAST / 2)
		WRITE_ONCE(places_until, until);
}

/**
 * filter_find_wire() - has an earlier place shown this packet's flow, on this CPU?
 * @packet: parsed
 *
 * Return: what is kept of it, or NULL.
 */
static noinline struct wire *filter_find_wire(const struct filter_packet *packet)
{
	struct wire_key key;

	if (!tracked_read_key(packet, &key))
		packet_read_key(packet, &key);
	return wire_find(&key);
}

static u64 judged_mark;	/* a number that no other program's is */

/**
 * struct ahead - what was last judged ahead on a CPU, and is to meet the hook yet
 * @skb: its buffer, an identity
 * @by_rank: B1 was asked; for B2 its socket is to be looked up
 */
struct ahead {
	const struct sk_buff *skb;
	bool by_rank;
};

static DEFINE_PER_CPU(struct ahead, judged_ahead);

/**
 * filter_was_judged() - was this packet judged in an earlier place?
 * @packet: it; @ranked is filled in
 *
 * What is dropped on its way from ahead may leave its buffer to another packet, which then passes
 * unjudged.
 *
 * Return: whether it was.
 */
static bool filter_was_judged(struct filter_packet *packet)
{
	const struct sk_buff *skb = packet->skb;

	if (unlikely(this_cpu_read(judged_ahead.skb) == skb)) {
		this_cpu_write(judged_ahead.skb, NULL);
		packet->ranked = this_cpu_read(judged_ahead.by_rank);
		return !packet->ranked;
	}
	return unlikely(skb_metadata_len(skb) == sizeof(judged_mark)) &&
	       !memcmp(skb_metadata_end(skb) - sizeof(judged_mark), &judged_mark,
		       sizeof(judged_mark));
}

/**
 * wire_show() - whose is this flow?
 * @key: of it
 *
 * Return: what is kept of it, if it was shown or told in this jiffy already; else NULL, and the
 * hook is to find that out now. wire_recall() says whether it has.
 */
static struct wire *wire_show(const struct wire_key *key)
{
	struct wire *wire = wire_find(key);

	places_note_use();
	if (wire && (wire->shown == (u32)jiffies || wire->to.until == (u32)jiffies)) {
		wire->shown = jiffies;
		return wire;
	}
	wire = wire_spare(key);
	wire->key = *key;
	wire->shown = jiffies;
	wire->shape.until = (u32)jiffies - 1;
	wire->to.until = (u32)jiffies - 1;
	return NULL;
}

/* Whose the packet is, and its ports as the hook sees them, if the hook has told so. */
static bool wire_recall(const struct wire *wire, struct filter_packet *packet)
{
	packet->local_port = wire->seen.ports;
	packet->remote_port = wire->seen.ports >> 16;
	return receiver_recall(&wire->to, packet);
}

/**
 * wire_holds() - is it still so, as far as the flow may be translated?
 * @wire: of it, recalled
 * @net: namespace of its packets
 *
 * Return: whether it is. Asked before a packet is dropped.
 */
static bool wire_holds(const struct wire *wire, struct net *net)
{
	return !wire->tracked.node ||
	       tracked_leads_to(&wire->tracked, net, &wire->key, &wire->seen);
}

/*
 * Where no table tells, a flow whose address a rule has changed by itself may go elsewhere with
 * the next packet.
 */
static bool wire_can_be_taught(const struct wire *wire, const struct tracked *tracked,
			       const struct wire_key *seen)
{
	if (tracked->node)
		return true;
	return wire->key.ports == seen->ports &&
	       addresses_same(wire->key.address, seen->address, seen->v4);
}

/**
 * filter_teach_wire() - tell earlier places whose a flow is, for the rest of the jiffy
 * @wire: of the flow
 * @packet: one of it, classified
 *
 * Out of line: what the compiler clears here at the beginning is not for every packet.
 */
static noinline void filter_teach_wire(struct wire *wire, const struct filter_packet *packet)
{
	struct wire_key seen;
	struct tracked tracked;

	if (!packet->lasting || !tracked_remember(packet->skb, &tracked))
		return;
	packet_read_key(packet, &seen);
	if (!wire_can_be_taught(wire, &tracked, &seen))
		return;
	receiver_remember(&wire->to, packet);
	wire->seen = seen;
	wire->tracked = tracked;
	wire->length = packet->length;
	wire->truesize = packet->truesize;
}

static int wires_setup(void)
{
	unsigned int i;

	judged_mark = get_random_u64();
	for (i = 0; i < SLOT_WORDS; i++)
		slot_key[i] = get_random_u64() | 1;
	BUILD_BUG_ON(sizeof(struct wire) * WIRE_WAYS << WIRE_SET_BITS > PCPU_MIN_UNIT_SIZE);
	wires = __alloc_percpu(sizeof(struct wire) * WIRE_WAYS << WIRE_SET_BITS,
			       __alignof__(struct wire));
	if (!wires)
		return -ENOMEM;
	places_until = (u32)jiffies - 1;
	return 0;
}

static void wires_teardown(void)
{
	free_percpu(wires);
}
