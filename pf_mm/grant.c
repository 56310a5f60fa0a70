// SPDX-License-Identifier: GPL-2.0-only
/*
 * Grants: the sockets whose buffer fills, what each was given, and the budget.
 *
 * A grant begins when a buffer is found fuller than its threshold, and ends when the
 * socket goes, when somebody else sets its size, or when it was not used for a while. It
 * holds its socket, so that what was changed can be restored: an address alone, kept past
 * the read-side section it was found in, may be another socket's tomorrow, and a release
 * probe can be missed. A held socket that was closed keeps its namespace and what is
 * queued; so pf_common tells of each release that it probes, which wakes the keeper, and the
 * keeper looks ten times a second whether a socket is dead. Where the reference is taken the
 * caller has the socket under RCU or its lock; one whose last reference is gone already is
 * let go.
 *
 * Whoever fills grows at once, in the packet path, if there is budget left. If not, the
 * keeper is woken to take back what less important receivers do not use. Both work under
 * one raw lock, taken where a size changes (a few times in a burst) and, for one that
 * fills and cannot grow, once a jiffy. The sum of what is granted is changed under it
 * alone, before a buffer grows and after it shrank: it is exact.
 *
 * Grants come from a pool that the keeper refills: nothing is allocated here.
 */
#include <linux/hash.h>
#include <linux/rculist.h>
#include <linux/sched/clock.h>
#include <linux/slab.h>
#include <net/inet_sock.h>
#include <net/tcp.h>

#include "../common/compat/compat.h"
#include "mm.h"

#define POOL_FULL	64
#define POOL_LOW	32
#define COUNTED		16	/* packets at a time, so that clocks are read seldom */
#define STALE_NS	(100 * NSEC_PER_MSEC)	/* packets further apart are no burst */
#define REFUSED_FOR	(HZ / 50)
#define DRAINED		3	/* less than a third of its size waits */
#define STRETCH_NS	(20 * NSEC_PER_MSEC)	/* in which a drain is measured */

DEFINE_RAW_SPINLOCK(grants_lock);
struct hlist_head grants[GRANT_CHAINS];

/* All under the lock. */
static HLIST_HEAD(pool);
static unsigned int pool_size;
static unsigned int number;
static u64 granted, peak;
static u64 grown, observed;
static u64 given[GIVEN], refused[REFUSALS];

static DEFINE_PER_CPU(unsigned long, no_grant);	/* refused as the pool was empty */

static u32 relief_us;	/* the m of paper 004 */

static const char * const given_names[GIVEN] = {
	[GIVEN_UNUSED] = "unused",
	[GIVEN_CLOSED] = "closed",
	[GIVEN_CHANGED] = "changed",
	[GIVEN_LIMIT] = "limit",
	[GIVEN_STANDING] = "standing",
	[GIVEN_RECLAIMED] = "reclaimed",
	[GIVEN_EXEMPT] = "exempt",
	[GIVEN_STOPPED] = "stopped",
};

static const char * const refusal_names[REFUSALS] = {
	[REFUSED_BUDGET] = "budget",
	[REFUSED_MEMORY] = "memory",
	[REFUSED_CLAMP] = "clamp",
	[REFUSED_POOL] = "pool",
	[REFUSED_STANDING] = "standing",
};

static struct hlist_head *chain_of(const struct sock *sk)
{
	return &grants[hash_ptr(sk, ilog2(GRANT_CHAINS))];
}

/* Under RCU or the lock. */
static struct mm_grant *find(const struct sock *sk)
{
	struct mm_grant *grant;

	hlist_for_each_entry_rcu(grant, chain_of(sk), node, lockdep_is_held(&grants_lock))
		if (grant->sk == sk)
			return grant;
	return NULL;
}

/**
 * grants_refill() - fill the pool of grants
 * @gfp: how
 *
 * Context: process, or as @gfp lets it. Return: whether it is full.
 */
