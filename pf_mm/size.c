// SPDX-License-Identifier: GPL-2.0-only
/*
 * How the size of a buffer is changed, and what it may be.
 *
 * UDP: the kernel drops on sk_rcvbuf alone, and everybody reads it without a lock. It is
 * exchanged only if it still is what we left; SO_RCVBUF sets its lock flag before the size,
 * so where the flag appears afterwards the exchange is undone if nobody was there since.
 * A buffer that becomes smaller loses nothing: what is queued stays, and new packets find
 * no room until as much was received.
 *
 * TCP: only under the socket's lock, and by whoever has it. The window clamp follows the
 * size, as autotuning has it follow, and rcv_ssthresh grows up to that as data come. There
 * is always room for what is queued and for what the peer was promised, as the kernel would
 * drop them for want of it.
 */
#include <linux/cgroup.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/page_counter.h>
#include <net/tcp.h>
#include <net/udp.h>

#include "../common/compat/compat.h"
#include "mm.h"

/**
 * size_flagged() - did the program set the size of this buffer by SO_RCVBUF?
 * @sk: socket that the caller may read
 *
 * Context: any. Return: whether it did.
 */
bool size_flagged(const struct sock *sk)
{
	/*
	 * Whoever owns the socket may be writing other flags of the byte, as bind() does. That
	 * leaves ours as it is; where its order matters, see size_set_udp().
	 */
	return data_race(sk->sk_userlocks & SOCK_RCVBUF_LOCK);
}

/**
 * size_locked() - has the program set the size of this buffer?
 * @sk: socket that the caller may read
 *
 * Context: any. Return: whether it did, and that is to be respected.
 */
bool size_locked(const struct sock *sk)
{
	return size_flagged(sk) && !mm_knob(MM_KNOB_OVERRIDE_LOCKED);
}

/**
 * size_locked_since() - has the program set the size of this buffer since its grant began?
 * @grant: of the socket
 *
 * Context: any. Return: whether it has, be it to the same.
 */
bool size_locked_since(const struct mm_grant *grant)
{
	return size_flagged(grant->sk) && !grant->locked;
}

/**
 * size_settable() - how large any program may make its buffer by SO_RCVBUF
 *
 * Context: any. Return: bytes.
 */
u32 size_settable(void)
{
	/* What SO_RCVBUF is given is doubled. */
	return min_t(u64, 2ULL * READ_ONCE(sysctl_rmem_max), PFLOW_SIZE_MOST);
}

static bool size_set_udp(struct sock *sk, u32 from, u32 to)
{
	if (cmpxchg(&sk->sk_rcvbuf, from, to) != from)
		return false;
	/*
	 * setsockopt() sets the flag, then the size. The size that was just exchanged may have
	 * been the program's, and have happened to be our @from. Where stores are seen in order,
	 * the flag is there then. Elsewhere it may be seen late, and the keeper finds it. What
	 * is given back needs no such care.
	 */
	if (to > from && size_locked(sk)) {
		cmpxchg(&sk->sk_rcvbuf, to, from);
		return false;
	}
	pflow_udp_rcvbuf_changed(sk);
	return true;
}

/* The largest window that its peer can be told: the scale was agreed on at the beginning. */
static u32 size_window_most(const struct sock *sk)
{
	return 65535U << tcp_sk(sk)->rx_opt.rcv_wscale;
}

static u32 size_used_tcp(const struct sock *sk)
{
	u64 used = (u32)atomic_read(&sk->sk_rmem_alloc) + (u32)READ_ONCE(sk->sk_backlog.len);

	if (tcp_ended(sk))
		return 0;
	return min_t(u64, used + pflow_tcp_space(sk, pflow_tcp_promised(sk)), PFLOW_SIZE_MOST);
}

/*
 * A window that was told cannot be taken back. So what is to become smaller promises no
 * more than that at once, and follows as the peer uses its promise up.
 */
