// SPDX-License-Identifier: GPL-2.0-only
/*
 * The netfilter hook, in every network namespace, and what it counts.
 *
 * PRE_ROUTING just after destination NAT: as early as netfilter allows with
 * the final address. Even a hook that does nothing costs a packet 1 or 2 % of
 * its receive side, so the hooks are there only while a CPU's packets are
 * looked at, or were a moment ago. On the other CPUs the hook is one load and
 * one branch.
 *
 * Context: softirq, RCU read side. A namespace's hooks are removed before it
 * goes (pernet exit), all of them before the module goes. A packet that is
 * under way in one as it is removed uses nothing that goes before a grace
 * period is over. Hooks come and go in process context, under hooks_lock.
 */
#include <linux/mutex.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <linux/rtnetlink.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>

#include "filter.h"

/* Packets, by what became of them, and by what would have in mode=observe. */
static DEFINE_PER_CPU(u64 [FILTER_OUTCOMES], outcomes);
static DEFINE_PER_CPU(u64 [PFLOW_DROPS], observed);

static const char * const outcome_names[FILTER_OUTCOMES] = {
	[FILTER_DROP_OVERLOAD] = "overload",
	[FILTER_DROP_HARM] = "harm",
	[FILTER_DROP_FULL] = "socket_full",
	[FILTER_PASS] = "judged",
	[FILTER_PASS_EXEMPT] = "exempt",
	[FILTER_PASS_OTHER_PROTOCOL] = "other_protocol",
	[FILTER_PASS_NOT_HOST] = "not_host",
	[FILTER_PASS_FORWARDED] = "forwarded",
	[FILTER_PASS_NOT_PLAIN] = "not_plain",
	[FILTER_PASS_NO_RECEIVER] = "no_receiver",
	[FILTER_PASS_KERNEL_SOCKET] = "kernel_socket",
	[FILTER_PASS_UNTRACKED] = "untracked",
	[FILTER_PASS_TRACED] = "traced",
	[FILTER_PASS_BEFORE] = "judged_before",
};

/* Count what becomes of a packet, or would; is it to be dropped? */
static bool filter_outcome_drops(const struct filter_packet *packet, enum filter_outcome outcome)
{
	if (outcome < FILTER_PASS &&
	    READ_ONCE(filter_knobs[FILTER_KNOB_MODE].value) == FILTER_MODE_OBSERVE) {
		this_cpu_add(observed[outcome], packet->packets);
		return false;
	}
	this_cpu_add(outcomes[outcome], packet->packets);
	return outcome < FILTER_PASS;
}

/* All that can happen to a packet, as one function: see packet.c. */
static noinline __flatten unsigned int
filter_handle_packet(struct sk_buff *skb, const struct nf_hook_state *state)
{
	struct filter_packet packet = { .skb = skb, .packets = 1 };
	enum filter_outcome outcome = filter_classify(&packet, state);

	if (outcome == FILTER_PASS)
		outcome = filter_judge(&packet);
	if (!filter_outcome_drops(&packet, outcome))
		return NF_ACCEPT;
	filter_drop(&packet, outcome);
	return NF_STOLEN;
}

static unsigned int filter_hook(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	if (likely(!this_cpu_read(pflow_load.watch)))
		return NF_ACCEPT;
	return filter_handle_packet(skb, state);
}

/**
 * filter_count_looks() - what looking at a CPU's packets came to
 * @cpu: which
 * @dropped: filled in: dropped early, or would have been
 * @passed: filled in: judged and let through
 *
 * Context: any.
 */
void filter_count_looks(int cpu, u64 *dropped, u64 *passed)
{
	unsigned int i;

	*dropped = 0;
	for (i = 0; i < PFLOW_DROPS; i++)
		*dropped += READ_ONCE(per_cpu(outcomes[i], cpu)) +
			    READ_ONCE(per_cpu(observed[i], cpu));
	*passed = READ_ONCE(per_cpu(outcomes[FILTER_PASS], cpu));
}

static const struct nf_hook_ops hooks[] = {
	{
		.hook = filter_hook,
		.pf = NFPROTO_IPV4,
		.hooknum = NF_INET_PRE_ROUTING,
		.priority = NF_IP_PRI_NAT_DST + 1,
	}, {
		.hook = filter_hook,
		.pf = NFPROTO_IPV6,
		.hooknum = NF_INET_PRE_ROUTING,
		.priority = NF_IP6_PRI_NAT_DST + 1,
	},
};

/* What a namespace has. */
struct filter_net {
	bool hooked;
};

static unsigned int filter_net_id;
static DEFINE_MUTEX(hooks_lock);
static bool hooks_wanted;

static void net_set_hooked(struct net *net, bool on)
{
	struct filter_net *ours = net_generic(net, filter_net_id);

	lockdep_assert_held(&hooks_lock);
	if (ours->hooked == on)
		return;
	if (!on)
		nf_unregister_net_hooks(net, hooks, ARRAY_SIZE(hooks));
	else if (nf_register_net_hooks(net, hooks, ARRAY_SIZE(hooks)))
		return;		/* memory is short; the next round tries again */
	ours->hooked = on;
}

