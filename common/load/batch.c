// SPDX-License-Identifier: GPL-2.0-only
/*
 * Batches: while a CPU is pressed, the interrupts of its network device are put off.
 *
 * A receiver that gets all that it is sent has an empty buffer, so it is woken for every
 * packet or two. When the device is polled once per `batch_us` instead, the receiver is woken once
 * for all packets that came meanwhile, and the device interrupts once. The kernel has the means
 * (gro_flush_timeout and napi_defer_hard_irqs of a device). They are used only while a CPU is
 * pressed and busy.
 *
 * A batch delays packets, by no more than the knob allows. So a device has none if its packets are
 * for a real-time receiver, for one that polls, or for a TCP receiver, whose peer may wait for
 * each answer. A receiver that polls does so at one queue of one device, so the other devices keep
 * their batches. A device whose values an administrator has set is left as it is. A device of
 * several queues is polled by several CPUs. Then all of them must want batches.
 *
 * Context: the estimator's thread, which must not wait for the RTNL lock: what cannot be done
 * now is done a round later. Writers of the table hold the RTNL lock and the table's own lock. A
 * reader of status takes only the second. The table holds a reference to each device in it. A
 * device is taken out when it is unregistered (the notifier), or when the module is unloaded. It
 * stays when it moves to another namespace.
 */
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <linux/rtnetlink.h>
#include <linux/spinlock.h>
#include <net/busy_poll.h>
#include <net/net_namespace.h>

#include "../compat/compat.h"
#include "../internal.h"

#define DEVICES		16	/* more are left as they are */
#define DEFER		2	/* so many looks in vain, then its interrupts are on again */
#define LINGER		HZ	/* jiffies for which a batch goes on after it was last wanted */
#define PROMPT_FOR	(60 * HZ)	/* twice as long as scans are apart */
#define POLLED		64	/* queues that are remembered; a power of two */

/**
 * struct batched - a device whose interrupts are put off
 * @dev: it; NULL: this slot is free
 * @tracker: of the reference
 * @ns: for how long
 * @wanted_at: jiffies when it was last wanted
 */
struct batched {
	struct net_device *dev;
	netdevice_tracker tracker;
	unsigned long ns;
	u32 wanted_at;
};

/* jiffies when a receiver was last known that wants packets at once, and gets them on any CPU */
u32 pflow_prompt_at;

/**
 * struct polled - a queue that some receiver polls
 * @napi_id: its number
 * @at: stamp of when a receiver was last known to; 0: never
 *
 * It is read and written without a lock. If that mixes the number of one queue with the time of
 * another, a device has no batches for a minute, and no more.
 */
struct polled {
	u32 napi_id;
	u32 at;
};

static struct polled polled[POLLED];
static struct batched batched[DEVICES];
static DEFINE_SPINLOCK(lock);
static unsigned int nr_batched;

static void batch_set_slot(struct batched *slot, struct net_device *dev, unsigned long ns)
{
	spin_lock(&lock);
	slot->dev = dev;
	slot->ns = ns;
	spin_unlock(&lock);
}

static void batch_forget(struct batched *slot)
{
	struct net_device *dev = slot->dev;

	batch_set_slot(slot, NULL, 0);
	netdev_put(dev, &slot->tracker);
	WRITE_ONCE(nr_batched, nr_batched - 1);
}

static void batch_end(struct batched *slot)
{
	pflow_undefer_irqs(slot->dev, slot->ns, DEFER);
	batch_forget(slot);
}

static struct batched *batch_slot_of(const void *dev)
{
	unsigned int i;

	for (i = 0; i < DEVICES; i++)
		if (batched[i].dev == dev)
			return &batched[i];
	return NULL;
}

