// SPDX-License-Identifier: GPL-2.0-only
/*
 * The table: which flow is a packet's?
 *
 * Flows of which the same counts (prefixes of the same lengths, both ports, a mark's bits ...)
 * are of one *kind*. A packet is masked and looked up in one hash table once for each kind. So a
 * look-up takes as long with 100 000 flows as with 10. It takes longer with more kinds, of which
 * a table has FLOW_KINDS at most: prefixes of all lengths cost what their number of lengths
 * costs. The kind of which most counts comes first, so the most exact flow wins, whatever the
 * order in which they were written.
 *
 * A table is made whole, found by packets under RCU, and replaced by another. Nothing in it
 * changes meanwhile.
 *
 * Context: process, under flow_mutex, unless said otherwise.
 */
#include <linux/bitops.h>
#include <linux/mm.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/stringhash.h>

#include "flow.h"

static_assert(sizeof(struct flow_key) == sizeof_field(struct flow_key, words));

u64 flow_key_seed[FLOW_WORDS] __ro_after_init;

static u32 key_bits(const struct flow_key *mask)
{
	unsigned int i, bits = 0;

	for (i = 0; i < FLOW_WORDS; i++)
		bits += hweight64(mask->words[i]);
	return bits;
}

/* By how much counts; among equals by addresses first, so that it is definite. */
static bool kind_first(const struct flow_kind *one, const struct flow_kind *other)
{
	return one->bits == other->bits ? memcmp(&one->mask, &other->mask, sizeof(one->mask)) > 0 :
	       one->bits > other->bits;
}

/* Only the words of which anything counts are looked at, here and in kind_same(). */
static struct hlist_head *table_bucket(const struct flow_table *table, const struct flow_key *key,
				       const struct flow_kind *kind)
{
	u64 hash = 0;
	u32 i;

	for (i = kind->first; i < kind->end; i++)
		hash += (key->words[i] & kind->mask.words[i]) * flow_key_seed[i];
	return &table->buckets[hash >> table->shift];
}

/* Do two say the same, as far as it counts? */
static bool kind_same(const struct flow_kind *kind, const struct flow_key *one,
		      const struct flow_key *other)
{
	u64 differ = 0;
	u32 i;

	for (i = kind->first; i < kind->end; i++)
		differ |= (one->words[i] ^ other->words[i]) & kind->mask.words[i];
	return !differ;
}

static struct hlist_head *table_cgroup_bucket(const struct flow_table *table, u64 cgroup)
{
	return &table->cgroups[(cgroup * flow_key_seed[0]) >> table->shift];
}

static struct hlist_head *table_name_bucket(const struct flow_table *table, const char *name)
{
	return &table->names[full_name_hash(NULL, name, strlen(name)) & table->mask];
}

/**
 * flow_table_free() - free a table
 * @table: in which nobody looks any more; may be NULL
 */
void flow_table_free(struct flow_table *table)
{
	if (!table)
		return;
	kvfree(table->links);
	kvfree(table->names);
	kvfree(table->buckets);
	kvfree(table->cgroups);
	kfree(table);
}

/**
 * flow_table_alloc() - make a table
 * @room: for how many flows
 *
 * Context: process, may sleep. Return: it, empty; NULL without memory.
 */
struct flow_table *flow_table_alloc(u32 room)
{
	struct flow_table *table = kzalloc(sizeof(*table), GFP_KERNEL_ACCOUNT);
	static u64 number;
	u32 buckets = roundup_pow_of_two(max(room, 2u));	/* a shift by 64 is none */

	if (!table)
		return NULL;
	lockdep_assert_held(&flow_mutex);
	table->number = ++number;
	table->room = room;
	table->mask = buckets - 1;
	table->shift = 64 - ilog2(buckets);
	table->links = kvcalloc(max(room, 1u), sizeof(*table->links), GFP_KERNEL_ACCOUNT);
	table->names = kvcalloc(buckets, sizeof(*table->names), GFP_KERNEL_ACCOUNT);
	table->buckets = kvcalloc(buckets, sizeof(*table->buckets), GFP_KERNEL_ACCOUNT);
	if (table->links && table->names && table->buckets)
		return table;
	flow_table_free(table);
	return NULL;
}

/* Return: the number of a mask's kind, which is new if need be; FLOW_KINDS: there are too many. */
static u32 table_kind(struct flow_table *table, const struct flow_key *mask)
{
	struct flow_kind *new;
	u32 kind, place;

	for (kind = 0; kind < table->nr_kinds; kind++)
		if (!memcmp(&table->kinds[kind].mask, mask, sizeof(*mask)))
			return kind;
	if (kind == FLOW_KINDS)
		return kind;
	new = &table->kinds[kind];
	new->mask = *mask;
	new->bits = key_bits(mask);
	while (!mask->words[new->first])
		new->first++;
	new->end = FLOW_WORDS;
	while (!mask->words[new->end - 1])
		new->end--;
	table->receivers = table->receivers || mask->rank || mask->cgroup;
	table->marks = table->marks || mask->mark;
	for (place = table->nr_kinds++; place; place--) {
		u8 before = table->order[place - 1];

		if (kind_first(&table->kinds[before], &table->kinds[kind]))
			break;
		table->order[place] = before;
	}
	table->order[place] = kind;
	return kind;
}