bool grants_refill(gfp_t gfp)
{
	while (READ_ONCE(pool_size) < POOL_FULL) {
		struct mm_grant *grant = kzalloc(sizeof(*grant), gfp | __GFP_NOWARN);
		unsigned long irq;

		if (!grant)
			return false;
		raw_spin_lock_init(&grant->counting);
		raw_spin_lock_irqsave(&grants_lock, irq);
		hlist_add_head(&grant->node, &pool);
		WRITE_ONCE(pool_size, pool_size + 1);
		raw_spin_unlock_irqrestore(&grants_lock, irq);
	}
	return true;
}

/**
 * grants_any() - is there any grant?
 *
 * Context: any. Return: whether there is.
 */
bool grants_any(void)
{
	return READ_ONCE(number);
}

/**
 * grants_left() - what is left of the budget
 *
 * Context: under grants_lock. Return: bytes; less than 0 where it was made smaller.
 */
s64 grants_left(void)
{
	return mm_budget() - granted;
}

static void set_threshold(struct mm_grant *grant)
{
	WRITE_ONCE(grant->threshold, pflow_size_threshold(grant->size, READ_ONCE(grant->rate),
							  READ_ONCE(relief_us)));
}

/**
 * grant_resize() - change a socket's size, and account for it
 * @grant: of the socket
 * @to: bytes, not less than its own; what it grows by is left of the budget. TCP keeps
 *	what it holds and has promised
 *
 * Context: as size_set(). Return: whether it was changed.
 */
bool grant_resize(struct mm_grant *grant, u32 to)
{
	to = size_set(grant, to);
	if (!to)
		return false;
	granted = granted + to - grant->size;
	peak = max(peak, granted);
	grown += to > grant->size;
	grant->stuck = false;
	WRITE_ONCE(grant->size, to);
	set_threshold(grant);
	return true;
}

/**
 * grant_give() - make a buffer smaller
 * @grant: of the socket
 * @to: bytes
 * @why: reason to count
 *
 * What is to become smaller still becomes so. Who loses it to others does not ask for it
 * back before they have it.
 *
 * Context: as size_set().
 */
void grant_give(struct mm_grant *grant, u32 to, enum mm_given why)
{
	u32 before = grant->size;

	to = max(min(to, grant->goal), grant->own);
	if (to < before && grant_resize(grant, to) && grant->size < before)
		given[why]++;
	if (why == GIVEN_RECLAIMED)
		WRITE_ONCE(grant->retry, (u32)jiffies + REFUSED_FOR);
}

/**
 * grant_grows() - tell the table whether a buffer can still grow: B2 waits for it
 * @grant: of the socket
 * @on: whether it can
 *
 * Context: under grants_lock.
 */
void grant_grows(const struct mm_grant *grant, bool on)
{
	struct pflow_sock *entry;

	rcu_read_lock();
	entry = pflow_sock_find(grant->sk);
	if (entry && test_bit(PFLOW_SOCK_GROWS, &entry->flags) != on) {
		if (on)
			set_bit(PFLOW_SOCK_GROWS, &entry->flags);
		else
			clear_bit(PFLOW_SOCK_GROWS, &entry->flags);
	}
	rcu_read_unlock();
}

/**
 * grant_forget() - end a grant, whose socket has its own size again or another's
 * @grant: it; the caller puts the socket and frees it after a grace period
 * @why: reason to count, if it had anything
 *
 * Context: under grants_lock, the keeper or whoever stopped it.
 */
void grant_forget(struct mm_grant *grant, enum mm_given why)
{
	grant_grows(grant, false);
	granted -= grant->size - grant->own;
	given[why] += grant->size != grant->own;
	hlist_del_rcu(&grant->node);
	WRITE_ONCE(number, number - 1);
}

/**
 * grant_refused() - a buffer that fills does not grow
 * @grant: of the socket
 * @why: reason to count
 *
 * Context: under grants_lock.
 */
void grant_refused(struct mm_grant *grant, enum mm_refusal why)
{
	refused[why]++;
	grant->stuck = why != REFUSED_BUDGET;
	WRITE_ONCE(grant->wanted, 0);
	WRITE_ONCE(grant->retry, (u32)jiffies + REFUSED_FOR);
	grant_grows(grant, false);
}

