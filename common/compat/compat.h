/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What differs between kernels, and nothing else.
 *
 * The core is written for the newest kernel. Each shim says what changed, in which
 * release and by which commit; the PFLOW_HAVE_* symbols come from compat.mk, which looks into the
 * headers, since distributions backport.
 */
#ifndef _PFLOW_COMPAT_H
#define _PFLOW_COMPAT_H

#include <linux/ftrace.h>
#include <linux/hrtimer.h>
#include <linux/ip.h>
#include <linux/kthread.h>
#include <linux/memcontrol.h>
#include <linux/netdevice.h>
#include <linux/sched.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <net/inet6_hashtables.h>
#include <net/inet_dscp.h>
#include <net/inet_hashtables.h>
#ifdef PFLOW_HAVE_RPS_HEADER
#include <net/rps.h>
#endif
#include <net/sock.h>
#include <net/tcp.h>
#include <net/udp.h>

/*
 * 6.11 added the receiving socket to the kfree_skb tracepoint (c53795d48ee8), and had
 * sk_skb_reason_drop() take over from kfree_skb_reason() (ba8de796baf4). By 7.2 it is const.
 */
#if defined(PFLOW_HAVE_KFREE_SKB_CONST_SK)
#define PFLOW_KFREE_SKB_ARGS						\
	void *data, struct sk_buff *skb, void *location,		\
	enum skb_drop_reason reason, const struct sock *rx_sk
#elif defined(PFLOW_HAVE_KFREE_SKB_SK)
#define PFLOW_KFREE_SKB_ARGS						\
	void *data, struct sk_buff *skb, void *location,		\
	enum skb_drop_reason reason, struct sock *rx_sk
#else
#define PFLOW_KFREE_SKB_ARGS						\
	void *data, struct sk_buff *skb, void *location,		\
	enum skb_drop_reason reason
static inline void sk_skb_reason_drop(struct sock *sk, struct sk_buff *skb,
				      enum skb_drop_reason reason)
{
	kfree_skb_reason(skb, reason);
}
#endif

/* 6.10 added the packet to this tracepoint (e9669a00bba7). */
#if defined(PFLOW_HAVE_UDP_FAIL_SKB)
#define PFLOW_UDP_FAIL_ARGS void *data, int rc, struct sock *sk, struct sk_buff *skb
#else
#define PFLOW_UDP_FAIL_ARGS void *data, int rc, struct sock *sk
#endif

/*
 * 6.18 made a child's flags u64 (edd3cb05c00a). A handler has to have the type by which it is
 * called, even if it does not use the argument: control-flow integrity compares the two.
 */
#if defined(PFLOW_HAVE_NEWTASK_U64)
#define PFLOW_NEWTASK_ARGS void *data, struct task_struct *child, u64 clone_flags
#else
#define PFLOW_NEWTASK_ARGS void *data, struct task_struct *child, unsigned long clone_flags
#endif

/*
 * Make a cache that is not merged with others of its size. If it were, its name would stay in
 * sysfs. Before 6.5 (d0bf7d5759c1) there is no flag for that. But a cache is not merged either if a
 * part of its objects may be copied to user space. So one byte may be copied, which nobody does.
 */
static inline struct kmem_cache *pflow_cache_create(const char *name, unsigned int size)
{
#ifdef SLAB_NO_MERGE
	return kmem_cache_create(name, size, 0, SLAB_HWCACHE_ALIGN | SLAB_NO_MERGE, NULL);
#else
	return kmem_cache_create_usercopy(name, size, 0, SLAB_HWCACHE_ALIGN, 0, 1, NULL);
#endif
}

/* A worker that runs at once had another name before 6.14 (b04e317b5226). */
#ifndef kthread_run_worker
#define kthread_run_worker kthread_create_worker
#endif

/*
 * 6.13 has one function set up a timer whole (908a1d775422); 6.15 took the older way away
 * (9779489a31d7).
 */
