// SPDX-License-Identifier: GPL-2.0-only
/*
 * A network device that is polled as it is told to be, for a while, when the module is loaded: as
 * one whose driver has not finished with what it sent, or whose queue stands full. It never stays
 * loaded.
 */
#include <linux/delay.h>
#include <linux/etherdevice.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/timer.h>

#define NOBODYS	0x88b5	/* a protocol of frames that nobody listens to */
#define LENGTH	60

static unsigned int for_ms = 500;
module_param(for_ms, uint, 0);
MODULE_PARM_DESC(for_ms, "how long the device is there");
static unsigned int poll_ms = 1;
module_param(poll_ms, uint, 0);
MODULE_PARM_DESC(poll_ms, "how long a poll takes that uses its whole weight");
static bool brings;
module_param(brings, bool, 0);
MODULE_PARM_DESC(brings, "such a poll brings packets");
static bool once;
module_param(once, bool, 0);
MODULE_PARM_DESC(once, "every second poll finds the queue empty");
static bool loses;
module_param(loses, bool, 0);
MODULE_PARM_DESC(loses, "the device loses packets all the time");

struct ring {
	struct net_device *dev;
	struct napi_struct napi;
	struct timer_list timer;
	unsigned long began;
	bool emptied;
};

/* It has no other. */
static struct ring *the_ring;

static void ring_bring(struct net_device *dev, int packets)
{
	for (; packets; packets--) {
		struct sk_buff *skb = netdev_alloc_skb(dev, ETH_HLEN + LENGTH);

		if (!skb)
			return;
		skb_put_zero(skb, ETH_HLEN + LENGTH);
		eth_type_trans(skb, dev);
		skb->protocol = htons(NOBODYS);
		netif_receive_skb(skb);
	}
}

static int ring_poll(struct napi_struct *napi, int budget)
{
	struct ring *ring = container_of(napi, struct ring, napi);

	ring->emptied = once && !ring->emptied;
	if (once && !ring->emptied) {
		napi_complete_done(napi, 0);
		return 0;
	}
	if (time_after(jiffies, ring->began + msecs_to_jiffies(for_ms))) {
		napi_complete_done(napi, 0);
		return 0;
	}
	if (brings)
		ring_bring(ring->dev, budget);
	mdelay(poll_ms);
	return budget;
}

static void on_time(struct timer_list *unused)
{
	napi_schedule(&the_ring->napi);
	mod_timer(&the_ring->timer, jiffies + 1);
}

static netdev_tx_t ring_xmit(struct sk_buff *skb, struct net_device *dev)
{
	dev_kfree_skb(skb);
	return NETDEV_TX_OK;
}

static void ring_stats(struct net_device *dev, struct rtnl_link_stats64 *stats)
{
	if (loses)
		stats->rx_missed_errors = jiffies - the_ring->began;
}

static int ring_open(struct net_device *dev)
{
	napi_enable(&the_ring->napi);
	mod_timer(&the_ring->timer, jiffies + 1);
	return 0;
}

static int ring_stop(struct net_device *dev)
{
	timer_delete_sync(&the_ring->timer);
	napi_disable(&the_ring->napi);
	return 0;
}

static const struct net_device_ops ring_ops = {
	.ndo_open = ring_open,
	.ndo_stop = ring_stop,
	.ndo_start_xmit = ring_xmit,
	.ndo_get_stats64 = ring_stats,
};

static int __init ring_init(void)
{
	struct net_device *dev = alloc_etherdev(sizeof(struct ring));
	int err;

	if (!dev)
		return -ENOMEM;
	the_ring = netdev_priv(dev);
	the_ring->dev = dev;
	the_ring->began = jiffies;
	timer_setup(&the_ring->timer, on_time, 0);
	dev->netdev_ops = &ring_ops;
	eth_hw_addr_random(dev);
	netif_napi_add(dev, &the_ring->napi, ring_poll);
	err = register_netdev(dev);
	if (!err) {
		rtnl_lock();
		err = dev_open(dev, NULL);
		rtnl_unlock();
		msleep(for_ms);
		unregister_netdev(dev);
	}
	netif_napi_del(&the_ring->napi);
	free_netdev(dev);
	return err ?: -ECANCELED;
}
module_init(ring_init);

MODULE_DESCRIPTION("A network device that is polled as it is told to be");
MODULE_LICENSE("GPL");
