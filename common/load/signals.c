// SPDX-License-Identifier: GPL-2.0-only
/*
 * Signals of overload, each where it arises. Overload belongs to a CPU and its queues.
 *
 *  - A receive queue that stands full. One NAPI poll that uses its whole weight is normal in a
 *    burst. Polls that do so one after another for longer than STANDING_NS, and never find the
 *    queue empty, are a standing queue (the idea of CoDel). A virtio ring has no other signal, as
 *    it overflows in the host, where the guest does not see it. Busy polling and netpoll use
 *    budgets of their own and do not count. Nor does the backlog, which has no device; its drops
 *    are counted instead. A driver uses its whole weight, too, while it has not finished with what
 *    was sent. Such a poll has received nothing, and does not count.
 *  - Drops in the backlog (softnet_data), drops of a device whose queue stands full, and
 *    time_squeeze, which only says that it is worth looking.
 *  - Drops at a socket buffer. A drop passes a tracepoint, which costs nothing while nothing is
 *    dropped.
 *
 * There is one more signal: a receiver that waits and loses nothing (waiting.c).
 *
 * Context: NAPI polls run with softirqs off, drops at a socket in softirq or
 * process context; these probes touch their own CPU's data. Counters are read by the estimator's
 * thread.
 */
#include <linux/netdevice.h>
#include <linux/sched/clock.h>
#include <linux/tracepoint.h>
#include <net/net_namespace.h>
#include <trace/events/napi.h>
#include <trace/events/skb.h>

#include "../compat/compat.h"
#include "../internal.h"

#define STANDING_NS	(5 * NSEC_PER_MSEC)	/* longer than a burst lasts; CoDel's target */
#define CHAIN_GAP_NS	(50 * NSEC_PER_MSEC)	/* polls further apart are no chain */
#define POLLED_FEW	64	/* fewer packets tell nothing of what one costs */
#define NETS_MOST	1024	/* namespaces searched for a device, as users can make any number */

/* Counters of the kernel as they were last seen. */
struct seen {
	unsigned int dropped;
	unsigned int squeezed;
	const void *dev;
	u64 dev_lost;
	u64 softirq_ns;
	u32 polled;
};

static DEFINE_PER_CPU(struct seen, seen);
static struct napi_struct *ignored __read_mostly;	/* only compared */

/**
 * pflow_load_ignore() - do not count polls of a NAPI instance that brings no packets
 * @napi: it only continues what came before; NULL: there is none any more
 *
 * Context: process.
 */
void pflow_load_ignore(struct napi_struct *napi)
{
	WRITE_ONCE(ignored, napi);
}
EXPORT_SYMBOL_GPL(pflow_load_ignore);

static void device_note(struct pflow_device *noted, const struct net_device *dev)
{
	WRITE_ONCE(noted->dev, dev);
	WRITE_ONCE(noted->net, dev_net(dev));
	WRITE_ONCE(noted->ifindex, dev->ifindex);
}

/*
 * Has a device brought this CPU anything since the last call? The kernel counts the packets that it
 * hands to its protocols, except those that GRO keeps until the poll is over. If it may hand
 * packets to other CPUs (RPS), these count them, and nobody can tell here.
 */
static bool chain_has_received(struct pflow_load *load)
{
	u32 received = this_cpu_read(softnet_data.processed) - load->backlogged + load->frames;
	bool any = received != load->chain_received;

	load->chain_received = received;
	return any || pflow_rps_is_used();
}

/* Do the polls go on for longer than a burst lasts? */
static bool chain_stands(const struct pflow_load *load)
{
	return READ_ONCE(load->chain_last) - READ_ONCE(load->chain_start) > STANDING_NS;
}

static noinline void chain_note_full_poll(struct pflow_load *load, const struct napi_struct *napi)
{
	u64 now = local_clock();
	bool alive = load->chain_id && now - load->chain_last < CHAIN_GAP_NS;

	/* Of two full queues on one CPU, watching one is enough. */
	if (alive && load->chain_id != napi)
		return;
	if (!chain_has_received(load)) {
		WRITE_ONCE(load->chain_id, NULL);
		return;
	}
	if (!alive) {
		WRITE_ONCE(load->chain_id, napi);
		device_note(&load->chain_dev, napi->dev);
		WRITE_ONCE(load->chain_start, now);
	} else if (now - load->chain_start > STANDING_NS) {
		u64 since = load->chain_last;

		if (!chain_stands(load))
			since = load->chain_start;
		WRITE_ONCE(load->standing_ns, load->standing_ns + now - since);
		pflow_load_raise(smp_processor_id());
	}
	WRITE_ONCE(load->chain_last, now);
}

static void on_napi_poll(void *unused, struct napi_struct *napi, int work, int budget)
{
	struct pflow_load *load = this_cpu_ptr(&pflow_load);

	if (unlikely(napi == READ_ONCE(ignored)))
		return;
	WRITE_ONCE(load->polled, load->polled + work);
	if (!napi->dev) {
		load->backlogged += work;
	} else if (work) {
		/* By devices that a user makes in a namespace of his own he sends to himself. */
		if (dev_net(napi->dev)->user_ns == &init_user_ns || napi->dev->dev.parent)
			load->device_polls++;
		if (load->polled_dev.dev != napi->dev) {
			device_note(&load->polled_dev, napi->dev);
			WRITE_ONCE(load->turned_at, (u32)jiffies);
		}
		if (load->polled_at != (u32)jiffies) {
			/* It may have moved to another namespace. */
			device_note(&load->polled_dev, napi->dev);
			WRITE_ONCE(load->polled_at, (u32)jiffies);
		}
	}
	if (likely(work < budget)) {
		if (unlikely(load->chain_id == napi) && budget == napi->weight)
			WRITE_ONCE(load->chain_id, NULL);
		return;
	}
	if (napi->dev && budget && budget == napi->weight)
		chain_note_full_poll(load, napi);
}

