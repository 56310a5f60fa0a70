// SPDX-License-Identifier: GPL-2.0-only
/*
 * How the size of a buffer is changed, and what it may be.
 *
 * UDP: the kernel drops by sk_rcvbuf alone, which all read without a lock. It is exchanged only if
 * it is still what we left. SO_RCVBUF sets its lock flag before it sets the size. So if the flag
 * appears after the exchange, the exchange is undone, unless the size was set since. A buffer that
 * becomes smaller loses nothing: what is queued stays, and new packets find no room until as much
 * was received.
 *
 * TCP: the size is changed under the socket's lock only. The window clamp follows the size as it
 * does in autotuning, and rcv_ssthresh grows up to that as data come. There is always room for what
 * is queued and for what the peer was promised, since the kernel would drop it otherwise.
 *
 * Context: each function says its own.
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
	 * The socket's owner may be writing other flags of the byte, as bind() does. That leaves
	 * this flag as it is. For where its order matters, see size_set_udp().
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
 * Context: any. Return: whether it has, even to the same size.
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
	 * setsockopt() sets the flag, then the size. The size that was exchanged may have been the
	 * program's, and happen to be the same as @from. On CPUs that show stores in order the flag
	 * is there by now. On others it may be seen late, and then the keeper finds it. To give
	 * room back needs no such care.
	 */
	if (to > from && size_locked(sk)) {
		cmpxchg(&sk->sk_rcvbuf, to, from);
		return false;
	}
	pflow_udp_rcvbuf_changed(sk);
	return true;
}

/* The largest window that its peer can be told. The scale was agreed on with the connection. */
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
 * A window that the peer was told cannot be taken back. So a buffer that is to become smaller
 * promises no more from now on, and shrinks as the peer uses up what it was promised.
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
 * Context: under grants_lock, and under the lock of a TCP socket. Return: the size that it has now,
 * bytes; that of a TCP socket may be more than @to. 0 if somebody else changed it; then it stays.
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
 * size_set_unlocked() - restore the size of a TCP socket whose lock is not to be had
 * @grant: of the socket
 *
 * Its owner may sleep with the lock for any time, on a page that does not come. So when the module
 * goes, only the size is changed, which all read as one word. A window clamp that is too large does
 * no harm, since the window is fitted to the free space anyway.
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
 * size_used() - the size below which a buffer must not be made smaller
 * @grant: of the socket
 *
 * Context: any; for a TCP socket, under its lock. Return: what is queued, bytes, and with TCP also
 * what the peer may still send.
 */
u32 size_used(const struct mm_grant *grant)
{
	return grant->udp ? pflow_rmem(grant->sk) : size_used_tcp(grant->sk);
}

/* SBmax of a receiver of this rank, bytes. */
static u32 size_sbmax(u8 rank)
{
	return pflow_size_most(mm_knob(MM_KNOB_DEFAULT_SIZE) << 10, mm_knob(MM_KNOB_SCALE), rank);
}

/**
 * size_tcp_may_grow() - may any TCP buffer become larger than autotuning makes it?
 * @net: its namespace
 *
 * By default none may. Then none is looked at, and no grant begins for a stream.
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
 * This does not go by what is known only of one socket: how fast it is emptied, and how large a
 * window TCP's peer can be told.
 *
 * Context: any. Return: bytes; for TCP by the limit of the initial namespace.
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
 * It is the paper's SBmax, within what the administrator allows. A TCP buffer may always be as
 * large as autotuning would make it. It gets no more than is needed for the largest window that
 * its peer can be told.
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
 * Bytes that are left to the control groups in which a socket was made. What is queued is charged
 * to them, by force. If that takes the last bytes, the group's processes are killed.
 */
static u64 size_cgroup_left(const struct sock *sk)
{
	u64 left = U64_MAX;
#if defined(CONFIG_MEMCG)
	struct mem_cgroup *memcg;

	/* In version 1 of cgroups sockets have a counter of their own, which is seldom limited. */
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

#define MEMORY_SHORT	32	/* memory is short if less than one part in so many is available */

static bool memory_short;	/* of the machine; only the keeper writes it */

/**
 * size_look_at_memory() - see how much memory the machine has left
 *
 * A shrinker would not do: what is given back is not pages, but only the permission to take some.
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
 * It may have what waits in it, and half of what the limits of the socket's control groups leave. A
 * step of growth is a quarter of that at most (size_memory_for()), so it is not soon taken back.
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
 * There are two bounds. One is where the protocol begins to refuse: the second value of tcp_mem,
 * and the first of udp_mem, as UDP has no state of pressure. The other is a quarter of what the
 * limits of the socket's control groups leave; the rest is for the programs in them. The kernel
 * charges what is really queued, and each CPU may keep up to a MiB out of that count.
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
