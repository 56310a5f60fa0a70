// SPDX-License-Identifier: GPL-2.0-only
/*
 * The server: continues packets that waited, the flow whose turn it is first.
 *
 * There is one for all namespaces, devices and CPUs, so that shares by weight hold over all of
 * them. It is a NAPI instance on a device of its own that nobody else sees: the kernel's own way
 * to do so much work in softirqs and no more, beside what devices bring. It runs on the CPU on
 * which it was last needed. A timer starts it when the next flow has tokens. With
 * flow/server=thread it runs in a thread of the kernel's (threaded NAPI), napi/packetflow-0. An
 * administrator can give that a priority and a share of the CPU like any other.
 *
 * The timer is set, and found to be needed, under the lock. While the server runs, nobody else sets
 * it: before it ends it does so itself, under the lock. Whoever comes later sees that it has
 * ended, and sets the timer. A start of NAPI between these two makes it run once more.
 *
 * Context: softirqs off, unless said otherwise.
 */
#include <linux/hrtimer.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "../common/compat/compat.h"
#include "flow.h"

#define ROOM_LEAST	64u

/* As the knob's choices. */
static const struct pflow_scheduler *const schedulers[] = { &pflow_eevdf, &pflow_by_rank };

/**
 * struct flow_server - it
 * @lock: for all up to @run
 * @choice: who waits, and who is next
 * @timer_at: ns, for when the timer was set last
 * @run: it looks for somebody to serve
 * @room: how many flows fit into the heaps; under flow_mutex
 * @napi: what runs
 * @timer: that starts it
 * @device: on which NAPI is
 * @memory: of all packets that wait, bytes
 * @waiting: how many these are, with those that are being continued
 * @mode: for the two below
 * @enabled: NAPI is
 * @threaded: it is to run in a thread
 */
static struct flow_server {
	spinlock_t lock;	/* for who is next */
	struct pflow_choice choice;
	u64 timer_at;
	bool run;
	u32 room;
	struct napi_struct napi;
	struct hrtimer timer;
	struct net_device *device;
	atomic_long_t memory;
	atomic_t waiting;
	struct mutex mode;	/* for where it runs */
	bool enabled;
	bool threaded;
} server;

/* See to it that somebody with tokens is served in time. */
static void server_arm(u64 now)
{
	u64 next = pflow_choice_next(&server.choice);

	lockdep_assert_held(&server.lock);
	if (next == PFLOW_NEVER)
		return;
	if ((s64)(next - now) <= 0) {
		napi_schedule(&server.napi);
		return;
	}
	if (hrtimer_is_queued(&server.timer) && (s64)(server.timer_at - next) <= 0)
		return;
	server.timer_at = next;
	hrtimer_start(&server.timer, ns_to_ktime(next), HRTIMER_MODE_ABS_PINNED);
}

static enum hrtimer_restart on_timer(struct hrtimer *timer)
{
	napi_schedule(&server.napi);
	return HRTIMER_NORESTART;
}

/* Return: whether there was somebody. */
static bool server_serve_one(void)
{
	const struct pflow_scheduler *wanted =
		schedulers[READ_ONCE(flow_knobs[FLOW_KNOB_SCHEDULER].value)];
	struct pflow_entity *entity;
	u64 now = ktime_get_ns();

	spin_lock(&server.lock);
	server.run = true;
	if (unlikely(server.choice.scheduler != wanted))
		pflow_choice_switch(&server.choice, wanted, now);
	pflow_choice_wake(&server.choice, now);
	entity = pflow_choice_pick(&server.choice);
	if (!entity) {
		server.run = false;
		server_arm(now);
	}
	spin_unlock(&server.lock);
	if (entity)
		flow_serve(container_of(entity, struct flow, entity), now);
	return entity;
}

static int on_poll(struct napi_struct *napi, int budget)
{
	int work = 0;

	rcu_read_lock();
	while (work < budget && server_serve_one())
		work++;
	rcu_read_unlock();
	if (work < budget)
		napi_complete_done(napi, work);
	return work;
}

/**
 * flow_server_sleep() - a flow has a packet that waits for tokens
 * @entity: of the flow, whose lock is held
 * @next: the packet
 * @now: ns
 * @wait: ns until it has them
 */