static inline void pflow_hrtimer_setup(struct hrtimer *timer,
				       enum hrtimer_restart (*function)(struct hrtimer *),
				       enum hrtimer_mode mode)
{
#if defined(PFLOW_HAVE_HRTIMER_SETUP)
	hrtimer_setup(timer, function, CLOCK_MONOTONIC, mode);
#else
	hrtimer_init(timer, CLOCK_MONOTONIC, mode);
	timer->function = function;
#endif
}

/*
 * One of a function's arguments as ftrace saved them, the first being 0. From 6.2 on there is a way
 * to ask for one (94d095ffa0e1). Before, architectures that save them (x86, s390, powerpc) do so in
 * struct pt_regs, in which x86 fills in only these registers, rax and rbp. 6.13 hides what is
 * inside (7888af4166d4). Without DYNAMIC_FTRACE_WITH_ARGS none are saved, and no handler is called
 * so.
 */
static __always_inline void *pflow_ftrace_argument(struct ftrace_regs *fregs, unsigned int n)
{
#if !defined(CONFIG_DYNAMIC_FTRACE_WITH_ARGS)
	return NULL;
#elif defined(PFLOW_HAVE_FTRACE_ARGUMENT)
	return (void *)ftrace_regs_get_argument(fregs, n);
#else
	return (void *)regs_get_kernel_argument(&fregs->regs, n);
#endif
}

/* A thread's own slice, in nanoseconds, from 6.12 (857b158dc5e8); 0 where it has none. */
static inline u64 pflow_custom_slice(const struct task_struct *task)
{
#if defined(PFLOW_HAVE_CUSTOM_SLICE)
	return task->se.custom_slice ? task->se.slice : 0;
#else
	return 0;
#endif
}

/* Set the slice of a thread that does not run yet. */
static inline void pflow_set_custom_slice(struct task_struct *task, u64 slice_ns)
{
#if defined(PFLOW_HAVE_CUSTOM_SLICE)
	task->se.custom_slice = 1;
	task->se.slice = slice_ns;
#endif
}

/*
 * Backlog drops: a plain counter, atomic from 6.10 (a7ae7b0b2ea0), per node from 6.18
 * (fdae0ab67d57).
 */
static inline unsigned int pflow_softnet_dropped(struct softnet_data *sd)
{
#if defined(PFLOW_HAVE_SOFTNET_DROP_COUNTERS)
	return numa_drop_read(&sd->drop_counters);
#elif defined(PFLOW_HAVE_SOFTNET_DROPPED_ATOMIC)
	return atomic_read(&sd->dropped);
#else
	return READ_ONCE(sd->dropped);
#endif
}

/* May packets be handed on to other CPUs? 6.9 gave RPS a header of its own (490a79faf95e). */
static inline bool pflow_rps_is_used(void)
{
#ifdef CONFIG_RPS
	return static_branch_unlikely(&rps_needed);
#else
	return false;
#endif
}

/* sk_drops of UDP is kept per node from 6.18, through sk_drops_read() (f86f42ed2c47). */
static inline u32 pflow_sk_drops(const struct sock *sk)
{
#if defined(PFLOW_HAVE_SK_DROPS_READ)
	return sk_drops_read(sk);
#else
	return atomic_read(&sk->sk_drops);
#endif
}

static inline void pflow_sk_drops_add(struct sock *sk, unsigned int packets)
{
#if defined(PFLOW_HAVE_SK_DROPS_READ)
	sk_drops_add(sk, packets);
#else
	atomic_add(packets, &sk->sk_drops);
#endif
}

/* 7.1 took UDP-Lite away, and with it an argument of UDP_INC_STATS() (7accba6fd1ab). */
static inline void pflow_udp_stats_add(struct net *net, bool v4, int field, unsigned int packets)
{
#if IS_ENABLED(CONFIG_IPV6)
	if (!v4) {
		SNMP_ADD_STATS(net->mib.udp_stats_in6, field, packets);
		return;
	}
#endif
	SNMP_ADD_STATS(net->mib.udp_statistics, field, packets);
}

