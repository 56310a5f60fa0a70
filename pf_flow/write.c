// SPDX-License-Identifier: GPL-2.0-only
/*
 * Write: what is written to /proc/packetflow/flow/table, as one change.
 *
 *	check			change nothing, only say whether it could be done; first line
 *	replace			begin with no flow instead of those that are there
 *	add NAME MATCH... SHAPE...
 *	change NAME SHAPE...
 *	delete NAME
 *
 * All lines of a write are done, or none. The new table is made beside the one in force. Where
 * all lines could be done, flows that stay get what they are to do, and the table is exchanged.
 * A flow that stays keeps its queue and its counters. One that is replaced by one of the same
 * name and match stays, too. What goes wrong is told with the number of its line in the file
 * "error".
 *
 * Context: process, may sleep, under flow_mutex.
 */
#include <linux/delay.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "flow.h"

#define FLOWS_MOST	131072u
#define OPEN_MS		50	/* what waits in a flow that goes has so long to leave unhindered */

/**
 * struct flow_change - a change that is being made
 * @ours: whose flows
 * @table: that is to be
 * @made: flows that are new
 * @replace: none of the old ones stays unless it is added again
 */
struct flow_change {
	struct flow_net *ours;
	struct flow_table *table;
	struct list_head made;
	bool replace;
};

/* Of the last write that failed, or empty. */
char flow_error[FLOW_ERROR];

static struct flow_table *table_in_force(const struct flow_net *ours)
{
	return rcu_dereference_protected(ours->table, lockdep_is_held(&flow_mutex));
}

static bool match_same(const struct flow_pattern *one, const struct flow_pattern *other)
{
	return one->fallback == other->fallback &&
	       !memcmp(&one->key, &other->key, sizeof(one->key)) &&
	       !memcmp(&one->mask, &other->mask, sizeof(one->mask));
}

static void flow_stage(struct flow *flow, const struct flow_shape *shape)
{
	flow->staged = *shape;
	flow->is_staged = true;
}

/* Words of a line; those of a match only where @match is there. */
static const char *words_parse(const struct net *net, char *rest, struct flow_pattern *match,
			       struct flow_shape *shape)
{
	const char *wrong = NULL;
	bool taken;
	char *word;

	while (!wrong && (word = strsep(&rest, " "))) {
		if (!*word)
			continue;
		taken = false;
		if (match)
			wrong = flow_parse_match(net, word, match, &taken);
		if (!taken && !wrong)
			wrong = flow_parse_shape(word, shape);
	}
	return wrong;
}

static const char *line_add(struct flow_change *change, char *rest)
{
	struct flow_shape shape = { .weight = 1 };
	struct flow_pattern match = {};
	char name[FLOW_NAME];
	const char *wrong;
	struct flow *flow;
	bool narrow;

	wrong = flow_parse_name(&rest, name) ?:
		words_parse(change->ours->net, rest, &match, &shape);
	if (wrong)
		return wrong;
	narrow = memchr_inv(&match.mask, 0, sizeof(match.mask));
	if (narrow == match.fallback)
		return narrow ? "the default flow matches all that others do not, and no less" :
		       "it says neither what it matches nor that it is the default";
	if (flow_table_named(change->table, name))
		return "another flow has this name";
	flow = flow_table_named(table_in_force(change->ours), name);
	if (change->replace && flow && match_same(&flow->match, &match)) {
		flow_stage(flow, &shape);
		flow->kept = true;
		return flow_table_add(change->table, flow);
	}
	flow = flow_alloc(name, &match, &shape);
	if (!flow)
		return "there is no memory";
	flow->kept = true;
	list_add_tail(&flow->list, &change->made);
	return flow_table_add(change->table, flow);
}

static const char *line_change(struct flow_change *change, char *rest)
{
	struct flow_shape shape;
	char name[FLOW_NAME];
	const char *wrong = flow_parse_name(&rest, name);
	struct flow *flow;

	if (wrong)
		return wrong;
	flow = flow_table_named(change->table, name);
	if (!flow)
		return "there is no flow of this name";
	shape = flow->is_staged ? flow->staged : flow->shape;
	wrong = words_parse(change->ours->net, rest, NULL, &shape);
	if (!wrong)
		flow_stage(flow, &shape);
	return wrong;
}

static const char *line_delete(struct flow_change *change, char *rest)
{
	char name[FLOW_NAME];
	const char *wrong = flow_parse_name(&rest, name);
	struct flow *flow;

	if (wrong)
		return wrong;
	if (rest)
		return "behind the name of what is deleted comes nothing";
	flow = flow_table_named(change->table, name);
	if (!flow)
		return "there is no flow of this name";
	flow_table_remove(change->table, flow);
	flow->kept = false;
	return NULL;
}

static const char *line_apply(struct flow_change *change, char *line)
{
	char *verb = strsep(&line, " ");

	if (!strcmp(verb, "add"))
		return line_add(change, line);
	if (!strcmp(verb, "change"))
		return line_change(change, line);
	if (!strcmp(verb, "delete"))
		return line_delete(change, line);
	return "a line begins with add, change or delete";
}

