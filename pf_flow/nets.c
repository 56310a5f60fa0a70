// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nets: network namespaces, their hooks and their devices.
 *
 * A namespace has our hooks while it has flows and the suite runs, so others pay nothing. Flows
 * stay while the suite is switched off, as settings do.
 *
 * A device goes, or moves to another namespace: the kernel takes it down and waits for a grace
 * period before NETDEV_UNREGISTER. Packets of a device that is down may still come (the members of
 * a bond go later than the bond), but none waits (admit.c). So what waits by then is all that will,
 * and is dropped. What is just being continued is waited for, as the kernel does not for a device
 * that moves. A namespace goes: its hooks go first (pre_exit), its devices next, its flows last,
 * so that nothing is left that waits in them.
 *
 * flow_mutex is inside the mutex of all modules and that of namespaces. It is neither taken under
 * the RTNL lock nor the other way round: flows are found under RCU when a device goes.
 *
 * Context: process, may sleep, under flow_mutex, which is taken here, unless said otherwise.
 */
#include <linux/delay.h>
#include <linux/netdevice.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <linux/slab.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>

#include "flow.h"

#define DRAIN_MS	100	/* what waits has so long to leave before others are dropped */

static const struct nf_hook_ops hooks[FLOW_HOOKS] = {
	{
		.hook = flow_hook_early,
		.pf = NFPROTO_IPV4,
		.hooknum = NF_INET_PRE_ROUTING,
		.priority = NF_IP_PRI_CONNTRACK - 1,
	}, {
		.hook = flow_hook_early,
		.pf = NFPROTO_IPV6,
		.hooknum = NF_INET_PRE_ROUTING,
		.priority = NF_IP6_PRI_CONNTRACK - 1,
	},
	{
		.hook = flow_hook,
		.pf = NFPROTO_IPV4,
		.hooknum = NF_INET_PRE_ROUTING,
		.priority = NF_IP_PRI_LAST,
	}, {
		.hook = flow_hook,
		.pf = NFPROTO_IPV6,
		.hooknum = NF_INET_PRE_ROUTING,
		.priority = NF_IP6_PRI_LAST,
	},
};

DEFINE_MUTEX(flow_mutex);	/* for tables, namespaces, and the switch */
static LIST_HEAD(nets);
static unsigned int flow_net_id;
static u32 nr_flows;		/* in all namespaces; read by anybody */
static bool running;

/**
 * flow_net_of() - what we have of a namespace
 * @net: it
 *
 * Context: any, while the namespace is there. Return: it.
 */
struct flow_net *flow_net_of(const struct net *net)
{
	return net_generic(net, flow_net_id);
}

/**
 * flow_net_set_number() - a namespace has so many flows from now on
 * @ours: it
 * @number: how many
 *
 * Context: process, under flow_mutex.
 */
void flow_net_set_number(struct flow_net *ours, u32 number)
{
	lockdep_assert_held(&flow_mutex);
	WRITE_ONCE(nr_flows, nr_flows - ours->number + number);
	ours->number = number;
}

/**
 * flow_nets_flows() - how many flows there are
 *
 * Context: any. Return: in all namespaces.
 */
u32 flow_nets_flows(void)
{
	return READ_ONCE(nr_flows);
}

static void net_unhook(struct flow_net *ours)
{
	lockdep_assert_held(&flow_mutex);
	if (ours->hooked)
		nf_unregister_net_hooks(ours->net, ours->hooks, FLOW_HOOKS);
	ours->hooked = false;
}

static int net_hook(struct flow_net *ours)
{
	int err = 0;

	lockdep_assert_held(&flow_mutex);
	if (running && !ours->hooked)
		err = nf_register_net_hooks(ours->net, ours->hooks, FLOW_HOOKS);
	if (running && !err)
		ours->hooked = true;
	return err;
}

/**
 * flow_net_hook() - a namespace is about to have flows
 * @ours: it
 * @more: flows, besides those that are there
 *
 * Context: process, may sleep, under flow_mutex. Return: 0 or a negative error.
 */
int flow_net_hook(struct flow_net *ours, u32 more)
{
	lockdep_assert_held(&flow_mutex);
	return flow_server_room(flow_nets_flows() + more) ?: more ? net_hook(ours) : 0;
}

/**
 * flow_net_unhook_unused() - a namespace may have no flows any more
 * @ours: it
 *
 * Context: process, may sleep, under flow_mutex.
 */
void flow_net_unhook_unused(struct flow_net *ours)
{
	lockdep_assert_held(&flow_mutex);
	if (!ours->number)
		net_unhook(ours);
}

static int flow_net_init(struct net *net)
{
	struct flow_net *ours = flow_net_of(net);
	unsigned int i;

	ours->net = net;
	INIT_LIST_HEAD(&ours->flows);
	for (i = 0; i < FLOW_HOOKS; i++) {
		ours->hooks[i] = hooks[i];
		ours->hooks[i].priv = ours;
	}
	mutex_lock(&flow_mutex);
	list_add_tail(&ours->list, &nets);
	mutex_unlock(&flow_mutex);
	return 0;
}

