/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of pf_mm share.
 *
 * The hook (hook.c) finds a socket whose buffer fills. A grant (grant.c) remembers what this socket
 * was given. The buffer grows at once (grow.c, size.c) if the account (account.c) has budget left.
 * The keeper (keep.c) takes back what is not used (attend.c) and makes room for those that wait
 * (room.c).
 */
#ifndef _PFLOW_MM_H
#define _PFLOW_MM_H

#include <linux/hash.h>
#include <linux/percpu.h>
#include <linux/rculist.h>
#include <linux/seq_file.h>
#include <linux/spinlock.h>
#include <net/inet_sock.h>
#include <net/sock.h>
#include <net/tcp_states.h>

#include "../common/packetflow.h"
#include "policy.h"

/* knobs.c */
enum {
	MM_KNOB_MODE,
	MM_KNOB_DEFAULT_SIZE,
	MM_KNOB_SCALE,
	MM_KNOB_BUDGET,
	MM_KNOB_BURST,
	MM_KNOB_MAX_DELAY,
	MM_KNOB_OVERRIDE_LOCKED,
	MM_KNOB_EXEMPT,
	MM_KNOBS,
};

enum {
	MM_MODE_ENFORCE,
	MM_MODE_OBSERVE,
};

extern struct pflow_knob mm_knobs[MM_KNOBS];
u64 mm_budget(void);
bool mm_exempt(u16 port);

static inline unsigned int mm_knob(unsigned int which)
{
	return READ_ONCE(mm_knobs[which].value);
}

/* Why space came back; indexes the counters. */
enum mm_given {
	GIVEN_UNUSED,
	GIVEN_CLOSED,
	GIVEN_CHANGED,
	GIVEN_LIMIT,
	GIVEN_MEMORY,
	GIVEN_STANDING,
	GIVEN_RECLAIMED,
	GIVEN_EXEMPT,
	GIVEN_STOPPED,
	GIVEN,
};

/* Why a buffer that fills did not grow; indexes the counters. */
enum mm_refusal {
	REFUSED_BUDGET,
	REFUSED_MEMORY,
	REFUSED_CLAMP,
	REFUSED_POOL,
	REFUSED_STANDING,
	REFUSALS,
};

/**
 * struct mm_grant - a socket whose buffer fills, and what it was given
 * @node: in the table of grants
 * @sk: the socket, held
 * @udp: it is a UDP socket; if not, a TCP socket
 * @closing: it is being closed
 * @locked: the program had set its size before the grant (override_locked)
 * @observed: it would have grown, but for mode=observe
 * @stuck: when it last tried, it could not grow for another reason than the budget
 * @rank: of its receiver, when last looked at
 * @user: whose it was when the grant began, grant_user()
 * @own: its size without us, bytes
 * @size: its size as we left it
 * @goal: the size that it is to have; what TCP has promised may need more for a while
 * @threshold: bytes; fuller than that, it has to grow
 * @wanted: the size that it waits for, 0 if for none
 * @wanted_ns: local_clock() since which it waits
 * @retry: jiffies before which it is not tried again
 * @peak: the most that waited in it, of this period
 * @rolled: jiffies at which this period began
 * @drained: UDP: jiffies when it last was less than a third full, or when this grant began
 * @counting: guards what follows
 * @packets: counted since @counted_ns
 * @counted_ns: local_clock() of the last measurement
 * @rate: bytes per millisecond that arrive
 * @stretch_ns: local_clock() since which its drain is measured
 * @stretch_used: what waited in it then
 * @arrived: bytes that arrived since
 * @drain: bytes per millisecond that its receiver takes
 * @drain_known: that was measured
 * @copied: TCP: copied_seq at the keeper's last look
 * @copied_ns: when that was
 * @rcu: readers may hold it for a grace period
 *
 * All is changed under grants_lock, except the peaks and what @counting guards. A socket's size is
 * changed under it, too. The size of a TCP socket is changed under the socket's lock besides, which
 * is taken first.
 */
struct mm_grant {
	struct hlist_node node;
	struct sock *sk;
	bool udp;
	bool closing;
	bool locked;
	bool observed;
	bool stuck;
	u8 rank;
	u8 user;
	u32 own;
	u32 size;
	u32 goal;
	u32 threshold;
	u32 wanted;
	u64 wanted_ns;
	u32 retry;

	u32 peak;
	u32 rolled;
	u32 drained;

	raw_spinlock_t counting;
	u32 packets;
	u64 counted_ns;
	u32 rate;
	u64 stretch_ns;
	u32 stretch_used;
	u64 arrived;
	u32 drain;
	bool drain_known;
	u32 copied;
	u64 copied_ns;

	struct rcu_head rcu;
};