/**
 * grant_relieved() - a buffer got what it waited for
 * @grant: of the socket
 *
 * Context: under grants_lock, the keeper.
 */
void grant_relieved(struct mm_grant *grant)
{
	u64 us = div_u64(local_clock() - grant->wanted_ns, NSEC_PER_USEC);

	/* Clocks of different CPUs may differ a little. */
	WRITE_ONCE(relief_us, pflow_mean_slow(relief_us, clamp_t(s64, us, 1, USEC_PER_SEC)));
	WRITE_ONCE(grant->wanted, 0);
}

/* The mean of what waits; lengths are read while others change them. */
static u32 mean_truesize(const struct sock *sk, u32 used)
{
	u32 deficit = pflow_udp_deficit(sk);
	u32 packets = READ_ONCE(sk->sk_receive_queue.qlen) +
		      READ_ONCE(udp_sk(sk)->reader_queue.qlen);

	return (used > deficit ? used - deficit : 0) / max(packets, 1U);
}

/* How fast it is sent to, by what arrived, and how fast it is emptied, by what is missing. */
static void measure(struct mm_grant *grant, u32 used)
{
	u64 now = local_clock();
	u64 bytes = (u64)READ_ONCE(grant->packets) * mean_truesize(grant->sk, used);
	s64 elapsed_ns = now - grant->counted_ns;
	s64 stretch_ns;
	u64 rate;

	WRITE_ONCE(grant->packets, 0);
	grant->counted_ns = now;
	if (elapsed_ns <= 0 || elapsed_ns > STALE_NS) {
		grant->stretch_ns = 0;
		return;
	}
	rate = div64_u64(bytes * NSEC_PER_MSEC, elapsed_ns);
	WRITE_ONCE(grant->rate, pflow_mean_fast(grant->rate, min_t(u64, rate, U32_MAX)));
	set_threshold(grant);

	grant->arrived += bytes;
	stretch_ns = now - grant->stretch_ns;
	if (grant->stretch_ns && stretch_ns < STRETCH_NS)
		return;
	if (grant->stretch_ns) {
		s64 drained = max_t(s64, grant->arrived + grant->stretch_used - used, 0);
		u32 drain = min_t(u64, div64_u64(drained * NSEC_PER_MSEC, stretch_ns), U32_MAX);

		WRITE_ONCE(grant->drain, grant->drain_known ?
			   pflow_mean_slow(grant->drain, drain) : drain);
		WRITE_ONCE(grant->drain_known, true);
	}
	grant->stretch_ns = now;
	grant->stretch_used = used;
	grant->arrived = 0;
}

/**
 * grant_note_used() - note how much waits in a UDP buffer
 * @grant: of the socket
 * @used: bytes
 *
 * The hooks pass what fills more than a quarter. So a burst is seen here on its way up, between
 * that and a third, whenever the keeper looks.
 *
 * Context: any.
 */
void grant_note_used(struct mm_grant *grant, u32 used)
{
	u32 now = jiffies;

	if (used > READ_ONCE(grant->peak))
		WRITE_ONCE(grant->peak, used);
	if (used < READ_ONCE(grant->size) / DRAINED && READ_ONCE(grant->drained) != now)
		WRITE_ONCE(grant->drained, now);
}

/**
 * grant_stands() - has a UDP buffer not drained for longer than a burst lasts?
 * @grant: of the socket
 *
 * Good queue absorbs a burst and drains; bad queue stands, and room only makes what is read from
 * it old (as CoDel tells them apart, RFC 8289).
 *
 * Context: any. Return: whether it has.
 */
bool grant_stands(const struct mm_grant *grant)
{
	u32 burst = msecs_to_jiffies(mm_knob(MM_KNOB_BURST));

	return burst && grant->udp &&
	       time_after32((u32)jiffies, READ_ONCE(grant->drained) + burst);
}

static void count(struct mm_grant *grant, u32 used)
{
	grant_note_used(grant, used);
	WRITE_ONCE(grant->packets, READ_ONCE(grant->packets) + 1);
	/* Whoever finds another CPU at it loses nothing by going on. */
	if (READ_ONCE(grant->packets) < COUNTED || !raw_spin_trylock(&grant->counting))
		return;
	measure(grant, used);
	raw_spin_unlock(&grant->counting);
}