void flow_server_sleep(struct pflow_entity *entity, const struct flow_wait *next, u64 now,
		       u64 wait)
{
	spin_lock(&server.lock);
	entity->rank = next->rank;
	pflow_choice_sleep(&server.choice, entity, next->bytes, now + wait);
	if (!server.run)
		server_arm(now);
	spin_unlock(&server.lock);
}

/**
 * flow_server_leave() - a flow has no packet any more
 * @entity: of the flow, whose lock is held
 */
void flow_server_leave(struct pflow_entity *entity)
{
	spin_lock(&server.lock);
	pflow_choice_leave(&server.choice, entity);
	spin_unlock(&server.lock);
}

/**
 * flow_server_settle() - a flow was served, and has another packet
 * @entity: of the flow, whose lock is held
 * @served: bytes that were continued
 * @next: the next packet
 * @now: ns
 * @wait: ns that it must wait for tokens
 */
void flow_server_settle(struct pflow_entity *entity, u32 served, const struct flow_wait *next,
			u64 now, u64 wait)
{
	spin_lock(&server.lock);
	pflow_choice_served(&server.choice, entity, served);
	entity->rank = next->rank;
	if (wait)
		pflow_choice_sleep(&server.choice, entity, next->bytes, now + wait);
	else
		pflow_choice_again(&server.choice, entity, next->bytes);
	spin_unlock(&server.lock);
}

/**
 * flow_server_reweigh() - a flow is due another share
 * @entity: of the flow, whose lock is held
 * @weight: of now on
 */
void flow_server_reweigh(struct pflow_entity *entity, u32 weight)
{
	spin_lock(&server.lock);
	pflow_choice_reweigh(&server.choice, entity, weight);
	spin_unlock(&server.lock);
}

/**
 * flow_server_hold() - may one more packet wait?
 * @skb: it; it counts if it may
 * @held: bytes of memory that its flow has already
 *
 * A flow has no more than is left for others. So who fills one queue, however long it is, takes
 * half of the memory, who fills a second one half of the rest, and there is always some left.
 *
 * Return: whether there is memory for it.
 */
bool flow_server_hold(const struct sk_buff *skb, unsigned long held)
{
	long most = (long)READ_ONCE(flow_knobs[FLOW_KNOB_MEMORY].value) << 20;
	long left = most - atomic_long_add_return(skb->truesize, &server.memory);

	if (left < (long)(held + skb->truesize)) {
		atomic_long_sub(skb->truesize, &server.memory);
		return false;
	}
	atomic_inc(&server.waiting);
	return true;
}

/**
 * flow_server_release() - a packet does not wait any more
 * @truesize: its
 */
void flow_server_release(u32 truesize)
{
	atomic_long_sub(truesize, &server.memory);
	atomic_dec(&server.waiting);
}

/**
 * flow_server_waiting() - how many packets wait or are being continued
 *
 * Context: any. Return: packets.
 */
u32 flow_server_waiting(void)
{
	return atomic_read(&server.waiting);
}

/**
 * flow_server_room() - get room for so many flows
 * @flows: at least as many as will be
 *
 * Context: process, may sleep, under flow_mutex. Return: 0 or -ENOMEM.
 */
int flow_server_room(u32 flows)
{
	struct pflow_entity **made[PFLOW_HEAPS];
	u32 room, i;

	lockdep_assert_held(&flow_mutex);
	if (flows <= server.room)
		return 0;
	room = roundup_pow_of_two(max(flows, ROOM_LEAST));
	for (i = 0; i < PFLOW_HEAPS; i++) {
		made[i] = kvmalloc_array(room, sizeof(**made), GFP_KERNEL_ACCOUNT);
		if (!made[i])
			goto nomem;
	}
	spin_lock_bh(&server.lock);
	for (i = 0; i < PFLOW_HEAPS; i++) {
		struct pflow_heap *heap = &server.choice.heaps[i];

		memcpy(made[i], heap->at, heap->number * sizeof(**made));
		swap(heap->at, made[i]);
	}
	server.room = room;
	spin_unlock_bh(&server.lock);
nomem:
	while (i--)
		kvfree(made[i]);
	return server.room < flows ? -ENOMEM : 0;
}

