// SPDX-License-Identifier: GPL-2.0-only
/*
 * Who receives on a socket: how its owner is learnt.
 *
 * The owner is the thread that was seen in recvmsg(). So it is found with servers on epoll and
 * io_uring, too, and after a socket was passed on. Of several receivers (threads, prefork workers)
 * the one of highest priority counts, as long as it has received within PFLOW_HOLD. Until a thread
 * is seen receiving, a process counts that has the socket open: it bound it, accepted it, was
 * handed it, or inherited it.
 *
 * Context: as each function says: of the receive calls and of the scan.
 */
#include <linux/sched.h>
#include <net/inet_sock.h>
#include <net/ipv6.h>

#include "../compat/compat.h"
#include "../internal.h"

static void entry_snapshot(struct pflow_sock *entry, struct sock *sk)
{
	const struct inet_sock *inet = inet_sk(sk);

	lockdep_assert(lockdep_is_held(pflow_sock_lock(entry)));
	pflow_sock_settle(entry, sk);
	WRITE_ONCE(entry->last_seen, (u32)jiffies);
	WRITE_ONCE(entry->rmem, pflow_rmem(sk));
	WRITE_ONCE(entry->rcvbuf, READ_ONCE(sk->sk_rcvbuf));
	WRITE_ONCE(entry->drops, pflow_sk_drops(sk));
	entry->local_port = READ_ONCE(inet->inet_num);
	WRITE_ONCE(entry->remote_port, ntohs(READ_ONCE(inet->inet_dport)));
#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6) {
		entry->local = sk->sk_v6_rcv_saddr;
		entry->remote = sk->sk_v6_daddr;
		return;
	}
#endif
	ipv6_addr_set_v4mapped(inet->inet_rcv_saddr, &entry->local);
	ipv6_addr_set_v4mapped(inet->inet_daddr, &entry->remote);
}

static void entry_set_owner(struct pflow_sock *entry, struct task_struct *task,
			    const struct pflow_priority *priority, enum pflow_learnt learnt)
{
	lockdep_assert(lockdep_is_held(pflow_sock_lock(entry)));
	WRITE_ONCE(entry->rank, priority->rank);
	WRITE_ONCE(entry->group, priority->group);
	WRITE_ONCE(entry->autogroup, priority->autogroup);
	WRITE_ONCE(entry->pid, task->pid);
	WRITE_ONCE(entry->born, pflow_task_born(task));
	WRITE_ONCE(entry->learnt, learnt);
}

/*
 * A receiver that is real-time, or polls, wants each packet at once. A class that pf_sched lends
 * does not count. The packets of a UDP socket without a peer may come from anywhere. Anybody may
 * poll, so polling counts only for the queue that is polled, by which the packets came.
 */
static void owner_note_prompt(const struct sock *sk, u8 rank)
{
	unsigned int cpu = READ_ONCE(sk->sk_incoming_cpu);
	u32 *at = &pflow_prompt_at;

#ifdef CONFIG_NET_RX_BUSY_POLL
	if (unlikely(READ_ONCE(sk->sk_ll_usec) || READ_ONCE(sk->sk_prefer_busy_poll)))
		pflow_batch_note_poller(READ_ONCE(sk->sk_napi_id));
#endif
	if (likely(rank <= PFLOW_RANK_RT_BASE))
		return;
	/* sk_incoming_cpu may have been set by the application, to any number. */
	if (cpu < nr_cpu_ids && cpu_possible(cpu))
		at = &per_cpu_ptr(&pflow_load, cpu)->prompt_at;
	if (READ_ONCE(*at) != (u32)jiffies)
		WRITE_ONCE(*at, (u32)jiffies);
}

/*
 * A socket that has been open without a port for a while takes no entry. It could not be bound, or
 * is not bound any more. If its bind() is going on, it was entered just now, and stays.
 */
