// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nets: in which network namespaces our hooks are.
 *
 * Even a hook that does nothing costs a packet 1 or 2 % of its receive side. So the hooks are in
 * every namespace while a CPU's packets are looked at, or were a moment ago, and in none else.
 * One more is ahead of connection tracking (ahead.c), only where connections are tracked.
 *
 * The estimator's thread sees to the oldest namespaces itself, of which the host's is the first: a
 * worker runs 0.1 s late on a CPU that is overloaded, and hardly at all where softirqs take it all.
 * A worker sees to the others, as anybody can make any number of them. A new one is met by the next
 * walk, a tenth of a second later.
 *
 * A namespace's hooks are removed before it goes (pernet exit), all of them before the module goes.
 * A packet that is under way in one as it is removed uses nothing that goes before a grace
 * period is over.
 *
 * Context: process, may sleep, under hooks_lock.
 */
#include <linux/mutex.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <linux/rtnetlink.h>
#include <linux/workqueue.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>

#include "filter.h"

#define NETS_AT_ONCE	256	/* of a few microseconds each when they are hooked */

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

static const struct nf_hook_ops ahead_hooks[] = {
	{
		.hook = filter_ahead_hook,
		.pf = NFPROTO_IPV4,
		.hooknum = NF_INET_PRE_ROUTING,
		.priority = NF_IP_PRI_CONNTRACK - 1,
	}, {
		.hook = filter_ahead_hook,
		.pf = NFPROTO_IPV6,
		.hooknum = NF_INET_PRE_ROUTING,
		.priority = NF_IP6_PRI_CONNTRACK - 1,
	},
};

/* What a namespace has. */
struct filter_net {
	bool hooked;
	bool ahead;
};

static unsigned int filter_net_id;
static DEFINE_MUTEX(hooks_lock);
static bool hooks_wanted;
static bool hooks_asked;	/* as the estimator told last */
static struct workqueue_struct *queue;

/* Are connections tracked here? Its hook is there then, by its priority. */
static bool net_tracks(const struct net *net)
{
	bool tracks;

	rcu_read_lock();
	tracks = hooked_at(rcu_dereference(net->nf.hooks_ipv4[NF_INET_PRE_ROUTING]),
			   NF_IP_PRI_CONNTRACK) ||
		 hooked_at(rcu_dereference(net->nf.hooks_ipv6[NF_INET_PRE_ROUTING]),
			   NF_IP6_PRI_CONNTRACK);
	rcu_read_unlock();
	return tracks;
}

/* If memory is short, they are not there, and the next round tries again. */
static void net_set_hooks(struct net *net, bool *there, bool on, const struct nf_hook_ops *ops,
			  unsigned int n)
{
	lockdep_assert_held(&hooks_lock);
	if (*there == on)
		return;
	if (!on)
		nf_unregister_net_hooks(net, ops, n);
	else if (nf_register_net_hooks(net, ops, n))
		return;
	*there = on;
}

/* Return: whether it is hooked ahead of tracking. */
static bool net_set_hooked(struct net *net, bool on)
{
	struct filter_net *ours = net_generic(net, filter_net_id);
	bool ahead = on && !IS_ENABLED(CONFIG_PREEMPT_RT) && net_tracks(net);

	net_set_hooks(net, &ours->hooked, on, hooks, ARRAY_SIZE(hooks));
	net_set_hooks(net, &ours->ahead, ahead, ahead_hooks, ARRAY_SIZE(ahead_hooks));
	return ours->ahead;
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
	.pre_exit = filter_net_pre_exit,
	.exit = filter_net_exit,
	.id = &filter_net_id,
	.size = sizeof(struct filter_net),
};

/*
 * As many as that, the oldest first. A namespace leaves the list before its exit function is
 * called. One that was not there yet is hooked in the next round. Return: whether any is hooked
 * ahead.
 */
static bool nets_set_hooked(bool on, unsigned int most)
{
	bool ahead = false;
	struct net *net;

	lockdep_assert_held(&hooks_lock);
	lockdep_assert_held_read(&net_rwsem);
	for_each_net(net) {
		if (!most--)
			break;
		ahead |= net_set_hooked(net, on);
	}
	return ahead;
}

static void nets_follow(struct work_struct *work)
{
	bool on = READ_ONCE(hooks_asked), ahead;

	mutex_lock(&hooks_lock);
	down_read(&net_rwsem);
	ahead = nets_set_hooked(on, UINT_MAX);
	up_read(&net_rwsem);
	tracked_use(ahead);
	WRITE_ONCE(hooks_wanted, on);
	mutex_unlock(&hooks_lock);
}

static DECLARE_WORK(nets_work, nets_follow);

/**
 * filter_nets_watch() - be in every network namespace, or in none
 * @on: whether; if not, the hooks stay while packets may wait in queues of user space (queued.c)
 *
 * Context: process, may sleep; told every now and then.
 */
void filter_nets_watch(bool on)
{
	/* To leave would drop what waits for user space. */
	if (!on && filter_queues_exist())
		return;
	WRITE_ONCE(hooks_asked, on);
	if (!on && !READ_ONCE(hooks_wanted))
		return;
	/* Who has a lock may have no CPU. */
	if (mutex_trylock(&hooks_lock)) {
		if (on)
			WRITE_ONCE(hooks_wanted, true);
		if (down_read_trylock(&net_rwsem)) {
			if (nets_set_hooked(on, NETS_AT_ONCE))
				tracked_use(true);
			up_read(&net_rwsem);
		}
		mutex_unlock(&hooks_lock);
	}
	queue_work(queue, &nets_work);
}

/**
 * filter_nets_setup() - get ready to hook into every network namespace, present and future
 *
 * Context: process, may sleep. Return: 0 or a negative error.
 */
int filter_nets_setup(void)
{
	int err = flows_setup();

	if (err)
		return err;
	err = wires_setup();
	if (err)
		goto flows;
	err = replies_setup();
	if (err)
		goto wires;
	/* Beside receivers that want all of a CPU, an ordinary worker would come late. */
	queue = alloc_workqueue("packetflow_nets", WQ_UNBOUND | WQ_HIGHPRI, 1);
	if (!queue) {
		err = -ENOMEM;
		goto replies;
	}
	hooks_wanted = false;
	trails_setup();
	err = register_pernet_subsys(&net_ops);
	if (!err)
		return 0;
	destroy_workqueue(queue);
replies:
	replies_teardown();
wires:
	wires_teardown();
flows:
	flows_teardown();
	return err;
}

/**
 * filter_nets_teardown() - leave every network namespace
 *
 * Context: process, may sleep; filter_nets_watch() is called no more. No packet is in the hook when
 * it returns.
 */
void filter_nets_teardown(void)
{
	cancel_work_sync(&nets_work);
	destroy_workqueue(queue);
	unregister_pernet_subsys(&net_ops);
	synchronize_net();
	mutex_lock(&hooks_lock);
	tracked_use(false);
	mutex_unlock(&hooks_lock);
	replies_teardown();
	wires_teardown();
	flows_teardown();
}

/**
 * filter_nets_metrics() - whether packets pass our hooks, for machines
 * @m: where to
 *
 * Context: process.
 */
void filter_nets_metrics(struct seq_file *m)
{
	seq_printf(m, "# TYPE packetflow_filter_hooked gauge\n"
		   "# HELP packetflow_filter_hooked 1 while packets pass the hook.\n"
		   "packetflow_filter_hooked %u\n", READ_ONCE(hooks_wanted));
}
