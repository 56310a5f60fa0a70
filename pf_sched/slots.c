// SPDX-License-Identifier: GPL-2.0-only
/*
 * Slots: where boosts live (slots.h). Here they are found, and change state.
 *
 * All slots are one array under one raw lock. The lock may be taken in the packet path.
 */
#include "slots.h"

struct slot slots[SLOTS];
DEFINE_RAW_SPINLOCK(slots_lock);
struct slot_counts slot_counts;

/**
 * slot_set_state() - take a slot to its next state
 * @slot: it
 * @state: the next
 *
 * A reader that sees the state without the lock also sees what was written to the slot before.
 *
 * Context: any, under slots_lock.
 */
void slot_set_state(struct slot *slot, enum slot_state state)
{
	lockdep_assert_held(&slots_lock);
	smp_store_release(&slot->state, state);	/* pairs with slot_state() */
}

/**
 * slot_state() - a slot's state, read without the lock
 * @slot: it
 *
 * Context: any. Return: the state; what was written before it is seen as well.
 */
enum slot_state slot_state(const struct slot *slot)
{
	return smp_load_acquire(&slot->state);	/* pairs with slot_set_state() */
}

/**
 * slot_is_active() - is somebody elected here?
 * @slot: it
 *
 * Context: any. Return: whether a thread is raised by it, or about to be.
 */
bool slot_is_active(const struct slot *slot)
{
	enum slot_state state = READ_ONCE(slot->state);

	return state == SLOT_CHOSEN || state == SLOT_RAISED;
}

/**
 * slot_find() - the slot of a thread; it has one at most
 * @task: the thread
 *
 * Context: under slots_lock. Return: it, or NULL.
 */
struct slot *slot_find(const struct task_struct *task)
{
	unsigned int i;

	lockdep_assert_held(&slots_lock);
	for (i = 0; i < SLOTS; i++)
		if (slots[i].boost.task == task)
			return &slots[i];
	return NULL;
}

/**
 * slot_find_free() - a slot for a user
 * @user: pflow_task_user()
 *
 * A user who has as many as are free gets no more. So one user alone has half of them, and however
 * many users have taken theirs, some are left to a user that has none.
 *
 * Context: under slots_lock. Return: it, or NULL.
 */
struct slot *slot_find_free(u32 user)
{
	unsigned int own = 0, spare = 0, i;
	struct slot *free = NULL;

	lockdep_assert_held(&slots_lock);
	for (i = 0; i < SLOTS; i++) {
		if (slots[i].state == SLOT_FREE) {
			free = &slots[i];
			spare++;
		} else {
			own += slots[i].user == user;
		}
	}
	return own < spare ? free : NULL;
}

/**
 * slot_mark_socket() - note in the table whether a socket's receiver is elected
 * @slot: whose socket
 * @elected: that
 *
 * Context: any; the slot holds its socket.
 */
void slot_mark_socket(const struct slot *slot, bool elected)
{
	struct pflow_sock *entry;

	rcu_read_lock();
	entry = pflow_sock_find_as(slot->sk, slot->cookie);
	if (entry && elected)
		set_bit(PFLOW_SOCK_PP, &entry->flags);
	else if (entry)
		clear_bit(PFLOW_SOCK_PP, &entry->flags);
	rcu_read_unlock();
}

/**
 * slot_finish() - a boost is over; the thread restores what it changed
 * @slot: of the boost
 * @end: why
 *
 * Context: under slots_lock.
 */
void slot_finish(struct slot *slot, enum boost_end end)
{
	lockdep_assert_held(&slots_lock);
	if (slot->state == SLOT_CHOSEN)
		slot->boost.lever = LEVERS;	/* never pulled */
	slot->end = end;
	slot_set_state(slot, SLOT_OVER);
}

/**
 * task_flags() - a thread's PF_ flags
 * @task: held, or under RCU
 *
 * Context: any. Return: they; one that has just begun to exit may not say so yet.
 */
unsigned int task_flags(const struct task_struct *task)
{
	/* Only the task itself writes them, plainly, and for many reasons. */
	return data_race(READ_ONCE(task->flags));
}