static void owner_lets_go(struct sock *sk)
{
	struct pflow_sock *entry = pflow_sock_find(sk);

	if (!entry || time_before32((u32)jiffies, READ_ONCE(entry->last_seen) + HZ))
		return;
	pflow_sock_settle(entry, sk);
	pflow_sock_forget(sk);
}

/**
 * pflow_owner_note_holding() - note that a task has a socket open
 * @sk: the process's socket; the caller holds it
 * @task: the task; the caller holds it
 * @scan: number of the scan that found it, 0 outside scans
 *
 * Context: RCU read side; preemption may be off.
 */
void pflow_owner_note_holding(struct sock *sk, struct task_struct *task, u8 scan)
{
	struct pflow_sock *entry = pflow_sock_get(sk, scan ? PFLOW_MET_OPEN : PFLOW_MET_MADE);
	struct pflow_priority priority;
	unsigned long irq;
	bool first;

	if (!entry)
		return;
	if (scan && !pflow_sock_bound(sk)) {
		owner_lets_go(sk);
		return;
	}
	pflow_task_priority(task, &priority);
	owner_note_prompt(sk, priority.rank);
	raw_spin_lock_irqsave(pflow_sock_lock(entry), irq);
	first = !entry->pid || (scan && entry->scan != scan);
	if (scan)
		entry->scan = scan;
	entry_snapshot(entry, sk);
	if (entry->learnt == PFLOW_HOLDS && (first || priority.rank > entry->rank))
		entry_set_owner(entry, task, &priority, PFLOW_HOLDS);
	/* A receiver's renice is seen even if it sleeps in recvmsg(). */
	else if (entry->learnt == PFLOW_RECEIVES && entry->pid == task->pid)
		entry_set_owner(entry, task, &priority, PFLOW_RECEIVES);
	raw_spin_unlock_irqrestore(pflow_sock_lock(entry), irq);
}

static bool owner_counts(const struct pflow_sock *entry, const struct pflow_priority *priority)
{
	return entry->learnt != PFLOW_RECEIVES || entry->pid == current->pid ||
	       priority->rank >= entry->rank ||
	       !pflow_recent(READ_ONCE(entry->last_received), PFLOW_HOLD);
}

/* Note a TCP receiver on a CPU: TCP is never shed, but others are shed for its receivers. */
static void load_note_tcp(int cpu, u8 rank, u32 now)
{
	struct pflow_load *load;

	/* sk_incoming_cpu may have been set by the application, to any number. */
	if ((unsigned int)cpu >= nr_cpu_ids || !cpu_possible(cpu))
		return;
	load = per_cpu_ptr(&pflow_load, cpu);
	if (rank < READ_ONCE(load->tcp_rank) &&
	    pflow_recent(READ_ONCE(load->tcp_at), PFLOW_HOLD))
		return;
	if (READ_ONCE(load->tcp_rank) != rank)
		WRITE_ONCE(load->tcp_rank, rank);
	if (READ_ONCE(load->tcp_at) != now)
		WRITE_ONCE(load->tcp_at, now);
}

/* Does the peer run on this host? Then it may be its own peer that takes the CPU from it. */
static bool sock_peer_is_local(const struct sock *sk)
{
	const struct inet_sock *inet = inet_sk(sk);

	if (READ_ONCE(sk->sk_rx_dst_ifindex) == LOOPBACK_IFINDEX)
		return true;
#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6 && !ipv6_addr_v4mapped(&sk->sk_v6_daddr))
		return ipv6_addr_loopback(&sk->sk_v6_daddr) ||
		       ipv6_addr_equal(&sk->sk_v6_daddr, &sk->sk_v6_rcv_saddr);
#endif
	return ipv4_is_loopback(inet->inet_daddr) || inet->inet_daddr == inet->inet_rcv_saddr;
}

/* Note the CPU on which a TCP receiver runs, and the one on which its packets arrive. */
static void owner_note_stream(const struct sock *sk, u8 rank, unsigned int cpu)
{
	u32 now = jiffies;

	load_note_tcp(cpu, rank, now);
	load_note_tcp(READ_ONCE(sk->sk_incoming_cpu), rank, now);
}