static int filter_net_init(struct net *net)
{
	mutex_lock(&hooks_lock);
	net_set_hooked(net, hooks_wanted);
	mutex_unlock(&hooks_lock);
	return 0;
}

static void filter_net_exit(struct net *net)
{
	mutex_lock(&hooks_lock);
	net_set_hooked(net, false);
	mutex_unlock(&hooks_lock);
}

/* The kernel waits for a grace period after it. */
static void filter_net_pre_exit(struct net *net)
{
	filter_trails_forget_net(net);
}

static struct pernet_operations net_ops = {
	.init = filter_net_init,
	.pre_exit = filter_net_pre_exit,
	.exit = filter_net_exit,
	.id = &filter_net_id,
	.size = sizeof(struct filter_net),
};

/**
 * filter_hook_watch() - be in every network namespace, or in none
 * @on: whether
 *
 * A namespace leaves the list before its exit function is called, and enters it after its init
 * function; one that was neither here nor there meanwhile is hooked in the next round.
 *
 * Context: process, may sleep; told every now and then.
 */
void filter_hook_watch(bool on)
{
	struct net *net;

	mutex_lock(&hooks_lock);
	if (on || hooks_wanted) {
		down_read(&net_rwsem);
		for_each_net(net)
			net_set_hooked(net, on);
		up_read(&net_rwsem);
		WRITE_ONCE(hooks_wanted, on);
	}
	mutex_unlock(&hooks_lock);
}

/**
 * filter_hook_setup() - get ready to hook into every network namespace, present and future
 *
 * Context: process, may sleep. Return: 0 or a negative error.
 */
int filter_hook_setup(void)
{
	int err = wires_setup();

	if (err)
		return err;
	hooks_wanted = false;
	trails_setup();
	err = register_pernet_subsys(&net_ops);
	if (err)
		wires_teardown();
	return err;
}

/**
 * filter_hook_teardown() - leave every network namespace
 *
 * Context: process, may sleep; filter_hook_watch() is called no more. No packet is in the hook when
 * it returns.
 */
void filter_hook_teardown(void)
{
	unregister_pernet_subsys(&net_ops);
	synchronize_net();
	wires_teardown();
}

/* Of all CPUs, a counter that is at @counter on each. */
static u64 counter_sum(const u64 __percpu *counter)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(*per_cpu_ptr(counter, cpu));
	return sum;
}

/**
 * filter_hook_status() - drops, for people
 * @m: where to
 *
 * Context: process.
 */
void filter_hook_status(struct seq_file *m)
{
	seq_printf(m, "dropped: %llu for an overflowing receive queue, %llu for a harmed receiver, %llu for a full socket\n",
		   counter_sum(&outcomes[FILTER_DROP_OVERLOAD]),
		   counter_sum(&outcomes[FILTER_DROP_HARM]),
		   counter_sum(&outcomes[FILTER_DROP_FULL]));
	if (READ_ONCE(filter_knobs[FILTER_KNOB_MODE].value) == FILTER_MODE_OBSERVE)
		seq_printf(m, "observed: would have dropped %llu, %llu, %llu\n",
			   counter_sum(&observed[PFLOW_DROP_OVERLOAD]),
			   counter_sum(&observed[PFLOW_DROP_HARM]),
			   counter_sum(&observed[PFLOW_DROP_FULL]));
}

/**
 * filter_hook_metrics() - what became of the packets looked at, for machines
 * @m: where to
 *
 * Context: process.
 */
void filter_hook_metrics(struct seq_file *m)
{
	unsigned int i;

	seq_puts(m, "# TYPE packetflow_filter_dropped counter\n"
		    "# HELP packetflow_filter_dropped Packets dropped early.\n");
	for (i = 0; i < PFLOW_DROPS; i++)
		seq_printf(m, "packetflow_filter_dropped_total{reason=\"%s\"} %llu\n",
			   outcome_names[i], counter_sum(&outcomes[i]));
	seq_puts(m, "# TYPE packetflow_filter_observed counter\n"
		    "# HELP packetflow_filter_observed Packets that mode=enforce would have dropped.\n");
	for (i = 0; i < PFLOW_DROPS; i++)
		seq_printf(m, "packetflow_filter_observed_total{reason=\"%s\"} %llu\n",
			   outcome_names[i], counter_sum(&observed[i]));
	seq_puts(m, "# TYPE packetflow_filter_passed counter\n"
		    "# HELP packetflow_filter_passed Packets looked at and let through.\n");
	for (i = FILTER_PASS; i < FILTER_OUTCOMES; i++)
		seq_printf(m, "packetflow_filter_passed_total{reason=\"%s\"} %llu\n",
			   outcome_names[i], counter_sum(&outcomes[i]));
	seq_printf(m, "# TYPE packetflow_filter_hooked gauge\n"
		   "# HELP packetflow_filter_hooked 1 while packets pass the hook.\n"
		   "packetflow_filter_hooked %u\n", READ_ONCE(hooks_wanted));
}
