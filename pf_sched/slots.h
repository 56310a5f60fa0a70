/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A boost and its life, which the files of pf_sched share.
 *
 * A boost lives in a slot. The packet path takes a free slot and, where nice is
 * the lever, raises at once (elect.c). Everything else is done by one thread of
 * pf_sched (boost.c):
 *
 *	FREE -> CHOSEN -> RAISED -> OVER -> GHOST -> FREE
 *	  packet path  thread  both   thread   thread
 *
 * A slot changes state under one raw lock. The packet path takes it only for a socket that is over
 * the threshold and not elected yet, once a jiffy for each at most. A slot holds its task from
 * CHOSEN to FREE, so a reused process id is never taken for it. It holds its socket while the
 * thread is raised, and while it is found out whether that helped (trial.c).
 *
 * A ghost remembers a boost for a while after its end. It tells what a child that is just being
 * made has to get, how much the thread ran since, when it was changed last, and whether it was
 * raised in vain.
 */
#ifndef _PFLOW_SCHED_SLOTS_H
#define _PFLOW_SCHED_SLOTS_H

#include <linux/spinlock.h>

#include "../common/trial.h"
#include "sched.h"

#define SLOTS		64
#define TICK_MS		10	/* the thread's, while anybody is raised */

enum slot_state {
	SLOT_FREE,
	SLOT_CHOSEN,
	SLOT_RAISED,
	SLOT_OVER,
	SLOT_GHOST,
};

/* Why a worthy thread was not elected; indexes the counters. */
enum refusal {
	REFUSED_CLASS,		/* real-time, deadline, batch or idle already */
	REFUSED_TOP,		/* the paper's (a): nothing above it to be raised to */
	REFUSED_EXEMPT,
	REFUSED_PLACE,		/* the paper's N */
	REFUSED_CAP,
	REFUSED_LEVER,
	REFUSED_APART,
	REFUSED_VAIN,		/* raised, it lost no less; or that is being found out */
	REFUSED_OUTRANKED,	/* a more important one there is not raised, or not helped by it */
	REFUSED_UNKNOWN,	/* nobody was seen receiving lately */
	REFUSALS,
};

/**
 * struct lend - what a raised thread lends to who holds a lock, see lend.c
 * @holder: who; compared, never followed
 * @cpu: where that one was when it began
 * @since: local_clock() since which it is not counted yet; 0: nothing is lent
 * @lent_ns: what is counted, and not charged yet
 *
 * Written without a lock.
 */
struct lend {
	const struct task_struct *holder;
	int cpu;
	u64 since;
	atomic64_t lent_ns;
};

/**
 * struct slot - a boost and its life
 * @state: see above
 * @boost: the thread, and how it is raised
 * @sk: the socket that fills; held from CHOSEN to OVER, and while @asking; else it is not followed
 * @cookie: its cookie
 * @rank: of the thread before
 * @user: whose it is, pflow_task_user()
 * @home: CPU on which it was elected, where it takes a place
 * @until: jiffies at which the boost ends unless the socket, or another, still fills
 * @also: another socket of the thread's own was full since the last tick
 * @changed: jiffies of the last change of the thread
 * @ordered: jiffies of its last change of place among those raised
 * @exec_id: of the program that it ran when elected
 * @pid: the thread's id then
 * @end: why it is over
 * @spent_cpu: whose budget was spent, if that is why
 * @met: CPUs, modulo 64, to which it was moved while raised, and was in somebody's way
 * @ran_ns: CPU time of the thread at the last tick
 * @stolen_ns: of it, time of softirqs on top of the thread
 * @lend: what it lends to a thread for which it waits
 * @cpu: where the thread was at the last tick
 * @charged_us: CPU time that is still to be taken from its user's purse
 * @purse_us: what is in that purse, as far as this rank may use it; see share.c
 * @boosted_ns: CPU time it took in this boost
 * @ticks: of this boost so far
 * @full_ticks: ticks in a row in which the buffer was over the threshold
 * @other_ticks: ticks in a row in which somebody else received on the socket
 * @trial: whether the boost helps, see trial.c
 * @service: what the thread gets
 * @lost_seen: the socket's counter of lost packets at the last tick
 * @took_ns: CPU time that it took since the last tick
 * @asking: it was taken back for a moment to find out
 * @vain_until: stamp of when it may be tried again; 0: it may be
 */
