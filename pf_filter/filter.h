/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of pf_filter share: a packet goes through classify, judge and
 * act, and each knows nothing of how the others work. A verdict of a later
 * kind (defer it to the receiver's own time) slots in beside pass and drop.
 */
#ifndef _PFLOW_FILTER_H
#define _PFLOW_FILTER_H

#include <linux/netfilter.h>
#include <linux/rcupdate.h>
#include <linux/skbuff.h>

#include "../common/packetflow.h"
#include "policy.h"

/* knobs.c */
enum {
	FILTER_KNOB_MODE,
	FILTER_KNOB_SHED,
	FILTER_KNOB_FLOOR,
	FILTER_KNOB_FLOOR_SHARE,
	FILTER_KNOB_EXEMPT,
	FILTER_KNOBS,
};

enum {
	FILTER_MODE_ENFORCE,
	FILTER_MODE_OBSERVE,
};

enum {
	FILTER_SHED_RANK,
	FILTER_SHED_FULL,
};

extern struct pflow_knob filter_knobs[FILTER_KNOBS];
int filter_exempt_setup(void);

/* The receiver is picked by a program from a group of sockets. */
enum filter_group {
	FILTER_GROUP_NONE,
	FILTER_GROUP_WHOLE,	/* all of its members were looked at */
	FILTER_GROUP_PART,	/* it has more than that: whether all are full is not known */
};

/**
 * struct filter_packet - a packet for one receiver of this host
 * @skb: its buffer; several packets where GRO merged them. NULL: a frame that has none yet
 * @dev: device by which it came, where @skb is NULL and it matters
 * @net: the namespace it is in
 * @home: the namespace of its receiver, where known; this or another
 * @iif: device by which it comes to this host's IP
 * @home_iif: device by which it comes to another
 * @epoch: trails_epoch before @home was looked for
 * @routes: the numbers by which the routes of both were known then, where @home is another
 * @sk: the receiving socket, held by RCU; NULL if only @entry is known
 * @entry: its entry in the shared table
 * @packets: how many the buffer carries
 * @length: of the datagram, its header included
 * @truesize: what it takes of a receiver's buffer, if it is received, or about so much
 * @least: it takes no less than this
 * @group: enum filter_group; @entry and @sk are its most important member's
 * @lasting: @entry depends on nothing but the flow
 * @ranked: B1 has let it through already
 * @unsourced: its socket may see another source than the one here
 * @full: the socket would drop it
 * @tos: of IPv4, where there is no buffer yet
 * @v4: came by IPv4
 * @loopback: came from this very host
 * @local_port: destination port, host order
 * @remote_port: source port, host order
 */
struct filter_packet {
	struct sk_buff *skb;
	struct net_device *dev;
	struct net *net;
	struct net *home;
	int iif;
	int home_iif;
	u32 epoch;
	u64 routes;
	struct sock *sk;
	struct pflow_sock *entry;
	unsigned int packets;
	u16 length;
	u32 truesize;
	u32 least;
	u8 group;
	bool lasting;
	bool ranked;
	bool unsourced;
	bool full;
	u8 tos;
	bool v4;
	bool loopback;
	u16 local_port;
	u16 remote_port;
};

/**
 * filter_level() - where a receiver stands in the order
 * @entry: of its socket
 *
 * Context: any. Return: its level.
 */
static inline u16 filter_level(const struct pflow_sock *entry)
{
	return pflow_level(READ_ONCE(entry->rank), test_bit(PFLOW_SOCK_PP, &entry->flags));
}

/* control.c */
int filter_control_setup(void);
void filter_control_teardown(void);
void filter_control_status(struct seq_file *m);
void filter_control_metrics(struct seq_file *m);

/* trail.c */
void filter_trails_forget_net(const struct net *net);
void filter_trails_moved(const struct net *net, const struct in6_addr *local, const u8 *hardware);

/* moves.c */
int filter_moves_setup(void);
void filter_moves_teardown(void);

/* driver.c */
struct xdp_md;
int pflow_xdp_judge(struct xdp_md *ctx);
int filter_driver_register(void);
void filter_driver_watch(bool on);

/* count.c */
void filter_count_looks(int cpu, u64 *dropped, u64 *passed);
void filter_count_status(struct seq_file *m);
void filter_count_metrics(struct seq_file *m);

/* queued.c */
int filter_queues_setup(void);
void filter_queues_teardown(void);
bool filter_queues_exist(void);

/* nets.c */
int filter_nets_setup(void);
void filter_nets_teardown(void);
void filter_nets_watch(bool on);
void filter_nets_metrics(struct seq_file *m);

#endif