static bool batch_begin(struct net_device *dev, unsigned long ns)
{
	struct batched *slot = batch_slot_of(NULL);

	if (!slot || !pflow_defer_irqs(dev, ns, DEFER))
		return false;
	netdev_hold(dev, &slot->tracker, GFP_KERNEL);
	slot->wanted_at = jiffies;
	batch_set_slot(slot, dev, ns);
	WRITE_ONCE(nr_batched, nr_batched + 1);
	return true;
}

/**
 * pflow_batch_note_poller() - note that a receiver polls for its packets
 * @napi_id: number of the queue by which it was sent some; less than %MIN_NAPI_ID is none
 *
 * Context: any.
 */
void pflow_batch_note_poller(u32 napi_id)
{
	struct polled *queue = &polled[napi_id % POLLED];
	u32 now = pflow_stamp_now();

	if (napi_id < MIN_NAPI_ID)
		return;
	if (READ_ONCE(queue->napi_id) != napi_id)
		WRITE_ONCE(queue->napi_id, napi_id);
	if (READ_ONCE(queue->at) != now)
		WRITE_ONCE(queue->at, now);
}

/* Does some receiver poll one of this device's queues? */
static bool device_is_polled(const struct net_device *dev)
{
	const struct napi_struct *napi;
	bool found = false;

	rcu_read_lock();
	list_for_each_entry_rcu(napi, &dev->napi_list, dev_list) {
		const struct polled *queue = &polled[napi->napi_id % POLLED];

		found |= READ_ONCE(queue->napi_id) == napi->napi_id &&
			 pflow_within(READ_ONCE(queue->at), PROMPT_FOR);
	}
	rcu_read_unlock();
	return found;
}

/* Does a receiver on this CPU want each packet at once? */
static bool cpu_must_be_prompt(const struct pflow_load *load)
{
	return pflow_within(READ_ONCE(load->prompt_at), PROMPT_FOR) ||
	       pflow_within(READ_ONCE(load->tcp_at), PFLOW_HOLD);
}

/* What a CPU wishes of a device. Of several CPUs the greatest counts. */
enum wish {
	NO_MATTER,
	WANTED,
	UNWANTED,	/* not any more; batches end a while later */
	REFUSED,	/* they end at once */
};

/*
 * Packets for receivers on a CPU come from the device that this CPU polls. If it polls several in
 * turn, or none (RPS), they may come from any device.
 */
static enum wish batch_wish_on_cpu(int cpu, const void *dev)
{
	const struct pflow_load *load = per_cpu_ptr(&pflow_load, cpu);
	bool polls = pflow_within(READ_ONCE(load->polled_at), LINGER);
	bool this = polls && READ_ONCE(load->polled_dev.dev) == dev;

	if (polls && !this && !pflow_within(READ_ONCE(load->turned_at), LINGER))
		return NO_MATTER;
	if (cpu_must_be_prompt(load))
		return REFUSED;
	if (!this)
		return NO_MATTER;
	return READ_ONCE(load->pressed) ? WANTED : UNWANTED;
}

static enum wish batch_wish(const struct net_device *dev)
{
	enum wish wish = NO_MATTER;
	int cpu;

	if (pflow_within(READ_ONCE(pflow_prompt_at), PROMPT_FOR) || device_is_polled(dev))
		return REFUSED;
	for_each_online_cpu(cpu)
		wish = max(wish, batch_wish_on_cpu(cpu, dev));
	return wish;
}

static void batch_refresh(struct batched *slot, unsigned long ns)
{
	enum wish wish = batch_wish(slot->dev);

	if (wish == WANTED)
		slot->wanted_at = jiffies;
	if (wish == REFUSED || slot->ns != ns ||
	    time_after32((u32)jiffies, slot->wanted_at + LINGER))
		batch_end(slot);
}