/*
 * The table of UDP sockets: the namespace's own from 6.2 (ba6aac151677), no argument from 7.1
 * (68aeb21ef0e1).
 */
static inline struct udp_table *pflow_udp_table(struct net *net)
{
#if defined(PFLOW_HAVE_UDP_TABLE_NETNS)
	return net->ipv4.udp_table;
#else
	return &udp_table;
#endif
}

static inline struct sock *pflow_udp4_lookup(struct net *net, __be32 saddr, __be16 sport,
					     __be32 daddr, __be16 dport, int dif, int sdif)
{
#if defined(PFLOW_HAVE_UDP_TABLE_ARGUMENT)
	return __udp4_lib_lookup(net, saddr, sport, daddr, dport, dif, sdif,
				 pflow_udp_table(net), NULL);
#else
	return __udp4_lib_lookup(net, saddr, sport, daddr, dport, dif, sdif, NULL);
#endif
}

static inline struct sock *pflow_udp6_lookup(struct net *net, const struct in6_addr *saddr,
					     __be16 sport, const struct in6_addr *daddr,
					     __be16 dport, int dif, int sdif)
{
#if !IS_ENABLED(CONFIG_IPV6)
	return NULL;
#elif defined(PFLOW_HAVE_UDP_TABLE_ARGUMENT)
	return __udp6_lib_lookup(net, saddr, sport, daddr, dport, dif, sdif,
				 pflow_udp_table(net), NULL);
#else
	return __udp6_lib_lookup(net, saddr, sport, daddr, dport, dif, sdif, NULL);
#endif
}

/* With a reference. By 7.2 the table of TCP's sockets is no argument any more. */
static inline struct sock *pflow_tcp4_lookup(struct net *net, __be32 saddr, __be16 sport,
					     __be32 daddr, __be16 dport, int dif, int sdif)
{
#if defined(PFLOW_HAVE_TCP_TABLE_ARGUMENT)
	return __inet_lookup_established(net, net->ipv4.tcp_death_row.hashinfo, saddr, sport,
					 daddr, ntohs(dport), dif, sdif);
#else
	return __inet_lookup_established(net, saddr, sport, daddr, ntohs(dport), dif, sdif);
#endif
}

static inline struct sock *pflow_tcp6_lookup(struct net *net, const struct in6_addr *saddr,
					     __be16 sport, const struct in6_addr *daddr,
					     __be16 dport, int dif, int sdif)
{
#if !IS_ENABLED(CONFIG_IPV6)
	return NULL;
#elif defined(PFLOW_HAVE_TCP_TABLE_ARGUMENT)
	return __inet6_lookup_established(net, net->ipv4.tcp_death_row.hashinfo, saddr, sport,
					  daddr, ntohs(dport), dif, sdif);
#else
	return __inet6_lookup_established(net, saddr, sport, daddr, ntohs(dport), dif, sdif);
#endif
}

/* By 7.2 a route is looked up by the DSCP in place of the TOS. */
static inline void pflow_flow_tos(struct flowi4 *fl4, u8 tos)
{
#if defined(PFLOW_HAVE_FLOW_DSCP)
	fl4->flowi4_dscp = inet_dsfield_to_dscp(tos);
#else
	fl4->flowi4_tos = tos & IPTOS_TOS_MASK & INET_DSCP_MASK;
#endif
}

/* Bytes by which the kernel drops. 6.18 put a queue per node before the socket's (b650bf0977d3). */
static inline u32 pflow_rmem(const struct sock *sk)
{
	u32 rmem = atomic_read(&sk->sk_rmem_alloc);

#if defined(PFLOW_HAVE_UDP_PROD_QUEUE)
	if (sk->sk_protocol == IPPROTO_UDP)
		rmem += atomic_read(&udp_sk(sk)->udp_prod_queue[numa_node_id()].rmem_alloc);
#endif
	return rmem;
}