/* Under the lock. A socket that is being freed is let go. */
static struct mm_grant *begin(struct sock *sk, const struct pflow_sock *entry)
{
	struct mm_grant *grant;

	if (hlist_empty(&pool) || !refcount_inc_not_zero(&sk->sk_refcnt))
		return NULL;
	grant = hlist_entry(pool.first, struct mm_grant, node);
	hlist_del(&grant->node);
	WRITE_ONCE(pool_size, pool_size - 1);
	grant->sk = sk;
	grant->udp = entry->protocol == IPPROTO_UDP;
	grant->locked = size_flagged(sk);
	grant->own = READ_ONCE(sk->sk_rcvbuf);
	grant->size = grant->own;
	grant->goal = grant->own;
	grant->rolled = jiffies;
	grant->drained = jiffies;
	grant->retry = jiffies;
	set_threshold(grant);
	hlist_add_head_rcu(&grant->node, chain_of(sk));
	WRITE_ONCE(number, number + 1);
	/* Once: where there is no memory to be had it tries again by itself. */
	keeper_wake(pool_size == POOL_LOW);
	return grant;
}

/* A window that the program holds well below the buffer is its own wish. */
static bool clamped(const struct mm_grant *grant)
{
	return !grant->udp && tcp_sk(grant->sk)->window_clamp <
			      tcp_win_from_space(grant->sk, grant->goal) / 2;
}

/* Under the lock; of a TCP socket under its lock too. */
static void grow(struct mm_grant *grant, const struct pflow_sock *entry)
{
	struct sock *sk = grant->sk;
	u32 most, to;

	WRITE_ONCE(grant->retry, (u32)jiffies + 1);
	if (READ_ONCE(grant->closing) || grant->wanted)
		return;
	if (READ_ONCE(sk->sk_rcvbuf) != grant->size) {
		keeper_wake(true);	/* somebody else set it: not ours any more */
		return;
	}
	WRITE_ONCE(grant->rank, READ_ONCE(entry->rank));
	most = size_most(grant, grant->rank);
	if (mm_knob(MM_KNOB_MODE) == MM_MODE_OBSERVE) {
		if (most > grant->size && !grant->observed) {
			observed++;
			grant->observed = true;
		}
		return;
	}
	/* What it was to lose and has not lost yet it may keep. */
	if (grant->goal < grant->size && grant->size <= most) {
		grant_resize(grant, grant->size);
		return;
	}
	to = pflow_size_grown(grant->size, most, READ_ONCE(grant->rate), READ_ONCE(relief_us));
	if (to <= grant->size) {
		grant_grows(grant, false);
	} else if (clamped(grant)) {
		grant_refused(grant, REFUSED_CLAMP);
	} else if (grant_stands(grant)) {
		grant_refused(grant, REFUSED_STANDING);
	} else if (!size_memory_for(sk, to - grant->size)) {
		grant_refused(grant, REFUSED_MEMORY);
	} else if (to - grant->size > grants_left()) {
		grant->wanted_ns = local_clock();
		WRITE_ONCE(grant->wanted, to);
		grant_grows(grant, true);
		keeper_wake(true);
	} else if (grant_resize(grant, to)) {
		WRITE_ONCE(grant->retry, (u32)jiffies);	/* the next step need not wait */
		grant_grows(grant, to < most);
	}
}

static bool udp_fills(const struct mm_grant *grant, const struct sock *sk, u32 used)
{
	return used > (grant ? READ_ONCE(grant->threshold) :
		       pflow_size_threshold(READ_ONCE(sk->sk_rcvbuf), 0, 0));
}

/*
 * What TCP lets its peer send is less than its buffer, so it is the window that fills: when
 * little is left of it the peer had to stop, or soon will. Or autotuning would go on if it
 * might: it wants twice what is received in a round trip, which is measured since
 * rcvq_space.seq. A window that has not opened as far as the buffer would let it is not
 * held back by the buffer.
 */