static u32 lines_of(const char *text)
{
	u32 lines = 1;

	for (; *text; text++)
		lines += *text == '\n';
	return lines;
}

/* Those that are there stay, or not. */
static const char *change_begin(struct flow_change *change, u32 lines)
{
	struct flow *flow;

	change->table = flow_table_alloc(min(change->ours->number + lines, FLOWS_MOST));
	if (!change->table)
		return "there is no memory";
	list_for_each_entry(flow, &change->ours->flows, list) {
		flow->is_staged = false;
		flow->kept = !change->replace;
		if (flow->kept && flow_table_add(change->table, flow))
			return "too many flows";
	}
	return NULL;
}

static void flows_free(struct list_head *flows)
{
	struct flow *flow, *next;

	list_for_each_entry_safe(flow, next, flows, list) {
		list_del(&flow->list);
		kfree_rcu(flow, rcu);
	}
}

/* Those that are new to the namespace's; what is in those that go is continued. */
static u32 flows_enter(struct flow_change *change)
{
	struct flow *flow, *next;
	u32 number = 0;

	list_for_each_entry_safe(flow, next, &change->made, list) {
		list_del(&flow->list);
		list_add_tail_rcu(&flow->list, &change->ours->flows);
	}
	list_for_each_entry(flow, &change->ours->flows, list) {
		if (!flow->kept)
			flow_set_door(flow, FLOW_OPEN);
		else if (flow->is_staged)
			flow_set_shape(flow, &flow->staged);
		number += flow->kept;
	}
	return number;
}

static bool flows_go_and_wait(const struct list_head *flows)
{
	const struct flow *flow;

	list_for_each_entry(flow, flows, list)
		if (!flow->kept && READ_ONCE(flow->state) != FLOW_IDLE)
			return true;
	return false;
}

/*
 * What waits in a flow that goes leaves in order, and before anything that comes later. For a
 * moment what comes later is still put behind it. After that it is dropped until all have left.
 */
static void flows_let_go(const struct list_head *flows)
{
	unsigned int waited = 0;
	struct flow *flow;

	for (; flows_go_and_wait(flows) && waited < OPEN_MS; waited++)
		usleep_range(1000, 1500);
	list_for_each_entry(flow, flows, list) {
		if (flow->kept)
			continue;
		flow_set_door(flow, FLOW_SHUT);
		flow_continue_all(flow);
	}
}

/* Nothing here can fail. A flow that was added and deleted again is freed with the others. */
static void change_commit(struct flow_change *change)
{
	struct flow_net *ours = change->ours;
	struct flow_table *old = table_in_force(ours);
	struct flow *flow, *next;

	flow_net_set_number(ours, flows_enter(change));
	flows_let_go(&ours->flows);
	if (!ours->number) {
		flow_table_free(change->table);
		change->table = NULL;
	}
	rcu_assign_pointer(ours->table, change->table);
	change->table = NULL;
	flow_net_unhook_unused(ours);
	synchronize_rcu();
	flow_table_free(old);
	list_for_each_entry_safe(flow, next, &ours->flows, list) {
		if (flow->kept)
			continue;
		list_del_rcu(&flow->list);
		kfree_rcu(flow, rcu);
	}
}

static const char *change_lines(struct flow_change *change, char *text, u32 *number)
{
	const char *wrong = NULL;
	char *line;

	while (!wrong && (line = strsep(&text, "\n"))) {
		++*number;
		line = strim(line);
		if (*line && *line != '#')
			wrong = line_apply(change, line);
		if (!(*number % 1024))
			cond_resched();
	}
	return wrong;
}

/* The first line, if it is this word; what is left is what stands behind it. */
static bool line_is(char **text, const char *word, u32 *number)
{
	size_t length = strlen(word);

	if (strncmp(*text, word, length) || ((*text)[length] && (*text)[length] != '\n'))
		return false;
	*text += length + !!(*text)[length];
	++*number;
	return true;
}

/**
 * flow_write() - change a namespace's flows
 * @ours: the namespace, which stays
 * @text: lines; written to
 *
 * Return: 0 or a negative error, and then nothing is changed.
 */
int flow_write(struct flow_net *ours, char *text)
{
	struct flow_change change = { .ours = ours };
	const char *wrong;
	u32 number = 0;
	bool only;

	lockdep_assert_held(&flow_mutex);
	INIT_LIST_HEAD(&change.made);
	only = line_is(&text, "check", &number);
	change.replace = line_is(&text, "replace", &number);
	wrong = change_begin(&change, lines_of(text)) ?: change_lines(&change, text, &number) ?:
		flow_table_finish(change.table);
	if (!wrong && !only) {
		if (flow_net_hook(ours, change.table->used))
			wrong = "there is no memory for the hooks or the queues";
		else
			change_commit(&change);
	}
	flow_error[0] = '\0';
	if (wrong)
		scnprintf(flow_error, sizeof(flow_error), "line %u: %s\n", number, wrong);
	flow_table_free(change.table);
	flows_free(&change.made);
	if (wrong)
		flow_net_unhook_unused(ours);
	return wrong ? -EINVAL : 0;
}