/* Bytes that were received and not given back yet, as its receiver adds them up. */
static inline u32 pflow_udp_deficit(const struct sock *sk)
{
	/* The receiver writes it plainly; an older value does. */
	return data_race(READ_ONCE(udp_sk(sk)->forward_deficit));
}

/* Bytes that really wait: what was received is given back in batches. */
static inline u32 pflow_udp_waiting(const struct sock *sk)
{
	u32 rmem = pflow_rmem(sk);
	u32 deficit = pflow_udp_deficit(sk);

	return rmem > deficit ? rmem - deficit : 0;
}

/*
 * Would __udp_enqueue_schedule_skb() drop a buffer of this truesize now?
 * Until 6.18 a buffer was taken as long as the ones before it left room, from
 * then on it has to fit itself, except into an empty queue.
 */
static inline bool pflow_udp_would_drop(u32 rmem, u32 rcvbuf, u32 truesize)
{
#if defined(PFLOW_HAVE_UDP_PROD_QUEUE)
	return rmem && rmem + truesize > rcvbuf;
#else
	return rmem > rcvbuf;
#endif
}

/* From 6.2 UDP keeps apart at how many bytes it gives back what was received (8a3854c7b8e4). */
static inline void pflow_udp_rcvbuf_changed(struct sock *sk)
{
#if defined(PFLOW_HAVE_FORWARD_THRESHOLD)
	int size;

	/* It is the last size's, whoever set that meanwhile. */
	do {
		size = READ_ONCE(sk->sk_rcvbuf);
		WRITE_ONCE(udp_sk(sk)->forward_threshold, size >> 2);
		smp_mb();	/* told, before it is looked at again */
	} while (READ_ONCE(sk->sk_rcvbuf) != size);
#endif
}

/* The space that a window needs: from 6.6 by what the socket's own packets take (dfa2f0483360). */
static inline u32 pflow_tcp_space(const struct sock *sk, u32 window)
{
	u64 space = window;

#if defined(PFLOW_HAVE_TCP_SCALING_RATIO)
	/* As tcp_space_from_win(), whose result may not fit. */
	space = div_u64(space << TCP_RMEM_TO_WIN_SCALE, tcp_sk(sk)->scaling_ratio);
#else
	int scale = READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_adv_win_scale);

	if (scale > 0)
		space = div64_u64(space << scale, (1ULL << scale) - 1);
	else
		space <<= -scale;
#endif
	return min_t(u64, space, INT_MAX);
}

/* Bytes that the peer may send: from 7.1 a window may have been taken back (0e24d17bd966). */
static inline u32 pflow_tcp_promised(const struct sock *sk)
{
#if defined(PFLOW_HAVE_TCP_MAX_RECEIVE_WINDOW)
	return tcp_max_receive_window(tcp_sk(sk));
#else
	return tcp_receive_window(tcp_sk(sk));
#endif
}

/*
 * Put off a device's interrupts, unless somebody has set how they are put off, and take that back.
 * The time is taken back if it is still ours, and so is the count. If somebody set another time
 * meanwhile, the count stays: he may have wanted just that count.
 *
 * From 6.13 on each NAPI instance has values of its own, which outlive it in a configuration while
 * the device is down (86e25f40aa1e, acb8d4ed5661). From 6.14 on all of that is under the device's
 * lock (1b23cdbd2bbc), before under the RTNL lock. The caller holds the latter.
 */
#if defined(PFLOW_HAVE_NAPI_DEFER)
static inline void pflow_lock_napi(struct net_device *dev)
{
#if defined(PFLOW_HAVE_NETDEV_LOCK)
	netdev_lock(dev);
#endif
}

