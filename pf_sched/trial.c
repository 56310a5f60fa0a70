// SPDX-License-Identifier: GPL-2.0-only
/*
 * Does a boost help? It is a measure on trial (common/trial.h), as everything is that costs
 * others something.
 *
 * While the receiver's buffer is full although it is raised, the boost is taken back for a moment
 * every now and then. If that makes no difference the boost was in vain: it is not tried again
 * for 2 s, then 4 s, and so on up to a minute. If the receiver then loses more packets, gets
 * less of the CPU, or waits for it for longer, it is raised again at once, and asked about later.
 *
 * Packets alone would not tell. In a flood nearly all packets are lost even if the boost doubles
 * what is read. And few packets come in some ten milliseconds. So two more things count, which are
 * known exactly: the CPU time that the thread gets, and the time for which it waits. A server that
 * gets its share late answers late. A stream loses no packets, so only these two count for it.
 *
 * Context: pf_sched's thread, under slots_lock; trial_begin() and trial_is_vain() also the packet
 * path.
 */
#include "../common/compat/compat.h"
#include "slots.h"

/* Packets that the slot's socket has lost so far. */
static u32 slot_lost(const struct slot *slot)
{
	struct sock *sk = slot->sk;
	struct pflow_sock *entry;

	rcu_read_lock();
	entry = pflow_sock_find_as(sk, slot->cookie);
	if (entry)
		pflow_sock_settle(entry, sk);
	rcu_read_unlock();
	return pflow_sk_drops(sk);
}

static u32 slot_harm(const struct slot *slot)
{
	const struct pflow_thread *thread = pflow_thread_find(slot->pid);

	return pflow_service_harm(&slot->service, slot->sk->sk_protocol == IPPROTO_TCP,
				  thread ? READ_ONCE(thread->wait) : 0);
}

static void slot_step_trial(struct slot *slot, bool full, u32 elapsed_us)
{
	struct pflow_trial_tick tick = {
		.most = PFLOW_ONE,
		.elapsed_us = elapsed_us,
		.unbounded = true,
	};
	u32 lost = slot_lost(slot);

	pflow_service_step(&slot->service, lost - slot->lost_seen,
			   div_u64(slot->took_ns, NSEC_PER_USEC), elapsed_us);
	slot->lost_seen = lost;
	tick.harm = full ? slot_harm(slot) : 0;
	pflow_trial_step(&slot->trial, &tick);
}

/**
 * trial_begin() - put a boost on trial that begins now
 * @slot: of it
 *
 * Context: under slots_lock.
 */
void trial_begin(struct slot *slot)
{
	lockdep_assert_held(&slots_lock);
	/* A boost that was vain is asked about soon, not as late as one that helps. */
	if (slot->vain_until)
		slot->trial.ask_us = 0;
	slot->vain_until = 0;
	slot->trial.reach = PFLOW_ONE;
	slot->trial.limit_us = 0;
	slot->trial.asking_us = 0;
	slot->service = (struct pflow_service){ 0 };
	slot->lost_seen = slot_lost(slot);
}

/**
 * trial_ask() - ask whether the boost is to be taken back for a moment
 * @slot: of it; its thread is raised. Its @asking is the answer
 * @full: the buffer is over the threshold still
 * @elapsed_us: since the last tick, microseconds
 *
 * Context: under slots_lock, pf_sched's thread.
 */
void trial_ask(struct slot *slot, bool full, u32 elapsed_us)
{
	lockdep_assert_held(&slots_lock);
	slot_step_trial(slot, full, elapsed_us);
	slot->asking = slot->trial.asking_us;
}

/**
 * trial_answered() - is it known now whether the boost helped?
 * @slot: of it; it was taken back
 * @elapsed_us: since the last tick, microseconds
 *
 * Context: under slots_lock, pf_sched's thread. Return: whether it is.
 */
bool trial_answered(struct slot *slot, u32 elapsed_us)
{
	lockdep_assert_held(&slots_lock);
	slot_step_trial(slot, true, elapsed_us);
	if (slot->trial.asking_us)
		return false;
	if (!slot->trial.reach)
		slot->vain_until = pflow_stamp((u32)jiffies +
					       usecs_to_jiffies(slot->trial.limit_us));
	return true;
}

/**
 * trial_is_vain() - is a thread better left as it is?
 * @slot: of its last boost
 *
 * Context: under slots_lock. Return: whether that was in vain, or it is not known yet.
 */
bool trial_is_vain(const struct slot *slot)
{
	lockdep_assert_held(&slots_lock);
	return slot->asking ||
	       (slot->vain_until && time_before32((u32)jiffies, slot->vain_until));
}

/**
 * trial_memory() - for how long what was found out is kept
 * @slot: of the last boost
 *
 * Context: pf_sched's thread. Return: jiffies since its end.
 */
u32 trial_memory(const struct slot *slot)
{
	return usecs_to_jiffies(2 * slot->trial.backoff_us);
}

/**
 * trial_forget() - forget the trial; the slot will be another thread's
 * @slot: it
 *
 * Context: under slots_lock.
 */
void trial_forget(struct slot *slot)
{
	lockdep_assert_held(&slots_lock);
	slot->trial = (struct pflow_trial){ 0 };
	slot->vain_until = 0;
	slot->asking = false;
}