/**
 * flow_server_set_threaded() - have a thread serve, or a softirq
 * @threaded: 1 or 0, as the knob's choices
 *
 * NAPI changes over the next time it is started, so nothing is lost or overtaken. It must be
 * enabled: to end the thread, newer kernels wait until NAPI is idle, and one that is disabled never
 * seems to be. The device is nobody else's, so one lock of ours is enough where the kernel takes
 * none.
 *
 * Context: process, may sleep. Return: 0 or a negative error, and then nothing has changed.
 */
int flow_server_set_threaded(unsigned int threaded)
{
	int err = 0;

	mutex_lock(&server.mode);
	if (server.enabled)
		err = dev_set_threaded(server.device, threaded);
	if (!err)
		server.threaded = threaded;
	mutex_unlock(&server.mode);
	return err;
}

/**
 * flow_server_start() - serve from now on
 *
 * Context: process, may sleep; no packet comes to a flow yet. NAPI may take the lock of its device,
 * so flow_mutex is not held. Return: 0 or a negative error, and then nobody serves.
 */
int flow_server_start(void)
{
	int err;

	mutex_lock(&server.mode);
	napi_enable(&server.napi);
	err = dev_set_threaded(server.device, server.threaded);
	if (err)
		napi_disable(&server.napi);
	server.enabled = !err;
	mutex_unlock(&server.mode);
	return err;
}

/**
 * flow_server_stop() - serve nobody any more
 *
 * Context: process, may sleep, not under flow_mutex; no packet comes to a flow, and none waits.
 */
void flow_server_stop(void)
{
	mutex_lock(&server.mode);
	server.enabled = false;
	/* First what may set the timer, except itself. */
	napi_disable(&server.napi);
	mutex_unlock(&server.mode);
	hrtimer_cancel(&server.timer);
	server.run = false;
}

/**
 * flow_server_setup() - make the server
 *
 * Context: process, may sleep. Return: 0 or -ENOMEM.
 */
int flow_server_setup(void)
{
	spin_lock_init(&server.lock);
	mutex_init(&server.mode);
	server.threaded = flow_knobs[FLOW_KNOB_SERVER].value;
	server.choice.scheduler = schedulers[0];
	pflow_hrtimer_setup(&server.timer, on_timer, HRTIMER_MODE_ABS_PINNED);
	server.device = pflow_dummy_alloc();
	if (!server.device)
		return -ENOMEM;
	/* The thread is called after it. */
	strscpy(server.device->name, "packetflow", sizeof(server.device->name));
	/* As gro_cells do: nobody may have it polled by its number. */
	set_bit(NAPI_STATE_NO_BUSY_POLL, &server.napi.state);
	netif_napi_add(server.device, &server.napi, on_poll);
	pflow_load_ignore(&server.napi);
	return 0;
}

/**
 * flow_server_teardown() - take the server away
 *
 * Context: process, may sleep; it was stopped, and no flow is left.
 */
void flow_server_teardown(void)
{
	u32 i;

	pflow_load_ignore(NULL);
	netif_napi_del(&server.napi);
	pflow_dummy_free(server.device);
	for (i = 0; i < PFLOW_HEAPS; i++)
		kvfree(server.choice.heaps[i].at);
}

/**
 * flow_server_status() - what waits, for people
 * @m: where to
 *
 * Context: RCU read side, may not sleep.
 */
void flow_server_status(struct seq_file *m)
{
	seq_printf(m, "waiting: %u packets, %lu of at most %u KiB\n", flow_server_waiting(),
		   atomic_long_read(&server.memory) >> 10,
		   READ_ONCE(flow_knobs[FLOW_KNOB_MEMORY].value) << 10);
}

/**
 * flow_server_metrics() - what waits, for machines
 * @m: where to
 *
 * Context: RCU read side, may not sleep.
 */
void flow_server_metrics(struct seq_file *m)
{
	seq_printf(m, "# TYPE packetflow_flow_waiting_packets gauge\n"
		   "# HELP packetflow_flow_waiting_packets Packets that wait for their flow's tokens.\n"
		   "packetflow_flow_waiting_packets %u\n", flow_server_waiting());
	seq_printf(m, "# TYPE packetflow_flow_waiting_bytes gauge\n"
		   "# HELP packetflow_flow_waiting_bytes Memory of these packets.\n"
		   "packetflow_flow_waiting_bytes %ld\n", atomic_long_read(&server.memory));
}