static bool batch_begin_on_cpu(int cpu, unsigned long ns)
{
	const struct pflow_load *load = per_cpu_ptr(&pflow_load, cpu);
	const void *last = READ_ONCE(load->polled_dev.dev);
	struct net_device *dev;

	if (!READ_ONCE(load->pressed))
		return false;
	if (!last || batch_slot_of(last))
		return false;
	/* It stays while the RTNL lock is held. */
	rcu_read_lock();
	dev = pflow_device_find(&load->polled_dev, last);
	rcu_read_unlock();
	return dev && batch_wish(dev) == WANTED && batch_begin(dev, ns);
}

static bool cpus_any_pressed(const struct cpumask *cpus)
{
	int cpu;

	for_each_cpu(cpu, cpus)
		if (READ_ONCE(per_cpu_ptr(&pflow_load, cpu)->pressed))
			return true;
	return false;
}

/**
 * pflow_batch_step() - put off the interrupts of devices whose CPUs are pressed, or no longer
 * @busy: CPUs that have next to no idle time; there it begins
 *
 * Batches begin at once, before anybody is shed. It may not be known yet who wants each packet at
 * once.
 *
 * Context: process; the estimator's thread. Return: whether any began. Then it should soon be
 * looked again whether a receiver wants its packets at once.
 */
bool pflow_batch_step(const struct cpumask *busy)
{
	unsigned long ns = READ_ONCE(pflow_knobs[PFLOW_KNOB_BATCH_US].value) * NSEC_PER_USEC;
	unsigned int i;
	bool began = false;
	int cpu;

	if (!READ_ONCE(nr_batched) && (!ns || !cpus_any_pressed(busy)))
		return false;
	if (!rtnl_trylock())
		return false;
	for (i = 0; i < DEVICES; i++)
		if (batched[i].dev)
			batch_refresh(&batched[i], ns);
	if (ns)
		for_each_cpu(cpu, busy)
			began |= batch_begin_on_cpu(cpu, ns);
	rtnl_unlock();
	return began;
}

/*
 * A device is unregistered. Its values go with it, so the device's own lock is not needed, which
 * some kernels hold here and some do not. A device that only moves to another namespace stays.
 */
static int batch_on_device(struct notifier_block *unused, unsigned long event, void *info)
{
	const struct net_device *dev = netdev_notifier_info_to_dev(info);
	struct batched *slot;

	if (event != NETDEV_UNREGISTER || dev->reg_state == NETREG_REGISTERED)
		return NOTIFY_DONE;
	slot = batch_slot_of(dev);
	if (slot)
		batch_forget(slot);
	return NOTIFY_DONE;
}

static struct notifier_block notifier = { .notifier_call = batch_on_device };

/**
 * pflow_batch_setup() - get ready
 *
 * Context: process, may sleep. Return: 0 or a negative error.
 */
int pflow_batch_setup(void)
{
	pflow_prompt_at = 0;
	memset(polled, 0, sizeof(polled));
	return register_netdevice_notifier(&notifier);
}

/**
 * pflow_batch_teardown() - give every device its own values back
 *
 * Context: process, may sleep; pflow_batch_step() runs no more.
 */
void pflow_batch_teardown(void)
{
	unsigned int i;

	rtnl_lock();
	for (i = 0; i < DEVICES; i++)
		if (batched[i].dev)
			batch_end(&batched[i]);
	rtnl_unlock();
	unregister_netdevice_notifier(&notifier);
}

/**
 * pflow_batch_status() - whose interrupts are put off, for people
 * @m: where to
 *
 * A name means something in its own namespace only. So devices of the reader's namespace are named.
 *
 * Context: process.
 */
void pflow_batch_status(struct seq_file *m)
{
	const struct net *net = current->nsproxy->net_ns;
	unsigned int i;

	spin_lock(&lock);
	for (i = 0; i < DEVICES; i++)
		if (batched[i].dev && net_eq(dev_net(batched[i].dev), net))
			seq_printf(m, "batches: %s every %lu us\n", netdev_name(batched[i].dev),
				   batched[i].ns / NSEC_PER_USEC);
	spin_unlock(&lock);
}