/**
 * struct grant_counts - all grants together
 * @number: of grants
 * @granted: bytes that buffers have beyond their own size
 * @peak: the most that it has been
 * @grown: steps by which buffers grew
 * @observed: buffers that mode=enforce would have let grow
 * @given: how often a buffer lost space that it had been given, by reason
 * @refused: how often a buffer that fills could not grow, by reason
 */
struct grant_counts {
	unsigned int number;
	u64 granted;
	u64 peak;
	u64 grown;
	u64 observed;
	u64 given[GIVEN];
	u64 refused[REFUSALS];
};

/* Has a TCP socket no peer? Then nothing comes, whatever was promised. */
static inline bool tcp_ended(const struct sock *sk)
{
	return (1 << inet_sk_state_load(sk)) & (TCPF_CLOSE | TCPF_LISTEN);
}

/* size.c */
bool size_flagged(const struct sock *sk);
bool size_locked(const struct sock *sk);
bool size_locked_since(const struct mm_grant *grant);
u32 size_settable(void);
u32 size_set(struct mm_grant *grant, u32 to);
void size_set_unlocked(struct mm_grant *grant);
u32 size_used(const struct mm_grant *grant);
u32 size_most_of_rank(u8 protocol, u8 rank);
u32 size_most(const struct mm_grant *grant, u8 rank);
bool size_memory_for(const struct sock *sk, u32 bytes);
void size_look_at_memory(void);
u32 size_most_by_memory(const struct mm_grant *grant);
bool size_tcp_may_grow(const struct net *net);

/* measure.c */
extern u32 grants_relief_us;

void grant_set_threshold(struct mm_grant *grant);
void grant_count(struct mm_grant *grant, u32 used, unsigned int packets);
void grant_note_used(struct mm_grant *grant, u32 used);
bool grant_stands(const struct mm_grant *grant);
void grant_note_relieved(struct mm_grant *grant);

/* account.c */
extern struct grant_counts grant_counts;	/* changed under grants_lock */
DECLARE_PER_CPU(unsigned long, grants_not_pooled);

#define GRANT_USERS	256	/* places of the hash of users; a u8 is enough for one */

void grants_users_setup(void);
u8 grant_user(const struct sock *sk, const struct pflow_sock *entry);
s64 grants_excess(u8 user);
int grants_find_greedy(void);
void grant_note_wait(const struct mm_grant *grant);
s64 grant_left(const struct mm_grant *grant);
void grant_charge(const struct mm_grant *grant, s64 bytes);
s64 grants_left(void);
bool grant_resize(struct mm_grant *grant, u32 to);
void grant_give(struct mm_grant *grant, u32 to, enum mm_given why);
void grant_tell_growable(const struct mm_grant *grant, bool on);
void grant_note_refusal(struct mm_grant *grant, enum mm_refusal why);

/* grant.c */
#define GRANT_CHAINS	1024	/* of the hash of grants */
#define POOL_FULL	64	/* grants; the keeper fills the pool up to that */
#define POOL_LOW	32	/* grants; the keeper is woken when so few are left */

extern raw_spinlock_t grants_lock;
extern struct hlist_head grants[GRANT_CHAINS];

int grants_setup(void);
void grants_teardown(void);
bool grants_refill(gfp_t gfp);
unsigned int grants_pooled(void);
bool grants_may_begin(const struct sock *sk, const struct pflow_sock *entry);
bool grants_any(void);
struct mm_grant *grant_begin(struct sock *sk, const struct pflow_sock *entry);
void grant_forget(struct mm_grant *grant, enum mm_given why);

static inline struct hlist_head *grant_chain(const struct sock *sk)
{
	return &grants[hash_ptr(sk, ilog2(GRANT_CHAINS))];
}

/* Under RCU or the lock. */
static inline struct mm_grant *grant_find(const struct sock *sk)
{
	struct mm_grant *grant;

	hlist_for_each_entry_rcu(grant, grant_chain(sk), node, lockdep_is_held(&grants_lock))
		if (grant->sk == sk)
			return grant;
	return NULL;
}

/* walk.c */
typedef void (*grant_change_t)(struct mm_grant *grant, void *data);

void grant_with_lock(struct mm_grant *grant, grant_change_t change, void *data);
bool grant_with_socket(struct mm_grant *grant, grant_change_t change, void *data);
struct mm_grant *grant_next(const struct mm_grant *before, unsigned int *chain);

/* attend.c */
void grants_attend(void);
void grants_restore(void);

/* room.c */
void room_keep_budget(void);
void room_survey(void);
void room_relieve(void);
void room_tell_table(void);

/* keep.c */
int keeper_setup(void);
void keeper_teardown(void);
void keeper_wake(bool now);
void grant_note_close(const struct sock *sk);

/* grow.c */
void grant_check_fill(struct sock *sk, unsigned int packets);

/* status.c */
void grants_status(struct seq_file *m);
void grants_metrics(struct seq_file *m);

/* hook.c */
int hook_setup(void);
void hook_teardown(void);

#endif
