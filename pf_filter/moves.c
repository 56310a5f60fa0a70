// SPDX-License-Identifier: GPL-2.0-only
/*
 * Moves: an address of a container is found at another place than before.
 *
 * Routes tell by themselves when they change (trail.c). Below them, a neighbour may get another
 * hardware address, and a bridge may find one at another port; both tell whoever asks.
 *
 * Context: notifiers of the kernel: softirq or process, not to sleep; setup in process context.
 */
#include <linux/notifier.h>
#include <net/ipv6.h>
#include <net/neighbour.h>
#include <net/netevent.h>
#include <net/switchdev.h>

#include "filter.h"

/* Of atomic notifiers; the neighbour is held. */
static int on_netevent(struct notifier_block *nb, unsigned long event, void *data)
{
	u8 hardware[ALIGN(MAX_ADDR_LEN, sizeof(unsigned long))];
	struct neighbour *neighbour = data;
	struct in6_addr local;

	if (event != NETEVENT_NEIGH_UPDATE)
		return NOTIFY_DONE;
	if (neighbour->tbl->family == AF_INET)
		ipv6_addr_set_v4mapped(*(__be32 *)neighbour->primary_key, &local);
	else if (neighbour->tbl->family == AF_INET6)
		local = *(struct in6_addr *)neighbour->primary_key;
	else
		return NOTIFY_DONE;
	neigh_ha_snapshot(hardware, neighbour, neighbour->dev);
	filter_trails_moved(dev_net(neighbour->dev), &local, hardware);
	return NOTIFY_DONE;
}

/* Of atomic notifiers, in softirq where a bridge learns from a packet. */
static int on_switchdev(struct notifier_block *nb, unsigned long event, void *data)
{
	const struct switchdev_notifier_fdb_info *fdb = data;

	if (event == SWITCHDEV_FDB_ADD_TO_DEVICE || event == SWITCHDEV_FDB_DEL_TO_DEVICE)
		filter_trails_moved(dev_net(fdb->info.dev), NULL, fdb->addr);
	return NOTIFY_DONE;
}

static struct notifier_block netevents = { .notifier_call = on_netevent };
static struct notifier_block switchdevs = { .notifier_call = on_switchdev };

/**
 * filter_moves_setup() - be told of moves from now on
 *
 * Context: process, may sleep. Return: 0 or a negative error.
 */
int filter_moves_setup(void)
{
	int err = register_netevent_notifier(&netevents);

	if (err)
		return err;
	err = register_switchdev_notifier(&switchdevs);
	if (err == -EOPNOTSUPP)		/* not built: no trail leads over a bridge (meet.c) */
		err = 0;
	if (err)
		unregister_netevent_notifier(&netevents);
	return err;
}

/**
 * filter_moves_teardown() - be told no more
 *
 * Context: process, may sleep. Neither notifier runs when it returns: removing one from an
 * atomic chain waits for a grace period.
 */
void filter_moves_teardown(void)
{
	unregister_switchdev_notifier(&switchdevs);
	unregister_netevent_notifier(&netevents);
}