static bool tcp_fills(const struct mm_grant *grant, const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 size = grant ? READ_ONCE(grant->goal) : READ_ONCE(sk->sk_rcvbuf);
	u32 window = max(tcp_win_from_space(sk, size), 0);
	u32 left = min(tcp_receive_window(tp), window);

	if (2ULL * (tp->copied_seq - tp->rcvq_space.seq) > window)
		return true;
	return tp->rcv_ssthresh >= window / 2 &&
	       window - left > pflow_size_threshold(window, 0, 0);
}

/* Counts what was queued, too. */
static bool fills(struct mm_grant *grant, const struct sock *sk, bool queued)
{
	/* Who had no room for a packet fills, whatever is in it. */
	if (!queued)
		return true;
	if (sk->sk_protocol == IPPROTO_UDP) {
		/* From 6.18 what is told of here is still counted as on its way, too. */
		u32 used = atomic_read(&sk->sk_rmem_alloc);

		if (grant)
			count(grant, used);
		return udp_fills(grant, sk, used);
	}
	if (!tcp_fills(grant, sk))
		return false;
	if (grant)
		WRITE_ONCE(grant->peak, max(READ_ONCE(grant->peak), READ_ONCE(grant->goal)));
	return true;
}

/* A grant is made where there is none. */
static void relieve(struct sock *sk, const struct mm_grant *grant)
{
	const struct pflow_sock *entry = pflow_sock_find(sk);
	struct mm_grant *found;
	unsigned long irq;

	/*
	 * In the table are sockets of processes. One of the kernel's would not keep its
	 * namespace, which it must not outlive: it may not be held.
	 */
	if (!entry || !sk->sk_net_refcnt || mm_exempt(READ_ONCE(inet_sk(sk)->inet_num)))
		return;
	/* The lock would be all CPUs' for each packet of each socket that fills. */
	if (!grant && !READ_ONCE(pool_size)) {
		this_cpu_inc(no_grant);
		return;
	}
	raw_spin_lock_irqsave(&grants_lock, irq);
	found = find(sk) ?: begin(sk, entry);
	if (found)
		grow(found, entry);
	raw_spin_unlock_irqrestore(&grants_lock, irq);
}

/**
 * grant_fills() - a socket's buffer may be over its threshold
 * @sk: UDP or TCP, or a raw socket that bears the number of UDP; the caller has it under
 *	RCU, of TCP its lock
 * @queued: for a packet that was queued, and not refused
 *
 * Under overload this is passed by each packet, and what it takes is taken from who
 * receives: so a grant is looked for first, which mostly says that nothing is to be done.
 *
 * Context: any but NMI.
 */
void grant_fills(struct sock *sk, bool queued)
{
	struct mm_grant *grant;

	rcu_read_lock();
	grant = find(sk);
	if (fills(grant, sk, queued) &&
	    !(grant && time_before32((u32)jiffies, READ_ONCE(grant->retry))))
		relieve(sk, grant);
	rcu_read_unlock();
}

/**
 * grant_closes() - a socket is about to be closed
 * @sk: any; the caller holds it
 *
 * The keeper is there: pf_common tells nobody who is not started, or no longer.
 *
 * Context: RCU read side; any but NMI.
 */
void grant_closes(const struct sock *sk)
{
	struct mm_grant *grant = find(sk);

	if (!grant)
		return;
	WRITE_ONCE(grant->closing, true);
	/* Who has nothing of ours has time; many may be closed at once. */
	if (READ_ONCE(grant->size) != grant->own)
		keeper_wake(true);
}

/**
 * grants_setup() - fill the pool
 *
 * Context: process, may sleep. Return: 0 or -ENOMEM.
 */
int grants_setup(void)
{
	grants_refill(GFP_KERNEL);
	return pool_size ? 0 : -ENOMEM;
}

/**
 * grants_teardown() - empty the pool
 *
 * Context: process, may sleep; no grant is left, and no hook attached.
 */
void grants_teardown(void)
{
	struct mm_grant *grant;
	struct hlist_node *next;

	hlist_for_each_entry_safe(grant, next, &pool, node)
		kfree(grant);
	INIT_HLIST_HEAD(&pool);
	pool_size = 0;
}