static void on_kfree_skb(PFLOW_KFREE_SKB_ARGS)
{
	if (unlikely(reason == SKB_DROP_REASON_SOCKET_RCVBUFF))
		pflow_load_hint(raw_smp_processor_id());
}

static u64 device_losses(struct net_device *dev)
{
	struct rtnl_link_stats64 stats;

	dev_get_stats(dev, &stats);
	/* Not rx_dropped: frames of unknown protocols and the backlog are in it. */
	return stats.rx_missed_errors + stats.rx_fifo_errors + stats.rx_over_errors;
}

/**
 * pflow_device_find() - find a device that may be gone
 * @noted: where it was; others may be noted there meanwhile
 * @wanted: it; only compared
 *
 * It is found by its number, since a namespace may have any number of devices. Of the namespaces
 * the oldest are searched, and the host's is the first. So it does not matter how many users make.
 *
 * Context: RCU read side. Return: it, or NULL if there is none any more.
 */
struct net_device *pflow_device_find(const struct pflow_device *noted, const void *wanted)
{
	const void *in = READ_ONCE(noted->net);
	unsigned int nets = NETS_MOST;
	struct net_device *dev;
	struct net *net;

	for_each_net_rcu(net) {
		if (!nets--)
			break;
		if (net != in)
			continue;
		dev = dev_get_by_index_rcu(net, READ_ONCE(noted->ifindex));
		return dev == wanted ? dev : NULL;
	}
	return NULL;
}

static bool device_find_losses(const struct pflow_device *noted, const void *wanted, u64 *losses)
{
	struct net_device *dev;

	rcu_read_lock();
	dev = pflow_device_find(noted, wanted);
	if (dev)
		*losses = device_losses(dev);
	rcu_read_unlock();
	return dev;
}

static void device_check_losses(int cpu, struct pflow_load *load, struct seen *last)
{
	const void *dev = READ_ONCE(load->chain_dev.dev);
	s64 age = local_clock() - READ_ONCE(load->chain_last);
	u64 losses;

	/* Another CPU may have a queue of the same device that overflows. */
	if (!READ_ONCE(load->chain_id) || age > CHAIN_GAP_NS || !chain_stands(load) ||
	    !device_find_losses(&load->chain_dev, dev, &losses)) {
		last->dev = NULL;
		return;
	}
	if (last->dev == dev && losses > last->dev_lost) {
		WRITE_ONCE(load->lost, load->lost + (u32)(losses - last->dev_lost));
		pflow_load_raise(cpu);
	}
	last->dev = dev;
	last->dev_lost = losses;
}

/* What a packet costs the CPU in softirqs, as long as that is measured. */
static void load_note_packet_ns(struct pflow_load *load, struct seen *last)
{
	u64 softirq_ns = READ_ONCE(load->softirq_ns);
	u32 polled = READ_ONCE(load->polled);
	u64 packet_ns;

	/* While nobody measures, packets go by that cost nothing. */
	if (softirq_ns == last->softirq_ns)
		last->polled = polled;
	if (polled - last->polled < POLLED_FEW)
		return;
	packet_ns = div_u64(softirq_ns - last->softirq_ns, polled - last->polled);
	WRITE_ONCE(load->packet_ns, min_t(u64, packet_ns, U32_MAX));
	last->softirq_ns = softirq_ns;
	last->polled = polled;
}

/**
 * pflow_signals_read() - read the kernel's counters for a CPU, and raise its pressure if need be
 * @cpu: which; it may be offline
 *
 * Context: the estimator's thread.
 */
void pflow_signals_read(int cpu)
{
	struct softnet_data *sd = per_cpu_ptr(&softnet_data, cpu);
	struct pflow_load *load = per_cpu_ptr(&pflow_load, cpu);
	struct seen *last = per_cpu_ptr(&seen, cpu);
	unsigned int dropped = pflow_softnet_dropped(sd);
	unsigned int squeezed = READ_ONCE(sd->time_squeeze);

	if (dropped != last->dropped) {
		WRITE_ONCE(load->lost, load->lost + dropped - last->dropped);
		pflow_load_raise(cpu);
	} else if (squeezed != last->squeezed) {
		pflow_load_hint(cpu);
	}
	last->dropped = dropped;
	last->squeezed = squeezed;
	load_note_packet_ns(load, last);
	device_check_losses(cpu, load, last);
}

/**
 * pflow_signals_setup() - watch for signals
 *
 * Context: process, may sleep. Return: 0 or a negative error, and then nothing is left attached.
 */
int pflow_signals_setup(void)
{
	int cpu, err;

	for_each_possible_cpu(cpu) {
		struct softnet_data *sd = per_cpu_ptr(&softnet_data, cpu);
		struct seen *last = per_cpu_ptr(&seen, cpu);

		memset(last, 0, sizeof(*last));
		last->dropped = pflow_softnet_dropped(sd);
		last->squeezed = sd->time_squeeze;
	}
	err = register_trace_napi_poll(on_napi_poll, NULL);
	if (err)
		return err;
	err = register_trace_kfree_skb(on_kfree_skb, NULL);
	if (err) {
		unregister_trace_napi_poll(on_napi_poll, NULL);
		tracepoint_synchronize_unregister();
	}
	return err;
}

/**
 * pflow_signals_teardown() - stop that
 *
 * Context: process, may sleep. No probe runs when it returns.
 */
void pflow_signals_teardown(void)
{
	unregister_trace_kfree_skb(on_kfree_skb, NULL);
	unregister_trace_napi_poll(on_napi_poll, NULL);
	tracepoint_synchronize_unregister();
}