static u32 size_set_tcp(struct mm_grant *grant, u32 to)
{
	struct sock *sk = grant->sk;
	struct tcp_sock *tp = tcp_sk(sk);
	u32 clamp = min_t(u32, tcp_win_from_space(sk, to), size_window_most(sk));
	bool larger = to > grant->goal;

	if (sk->sk_rcvbuf != grant->size || (larger && size_locked(sk)))
		return 0;
	grant->goal = to;
	if (!larger)
		to = clamp_t(u32, size_used_tcp(sk), to, grant->size);
	WRITE_ONCE(sk->sk_rcvbuf, to);
	if (larger) {
		WRITE_ONCE(tp->window_clamp, max(tp->window_clamp, clamp));
	} else {
		WRITE_ONCE(tp->window_clamp, min(tp->window_clamp, clamp));
		tp->rcv_ssthresh = min(tp->rcv_ssthresh, tp->window_clamp);
	}
	return to;
}

/**
 * size_set() - change a buffer's size
 * @grant: of the socket
 * @to: bytes
 *
 * Context: under grants_lock; of a TCP socket under its lock too. Return: bytes that
 * it has now, of TCP maybe more than @to; 0 if somebody else changed it, and then it stays.
 */
u32 size_set(struct mm_grant *grant, u32 to)
{
	lockdep_assert_held(&grants_lock);
	if (!grant->udp)
		return size_set_tcp(grant, to);
	if (!size_set_udp(grant->sk, grant->size, to))
		return 0;
	grant->goal = to;
	return to;
}

/**
 * size_set_unlocked() - give a TCP buffer back whose lock is not to be had
 * @grant: of the socket
 *
 * Its owner may sleep with the lock as long as it likes, on a page that does not come. So
 * when the module goes the size alone is changed, which everybody reads as one word; a
 * window clamp that is too large does no harm, as the window fits the free space anyway.
 *
 * Context: process, under grants_lock.
 */
void size_set_unlocked(struct mm_grant *grant)
{
	lockdep_assert_held(&grants_lock);
	cmpxchg(&grant->sk->sk_rcvbuf, grant->size,
		clamp(size_used_tcp(grant->sk), grant->own, grant->size));
}

/**
 * size_used() - below what a buffer must not be made smaller
 * @grant: of the socket
 *
 * Context: any; of a TCP socket under its lock. Return: bytes: what is queued, of
 * TCP what the peer may send too.
 */
u32 size_used(const struct mm_grant *grant)
{
	return grant->udp ? pflow_rmem(grant->sk) : size_used_tcp(grant->sk);
}

/* Of a receiver of this rank, bytes. */
static u32 size_sbmax(u8 rank)
{
	return pflow_size_most(mm_knob(MM_KNOB_DEFAULT_SIZE) << 10, mm_knob(MM_KNOB_SCALE), rank);
}

/**
 * size_tcp_may_grow() - may any TCP buffer become larger than autotuning makes it?
 * @net: its namespace
 *
 * By default none may: then none is looked at, and no grant begins for a stream.
 *
 * Context: any. Return: whether one of the highest rank may.
 */
bool size_tcp_may_grow(const struct net *net)
{
	return mm_knob(MM_KNOB_BUDGET) &&
	       size_sbmax(PFLOW_RANK_RT_BASE) > (u32)READ_ONCE(net->ipv4.sysctl_tcp_rmem[2]);
}

/**
 * size_most_of_rank() - how large a buffer of a receiver of this rank may become (SBmax)
 * @protocol: of its socket
 * @rank: its own
 *
 * That is before it is known how fast this one is emptied, and how much TCP's peer can be told of.
 *
 * Context: any. Return: bytes; of TCP in the initial namespace.
 */
u32 size_most_of_rank(u8 protocol, u8 rank)
{
	bool obey = !mm_knob(MM_KNOB_BUDGET);
	u32 most = size_sbmax(rank), limit;

	if (protocol == IPPROTO_UDP)
		return obey ? min(most, size_settable()) : most;
	limit = READ_ONCE(init_net.ipv4.sysctl_tcp_rmem[2]);
	return obey ? limit : max(most, limit);
}