/* The kernel waits for a grace period after it. */
static void flow_net_pre_exit(struct net *net)
{
	mutex_lock(&flow_mutex);
	net_unhook(flow_net_of(net));
	mutex_unlock(&flow_mutex);
}

static void flow_net_exit(struct net *net)
{
	struct flow_net *ours = flow_net_of(net);
	struct flow *flow, *next;

	mutex_lock(&flow_mutex);
	list_del(&ours->list);
	flow_net_set_number(ours, 0);
	flow_table_free(rcu_replace_pointer(ours->table, NULL, lockdep_is_held(&flow_mutex)));
	list_for_each_entry_safe(flow, next, &ours->flows, list) {
		flow_continue_all(flow);
		list_del_rcu(&flow->list);
		/* The server may still be about to give back its lock. */
		kfree_rcu(flow, rcu);
	}
	mutex_unlock(&flow_mutex);
}

static struct pernet_operations net_ops = {
	.init = flow_net_init,
	.pre_exit = flow_net_pre_exit,
	.exit = flow_net_exit,
	.id = &flow_net_id,
	.size = sizeof(struct flow_net),
};

/* Under the RTNL lock. */
static int flow_on_device(struct notifier_block *unused, unsigned long event, void *info)
{
	const struct net_device *dev = netdev_notifier_info_to_dev(info);
	struct flow *flow;

	if (event != NETDEV_UNREGISTER && event != NETDEV_DOWN)
		return NOTIFY_DONE;
	/* Who saw the device when it was up has been waited for, so none more waits from now on. */
	if (!flow_server_waiting())
		return NOTIFY_DONE;
	rcu_read_lock();
	list_for_each_entry_rcu(flow, &flow_net_of(dev_net(dev))->flows, list)
		flow_forget_device(flow, dev);
	rcu_read_unlock();
	if (event == NETDEV_UNREGISTER)
		synchronize_net();
	return NOTIFY_DONE;
}

static struct notifier_block device_notifier = {
	.notifier_call = flow_on_device,
};

static void nets_set_door(enum flow_door door)
{
	struct flow_net *ours;
	struct flow *flow;

	lockdep_assert_held(&flow_mutex);
	list_for_each_entry(ours, &nets, list)
		list_for_each_entry(flow, &ours->flows, list)
			flow_set_door(flow, door);
}

/**
 * flow_nets_start() - be in each namespace that has flows
 *
 * Context: process, may sleep; takes flow_mutex. Return: 0 or a negative error, and then we are
 * in none.
 */
int flow_nets_start(void)
{
	struct flow_net *ours;
	int err = flow_server_start();

	if (err)
		return err;
	mutex_lock(&flow_mutex);
	nets_set_door(FLOW_CONTROLLED);
	running = true;
	list_for_each_entry(ours, &nets, list) {
		/* One that goes has had its hooks taken away. */
		if (ours->number && check_net(ours->net) && !err)
			err = net_hook(ours);
	}
	mutex_unlock(&flow_mutex);
	if (err)
		flow_nets_stop();
	return err;
}

/**
 * flow_nets_stop() - be in no namespace any more
 *
 * What waits is continued in order: for a moment while whatever comes is still put behind it. If a
 * flow is sent more than that, what comes while the rest goes is dropped, so that it overtakes
 * nothing.
 *
 * Context: process, may sleep; takes flow_mutex. No packet is in a hook or waits when it returns.
 */
void flow_nets_stop(void)
{
	struct flow_net *ours;
	struct flow *flow;
	int waited;

	mutex_lock(&flow_mutex);
	nets_set_door(FLOW_OPEN);
	for (waited = 0; flow_server_waiting() && waited < DRAIN_MS; waited++)
		usleep_range(1000, 1500);
	nets_set_door(FLOW_SHUT);
	list_for_each_entry(ours, &nets, list)
		list_for_each_entry(flow, &ours->flows, list)
			flow_continue_all(flow);
	running = false;
	list_for_each_entry(ours, &nets, list)
		net_unhook(ours);
	/* Before somebody else changes a table: who is still in a hook finds shut doors. */
	synchronize_net();
	mutex_unlock(&flow_mutex);
	flow_server_stop();
}

/**
 * flow_nets_setup() - know all namespaces and devices
 *
 * Context: process, may sleep. Return: 0 or a negative error.
 */
int flow_nets_setup(void)
{
	int err = register_pernet_subsys(&net_ops);

	if (err)
		return err;
	err = register_netdevice_notifier(&device_notifier);
	if (err)
		unregister_pernet_subsys(&net_ops);
	return err;
}

/**
 * flow_nets_teardown() - forget all namespaces, and with them their flows
 *
 * Context: process, may sleep; we are in none.
 */
void flow_nets_teardown(void)
{
	unregister_netdevice_notifier(&device_notifier);
	unregister_pernet_subsys(&net_ops);
}