/* What is told, as it was at one moment. */
struct told {
	unsigned int number;
	u64 granted;
	u64 peak;
	u64 grown;
	u64 observed;
	u64 given[GIVEN];
	u64 refused[REFUSALS];
};

static void tell(struct told *told)
{
	unsigned long irq;
	int cpu;

	raw_spin_lock_irqsave(&grants_lock, irq);
	told->number = number;
	told->granted = granted;
	told->peak = peak;
	told->grown = grown;
	told->observed = observed;
	memcpy(told->given, given, sizeof(given));
	memcpy(told->refused, refused, sizeof(refused));
	raw_spin_unlock_irqrestore(&grants_lock, irq);
	for_each_possible_cpu(cpu)
		told->refused[REFUSED_POOL] += READ_ONCE(per_cpu(no_grant, cpu));
}

/**
 * grants_status() - what was given, for people
 * @m: where to
 *
 * Context: process.
 */
void grants_status(struct seq_file *m)
{
	struct told told;

	tell(&told);
	seq_printf(m, "granted: %llu of %llu KiB, to %u sockets that fill; %llu at most\n",
		   told.granted >> 10, mm_budget() >> 10, told.number, told.peak >> 10);
	if (mm_knob(MM_KNOB_MODE) == MM_MODE_OBSERVE)
		seq_printf(m, "observed: %llu buffers would have grown\n", told.observed);
	if (told.refused[REFUSED_BUDGET])
		seq_printf(m, "no budget: %llu times; raise budget, or lower default_size or scale\n",
			   told.refused[REFUSED_BUDGET]);
	if (told.refused[REFUSED_MEMORY])
		seq_printf(m, "no memory: %llu times; raise udp_mem or tcp_mem, or memory.max of the cgroup\n",
			   told.refused[REFUSED_MEMORY]);
}

/**
 * grants_metrics() - the same for machines
 * @m: where to
 *
 * Context: process.
 */
void grants_metrics(struct seq_file *m)
{
	struct told told;
	unsigned int i;

	tell(&told);
	seq_printf(m, "# TYPE packetflow_mm_granted_bytes gauge\n"
		   "# HELP packetflow_mm_granted_bytes Space that buffers have beyond their own size.\n"
		   "packetflow_mm_granted_bytes %llu\n", told.granted);
	seq_printf(m, "# TYPE packetflow_mm_granted_bytes_peak gauge\n"
		   "# HELP packetflow_mm_granted_bytes_peak The most that it has been.\n"
		   "packetflow_mm_granted_bytes_peak %llu\n", told.peak);
	seq_printf(m, "# TYPE packetflow_mm_budget_bytes gauge\n"
		   "# HELP packetflow_mm_budget_bytes The most that it may be.\n"
		   "packetflow_mm_budget_bytes %llu\n", mm_budget());
	seq_printf(m, "# TYPE packetflow_mm_grown counter\n"
		   "# HELP packetflow_mm_grown Steps by which buffers grew.\n"
		   "packetflow_mm_grown_total %llu\n", told.grown);
	seq_printf(m, "# TYPE packetflow_mm_observed counter\n"
		   "# HELP packetflow_mm_observed Buffers that mode=enforce would have let grow.\n"
		   "packetflow_mm_observed_total %llu\n", told.observed);
	seq_puts(m, "# TYPE packetflow_mm_given_back counter\n"
		    "# HELP packetflow_mm_given_back Times that a buffer lost space it had been given.\n");
	for (i = 0; i < GIVEN; i++)
		seq_printf(m, "packetflow_mm_given_back_total{reason=\"%s\"} %llu\n",
			   given_names[i], told.given[i]);
	seq_puts(m, "# TYPE packetflow_mm_refused counter\n"
		    "# HELP packetflow_mm_refused Times that a buffer that fills could not grow.\n");
	for (i = 0; i < REFUSALS; i++)
		seq_printf(m, "packetflow_mm_refused_total{reason=\"%s\"} %llu\n",
			   refusal_names[i], told.refused[i]);
}