struct slot {
	enum slot_state state;
	struct boost boost;
	struct sock *sk;
	u64 cookie;
	u8 rank;
	u32 user;
	int home;
	u32 until;
	bool also;
	u32 changed;
	u32 ordered;
	u32 exec_id;
	pid_t pid;
	enum boost_end end;
	int spent_cpu;
	u64 met;
	u64 ran_ns;
	u64 stolen_ns;
	struct lend lend;
	int cpu;
	u32 charged_us;
	s32 purse_us;
	u64 boosted_ns;
	unsigned int ticks;
	unsigned int full_ticks;
	unsigned int other_ticks;
	struct pflow_trial trial;
	struct pflow_service service;
	u32 lost_seen;
	u64 took_ns;
	bool asking;
	u32 vain_until;
};

/**
 * struct slot_counts - what happened since the module was loaded
 * @elected: threads that were raised
 * @observed: threads that mode=enforce would have raised
 * @refused: threads that were not raised, by reason
 * @ended: boosts that ended, by reason
 */
struct slot_counts {
	u64 elected;
	u64 observed;
	u64 refused[REFUSALS];
	u64 ended[ENDS];
};

/**
 * struct asker - who is raised on a CPU, or asks to be
 * @user: pflow_task_user()
 * @rank: its own
 * @cpu: where
 */
struct asker {
	u32 user;
	u8 rank;
	int cpu;
};

/**
 * struct field - those elected on a CPU, but for one of them
 * @number: how many
 * @slots: the numbers of their slots
 * @ranks: theirs; the policy goes by these
 * @users: and by these
 */
struct field {
	unsigned int number;
	u8 slots[SLOTS];
	u16 ranks[SLOTS];
	u32 users[SLOTS];
};

/* slots.c */
extern struct slot slots[SLOTS];
extern raw_spinlock_t slots_lock;
extern struct slot_counts slot_counts;	/* changed under the lock */

void slot_set_state(struct slot *slot, enum slot_state state);
enum slot_state slot_state(const struct slot *slot);
bool slot_is_active(const struct slot *slot);
struct slot *slot_find(const struct task_struct *task);
struct slot *slot_find_free(u32 user);
void slot_mark_socket(const struct slot *slot, bool elected);
void slot_finish(struct slot *slot, enum boost_end end);
unsigned int task_flags(const struct task_struct *task);

/* places.c */
void places_setup(void);
void field_gather(struct field *field, const struct slot *except, int cpu);
unsigned int field_levels(const struct field *others, u8 rank);
bool place_for(const struct field *field, const struct asker *asker);
void places_displace(void);
void places_adapt(bool budget_spent);
unsigned int slot_rr_priority(const struct slot *slot);
void ask_note(const struct asker *asker);
bool ask_of_another(const struct asker *asker);

/* elect.c */
bool elect_outranked(const struct task_struct *task, u8 rank, u64 met);
u64 elect_met(int cpu);
u32 elect_hold_until(void);

/* share.c */
void share_setup(void);
s32 share_part(unsigned int percent);
bool share_spent(const struct asker *asker, unsigned int also);
void share_begin(struct slot *slot);
u64 share_charge(struct slot *slot);
void share_take_stock(u32 elapsed_us);
s32 share_settle_purses(void);
s32 share_settle(void);

/* lend.c */
void lend_begin(struct slot *slot);
u32 lend_take(struct slot *slot);

/* trial.c */
void trial_begin(struct slot *slot);
void trial_ask(struct slot *slot, bool full, u32 elapsed_us);
bool trial_answered(struct slot *slot, u32 elapsed_us);
bool trial_is_vain(const struct slot *slot);
u32 trial_memory(const struct slot *slot);
void trial_forget(struct slot *slot);

/* boost.c */
void boost_wake(void);
bool boost_stopping(void);

#endif