static struct flow_link *table_link_named(const struct flow_table *table, const char *name)
{
	struct flow_link *link;

	hlist_for_each_entry(link, table_name_bucket(table, name), by_name)
		if (!strcmp(link->flow->name, name))
			return link;
	return NULL;
}

/**
 * flow_table_named() - find a flow by its name
 * @table: that is being made, or in force; may be NULL
 * @name: its name
 *
 * Return: it or NULL.
 */
struct flow *flow_table_named(const struct flow_table *table, const char *name)
{
	struct flow_link *link = table ? table_link_named(table, name) : NULL;

	return link ? link->flow : NULL;
}

/**
 * flow_table_add() - put a flow into a table
 * @table: that is being made
 * @flow: whose name is not in it
 *
 * Return: NULL, or why not.
 */
const char *flow_table_add(struct flow_table *table, struct flow *flow)
{
	const struct flow_pattern *match = &flow->match;
	struct flow_link *link, *other;
	const struct flow_kind *kind;
	struct hlist_head *bucket;

	if (table->used == table->room)
		return "too many flows";
	link = &table->links[table->used];
	link->flow = flow;
	if (match->fallback) {
		if (table->fallback)
			return "another flow is the default";
		table->fallback = flow;
	} else {
		link->kind = table_kind(table, &match->mask);
		if (link->kind == FLOW_KINDS)
			return "too many kinds of matches";
		link->key = match->key;
		kind = &table->kinds[link->kind];
		bucket = table_bucket(table, &link->key, kind);
		hlist_for_each_entry(other, bucket, by_key)
			if (other->kind == link->kind && kind_same(kind, &other->key, &link->key))
				return "another flow matches the same";
		hlist_add_head(&link->by_key, bucket);
	}
	hlist_add_head(&link->by_name, table_name_bucket(table, flow->name));
	table->used++;
	return NULL;
}

/**
 * flow_table_remove() - take a flow out
 * @table: that is being made
 * @flow: that is in it
 */
void flow_table_remove(struct flow_table *table, struct flow *flow)
{
	struct flow_link *link = table_link_named(table, flow->name);

	if (flow->match.fallback)
		table->fallback = NULL;
	else
		hlist_del_init(&link->by_key);
	hlist_del_init(&link->by_name);
}

/**
 * flow_table_has_cgroup() - does some flow name a control group?
 * @table: in force, with @cgroups
 * @cgroup: its number
 *
 * Context: softirqs off, RCU read side. Return: whether one does.
 */
bool flow_table_has_cgroup(const struct flow_table *table, u64 cgroup)
{
	const struct flow_link *link;

	hlist_for_each_entry(link, table_cgroup_bucket(table, cgroup), by_cgroup)
		if (link->key.cgroup == cgroup)
			return true;
	return false;
}

/**
 * flow_table_finish() - a table is complete, and may be put in force
 * @table: that was made
 *
 * Context: process, may sleep. Return: NULL, or why not.
 */
const char *flow_table_finish(struct flow_table *table)
{
	struct flow_link *link;
	u32 i;

	for (i = 0; i < table->used; i++) {
		link = &table->links[i];
		if (!link->key.cgroup || hlist_unhashed(&link->by_name))
			continue;
		if (!table->cgroups)
			table->cgroups = kvcalloc(table->mask + 1, sizeof(*table->cgroups),
						  GFP_KERNEL_ACCOUNT);
		if (!table->cgroups)
			return "there is no memory";
		if (!flow_table_has_cgroup(table, link->key.cgroup))
			hlist_add_head(&link->by_cgroup,
				       table_cgroup_bucket(table, link->key.cgroup));
	}
	return NULL;
}

/**
 * flow_table_find() - which flow is a packet's?
 * @table: in force
 * @key: what the packet says
 *
 * Context: softirqs off, RCU read side. Return: it; NULL: none.
 */
struct flow *flow_table_find(const struct flow_table *table, const struct flow_key *key)
{
	const struct flow_kind *kind;
	struct flow_link *link;
	u32 i, number;

	for (i = 0; i < table->nr_kinds; i++) {
		number = table->order[i];
		kind = &table->kinds[number];
		hlist_for_each_entry(link, table_bucket(table, key, kind), by_key)
			if (link->kind == number && kind_same(kind, &link->key, key))
				return link->flow;
	}
	return table->fallback;
}

/**
 * flow_table_setup() - draw by what flows are spread over a table
 *
 * Context: process.
 */
void __init flow_table_setup(void)
{
	unsigned int i;

	for (i = 0; i < FLOW_WORDS; i++)
		flow_key_seed[i] = get_random_u64() | 1;
}