static inline void pflow_unlock_napi(struct net_device *dev)
{
#if defined(PFLOW_HAVE_NETDEV_LOCK)
	netdev_unlock(dev);
#endif
}

static inline unsigned int pflow_napi_configs(const struct net_device *dev)
{
	if (!dev->napi_config)
		return 0;
#if defined(PFLOW_HAVE_NUM_NAPI_CONFIGS)
	return dev->num_napi_configs;
#else
	return max(dev->num_rx_queues, dev->num_tx_queues);
#endif
}

/* Return: whether any were. */
static inline bool pflow_defer_irqs(struct net_device *dev, unsigned long ns, u32 defer)
{
	struct napi_struct *napi;
	bool any = false;

	pflow_lock_napi(dev);
	list_for_each_entry(napi, &dev->napi_list, dev_list) {
		if (READ_ONCE(napi->gro_flush_timeout) || READ_ONCE(napi->defer_hard_irqs))
			continue;
		WRITE_ONCE(napi->gro_flush_timeout, ns);
		WRITE_ONCE(napi->defer_hard_irqs, defer);
		any = true;
	}
	pflow_unlock_napi(dev);
	return any;
}

static inline void pflow_undefer_irqs(struct net_device *dev, unsigned long ns, u32 defer)
{
	struct napi_struct *napi;
	unsigned int i;

	pflow_lock_napi(dev);
	list_for_each_entry(napi, &dev->napi_list, dev_list) {
		if (READ_ONCE(napi->gro_flush_timeout) == ns)
			WRITE_ONCE(napi->gro_flush_timeout, 0);
		if (!READ_ONCE(napi->gro_flush_timeout) &&
		    READ_ONCE(napi->defer_hard_irqs) == defer)
			WRITE_ONCE(napi->defer_hard_irqs, 0);
	}
	for (i = 0; i < pflow_napi_configs(dev); i++) {
		struct napi_config *config = &dev->napi_config[i];

		if (config->gro_flush_timeout == ns)
			config->gro_flush_timeout = 0;
		if (!config->gro_flush_timeout && config->defer_hard_irqs == defer)
			config->defer_hard_irqs = 0;
	}
	pflow_unlock_napi(dev);
}
#else
static inline bool pflow_defer_irqs(struct net_device *dev, unsigned long ns, u32 defer)
{
	if (READ_ONCE(dev->gro_flush_timeout) || READ_ONCE(dev->napi_defer_hard_irqs))
		return false;
	WRITE_ONCE(dev->gro_flush_timeout, ns);
	WRITE_ONCE(dev->napi_defer_hard_irqs, defer);
	return true;
}

static inline void pflow_undefer_irqs(struct net_device *dev, unsigned long ns, u32 defer)
{
	if (READ_ONCE(dev->gro_flush_timeout) == ns)
		WRITE_ONCE(dev->gro_flush_timeout, 0);
	if (!READ_ONCE(dev->gro_flush_timeout) && READ_ONCE(dev->napi_defer_hard_irqs) == defer)
		WRITE_ONCE(dev->napi_defer_hard_irqs, 0);
}
#endif

/*
 * A device for NAPI instances of one's own, which nobody else sees: from 6.10 allocated
 * (c661050f93d3), before made in memory of the caller's. By 7.2 only the first is left.
 */
static inline struct net_device *pflow_dummy_alloc(void)
{
#if defined(PFLOW_HAVE_NETDEV_DUMMY_ALLOC)
	return alloc_netdev_dummy(0);
#else
	struct net_device *dev = kzalloc(sizeof(*dev), GFP_KERNEL);

	if (dev)
		init_dummy_netdev(dev);
	return dev;
#endif
}

static inline void pflow_dummy_free(struct net_device *dev)
{
#if defined(PFLOW_HAVE_NETDEV_DUMMY_ALLOC)
	free_netdev(dev);
#else
	kfree(dev);
#endif
}

#endif