/**
 * size_most() - how large a buffer may be now
 * @grant: of the socket
 * @rank: of its receiver
 *
 * The paper's SBmax within what the administrator allows. TCP is never bounded below
 * what autotuning would give it, and gets no space for more than its window can tell of.
 *
 * Context: any. Return: bytes.
 */
u32 size_most(const struct mm_grant *grant, u8 rank)
{
	bool obey = !mm_knob(MM_KNOB_BUDGET);
	u32 most = size_sbmax(rank);
	const struct sock *sk = grant->sk;
	u32 limit;

	if (READ_ONCE(grant->drain_known))
		most = pflow_size_in_time(most, READ_ONCE(grant->drain),
					  mm_knob(MM_KNOB_MAX_DELAY));
	if (grant->udp)
		return obey ? min(most, size_settable()) : most;
	limit = READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_rmem[2]);
	return obey ? limit :
		      clamp(most, limit, max(limit, pflow_tcp_space(sk, size_window_most(sk))));
}

/*
 * Bytes that the control groups of a socket's maker have left. What is queued is charged
 * to them, by force: where that takes the last of it, the group's processes are killed.
 */
static u64 size_cgroup_left(const struct sock *sk)
{
	u64 left = U64_MAX;
#if defined(CONFIG_MEMCG)
	struct mem_cgroup *memcg;

	/* In the first version sockets are charged to a counter of their own, seldom limited. */
	if (!cgroup_subsys_on_dfl(memory_cgrp_subsys))
		return left;
	/* A socket holds its group, and a group those above it. */
	for (memcg = sk->sk_memcg; memcg; memcg = parent_mem_cgroup(memcg)) {
		unsigned long max = READ_ONCE(memcg->memory.max);
		unsigned long taken = page_counter_read(&memcg->memory);

		left = min(left, max > taken ? (u64)(max - taken) << PAGE_SHIFT : 0);
	}
#endif
	return left;
}

#define MEMORY_SHORT	32	/* of all: less is little */

static bool memory_short;	/* of the machine; the keeper's word */

/**
 * size_look_at_memory() - see how much memory the machine has left
 *
 * There is no shrinker that would be asked for it: what is given back are no pages, only the
 * permission to take some.
 *
 * Context: the keeper.
 */
void size_look_at_memory(void)
{
	WRITE_ONCE(memory_short, si_mem_available() < (long)(totalram_pages() / MEMORY_SHORT));
}

/**
 * size_most_by_memory() - how large a buffer may stay by the memory that is left
 * @grant: of the socket
 *
 * What waits in it may be joined by half of what the limits of the socket's control groups leave.
 * Each step that it grows by is a quarter of that at most, so it is not soon taken back.
 *
 * Context: any; of a TCP socket under its lock. Return: bytes.
 */
u32 size_most_by_memory(const struct mm_grant *grant)
{
	u64 left = size_cgroup_left(grant->sk);

	if (READ_ONCE(memory_short))
		return grant->own;
	return min_t(u64, size_used(grant) + left / 2, U32_MAX);
}

/**
 * size_memory_for() - may so much more be queued, as far as can be seen?
 * @sk: the socket, which the caller holds
 * @bytes: that much
 *
 * Held against where the protocol begins to refuse (the first value of udp_mem, as UDP knows
 * no pressure; the second of tcp_mem, which is where TCP does) and against a quarter of what
 * the limits of the socket's control groups leave: the rest is for the programs in them. The
 * kernel itself charges what is really queued; of its count each CPU keeps up to a MiB back.
 *
 * Context: any. Return: whether it may.
 */
bool size_memory_for(const struct sock *sk, u32 bytes)
{
	const struct proto *prot = READ_ONCE(sk->sk_prot);
	unsigned int limit = prot->memory_pressure ? 1 : 0;
	long pages = DIV_ROUND_UP(bytes, PAGE_SIZE);

	if (READ_ONCE(memory_short))
		return false;
	if (prot->memory_allocated && prot->sysctl_mem &&
	    atomic_long_read(prot->memory_allocated) + pages > READ_ONCE(prot->sysctl_mem[limit]))
		return false;
	return bytes <= size_cgroup_left(sk) / 4;
}