/**
 * pflow_owner_note_accept() - note that current accepts a connection
 * @sk: it; the caller holds it
 *
 * A thread that accepts will receive, and may have to wait long before it is seen receiving.
 *
 * Context: RCU read side, process context, preemption may be off.
 */
void pflow_owner_note_accept(struct sock *sk)
{
	u8 rank = pflow_task_rank(current);

	pflow_owner_note_holding(sk, current, 0);
	if (sock_peer_is_local(sk))
		return;
	pflow_thread_note_receive(rank, true);
	owner_note_stream(sk, rank, raw_smp_processor_id());
}

/**
 * pflow_owner_note_receive() - note that current is about to receive on a socket
 * @sk: the process's socket; the caller holds it
 *
 * Context: RCU read side, process context, preemption may be off.
 */
void pflow_owner_note_receive(struct sock *sk)
{
	struct pflow_sock *entry = pflow_sock_get(sk, PFLOW_MET_RECEIVING);
	struct pflow_priority priority;
	unsigned int cpu = raw_smp_processor_id();
	unsigned long irq;
	u32 now = jiffies;

	if (!entry)
		return;
	/* What follows is noted once a jiffy, as noting takes time from the receiver. */
	if (READ_ONCE(entry->last_received) == now && READ_ONCE(entry->pid) == current->pid &&
	    READ_ONCE(entry->learnt) == PFLOW_RECEIVES)
		return;
	pflow_task_priority(current, &priority);
	owner_note_prompt(sk, priority.rank);
	if (entry->protocol != IPPROTO_TCP) {
		pflow_thread_note_receive(priority.rank, false);
	} else if (!sock_peer_is_local(sk)) {
		pflow_thread_note_receive(priority.rank, true);
		owner_note_stream(sk, priority.rank, cpu);
	}
	if (READ_ONCE(entry->pid) == current->pid && READ_ONCE(entry->rank) == priority.rank &&
	    READ_ONCE(entry->learnt) == PFLOW_RECEIVES) {
		/* The usual case: nothing new, and nothing written in vain. */
		pflow_sock_settle(entry, sk);
		if (READ_ONCE(entry->last_received) != now)
			WRITE_ONCE(entry->last_received, now);
		if (READ_ONCE(entry->run_cpu) != cpu)
			WRITE_ONCE(entry->run_cpu, cpu);
		return;
	}
	raw_spin_lock_irqsave(pflow_sock_lock(entry), irq);
	if (owner_counts(entry, &priority)) {
		entry_set_owner(entry, current, &priority, PFLOW_RECEIVES);
		WRITE_ONCE(entry->last_received, now);
		WRITE_ONCE(entry->run_cpu, cpu);
	}
	entry_snapshot(entry, sk);
	raw_spin_unlock_irqrestore(pflow_sock_lock(entry), irq);
}

/**
 * pflow_owner_note_send() - note that something is sent on a socket
 * @sk: a process's UDP socket; the caller holds it
 *
 * Who sends where he receives, answers those who ask him. So it matters to him, and to them, how
 * long he has to wait. Another thread may send what the receiver has others work out.
 *
 * Context: RCU read side, process context, preemption may be off.
 */
void pflow_owner_note_send(const struct sock *sk)
{
	struct pflow_sock *entry = pflow_sock_find(sk);
	struct pflow_thread *thread;
	u32 now = pflow_stamp_now();

	if (!entry || READ_ONCE(entry->learnt) != PFLOW_RECEIVES)
		return;
	if (!test_bit(PFLOW_SOCK_ANSWERS, &entry->flags))
		set_bit(PFLOW_SOCK_ANSWERS, &entry->flags);
	thread = pflow_thread_of(entry);
	if (thread && READ_ONCE(thread->answers_at) != now)
		WRITE_ONCE(thread->answers_at, now);
}
