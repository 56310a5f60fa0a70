// SPDX-License-Identifier: GPL-2.0-only
/*
 * Judge: the paper's conditions (section 3.1.1), anew for each packet.
 *
 * B1: where this CPU, or the CPU on which the receiver runs, is in trouble, a
 * packet of a less important receiver is dropped with the probability that the
 * controllers ask for. Loopback has no receive queue to relieve and its sender
 * runs on this host, so B1 leaves it alone.
 *
 * B2, asked next: what the socket would drop anyway is dropped now, surely, unless
 * pf_mm can still grow the buffer. Nothing is latched: the same comparison that the
 * kernel makes at the end of the path is made here.
 *
 * B1 does not need the socket. B2 does not need it either where the flow's receiver is remembered
 * (recall.c) and the packets let through since the last look surely fit. What the receiver reads
 * meanwhile only makes more room.
 *
 * A program may pick one socket of a group for each packet. Then a packet is sure to be dropped
 * only if every member is full. So no socket is needed either while the most important member
 * surely has room. B2 leaves large groups alone.
 *
 * Context: softirq, RCU read side.
 */
#include "../common/compat/compat.h"
#include "filter.h"

#define LATE_US		20000u	/* a default buffer is full by then of a busy receiver */

static void entry_note_drops(struct pflow_sock *entry, bool dropping)
{
	if (test_bit(PFLOW_SOCK_DS, &entry->flags) == dropping)
		return;
	if (dropping) {
		set_bit(PFLOW_SOCK_DS, &entry->flags);
		entry_assume_receiving(entry);
	} else {
		clear_bit(PFLOW_SOCK_DS, &entry->flags);
	}
}

/*
 * Who sent this may be who receives it. So it is over the loopback, and in the network namespace of
 * a user, who can put there what devices he likes; but not if a pair of devices leads there from a
 * namespace of the host's.
 */
static bool packet_may_be_own(const struct filter_packet *packet)
{
	struct net_device *dev = packet->skb ? packet->skb->dev : packet->dev;
	const struct net_device *peer;

	if (packet->loopback)
		return true;
	if (likely(packet->net->user_ns == &init_user_ns) || !dev)
		return false;
	peer = dev->netdev_ops->ndo_get_peer_dev ? dev->netdev_ops->ndo_get_peer_dev(dev) : NULL;
	return !peer || dev_net(peer)->user_ns != &init_user_ns;
}

/*
 * Is whoever answers on this socket asked from elsewhere? Then its waiting is harm (wait.c). The
 * mark is set anew whenever sends are looked at, which is done once a second.
 */
static noinline void entry_note_asked(const struct filter_packet *packet)
{
	struct pflow_sock *entry = packet->entry;
	struct pflow_thread *thread;

	if (!test_bit(PFLOW_SOCK_ANSWERS, &entry->flags) || packet_may_be_own(packet))
		return;
	clear_bit(PFLOW_SOCK_ANSWERS, &entry->flags);
	thread = pflow_thread_of(entry);
	if (thread)
		WRITE_ONCE(thread->asked_at, pflow_stamp_now());
}

/* B1 comes first: who is shed anyway needs no look at his socket. */
static enum filter_outcome packet_judge_rank(const struct filter_packet *packet, u16 level,
					     u32 lasted)
{
	if (packet->loopback || packet->ranked ||
	    READ_ONCE(filter_knobs[FILTER_KNOB_SHED].value) == FILTER_SHED_FULL)
		return FILTER_PASS;
	if (unlikely(lasted)) {
		filter_control_note_socket(packet->entry, level, lasted);
		entry_note_asked(packet);
	}
	return filter_control_judge(packet->entry, level, packet->packets);
}

/* Bytes that can come before the next packet would be dropped. */
static u32 sock_room_left(const struct sock *sk, u32 truesize)
{
	u32 taken = pflow_rmem(sk) + truesize;
	u32 rcvbuf = READ_ONCE(sk->sk_rcvbuf);

	return rcvbuf > taken ? rcvbuf - taken : 0;
}

/*
 * Look how much room there is. More than what the packets passed since the last
 * look have left means that somebody received; that is known without a probe.
 */
static void entry_measure_room(struct pflow_sock *entry, const struct sock *sk, u32 truesize)
{
	u32 room = sock_room_left(sk, truesize);

	if (room > READ_ONCE(entry->room) && READ_ONCE(entry->drained) != (u32)jiffies)
		WRITE_ONCE(entry->drained, (u32)jiffies);
	WRITE_ONCE(entry->room, room);
}

/*
 * Other CPUs may take from the same room and pass a few packets too many, which
 * the socket then drops itself; nothing is ever dropped by this.
 */
static bool entry_has_room(const struct pflow_sock *entry, u32 truesize)
{
	return READ_ONCE(entry->room) >= truesize;
}

static void entry_note_room(struct pflow_sock *entry, u32 room)
{
	if (READ_ONCE(entry->room) != room)
		WRITE_ONCE(entry->room, room);
}

static void entry_take_room(struct pflow_sock *entry, u32 truesize)
{
	u32 room = READ_ONCE(entry->room);

	WRITE_ONCE(entry->room, room - min(room, truesize));
}

/*
 * What waits in a buffer is read late, though nothing is lost yet: late if it waits longer than
 * LATE_US at the rate at which packets come. One look in a jiffy is enough.
 */
static noinline void entry_note_late(const struct filter_packet *packet)
{
	struct pflow_sock *entry = packet->entry;
	u64 bytes_per_s = (u64)(packet->truesize / packet->packets) * READ_ONCE(entry->rate);
	u32 since = READ_ONCE(entry->late_since), now = (u32)jiffies ?: 1;
	struct pflow_thread *thread;

	WRITE_ONCE(entry->late_looked, (u16)jiffies);
	if (packet_may_be_own(packet) || !bytes_per_s ||
	    (u64)pflow_udp_waiting(packet->sk) * (USEC_PER_SEC / LATE_US) <= bytes_per_s) {
		if (since)
			WRITE_ONCE(entry->late_since, 0);
		return;
	}
	if (!since || now - since > PFLOW_LATE_FOR + PFLOW_LATE_SEEN) {
		WRITE_ONCE(entry->late_since, now);
		return;
	}
	if (now - since <= PFLOW_LATE_FOR)
		return;
	WRITE_ONCE(entry->late_since, now - PFLOW_LATE_FOR - 1);
	thread = pflow_thread_of(entry);
	if (thread)
		WRITE_ONCE(thread->late_at, now);
}

/* Its receiver's buffer is full. */
static void packet_note_harm(const struct filter_packet *packet, u16 level)
{
	if (!packet_may_be_own(packet) && entry_is_receiving(packet->entry))
		filter_control_note_harm(packet->entry, level, packet->packets);
}

/* B2, and what a full buffer tells of the receiver. */
static enum filter_outcome packet_judge_socket(const struct filter_packet *packet, u16 level)
{
	struct pflow_sock *entry = packet->entry;

	entry_note_drops(entry, packet->full);
	if (READ_ONCE(entry->late_looked) != (u16)jiffies)
		entry_note_late(packet);
	/* A frame that the hook will count if it is passed is no loss before it is dropped. */
	if (packet->full && (packet->skb || !packet->ranked))
		packet_note_harm(packet, level);
	if (!packet->full) {
		/* A frame shorter than the packet that its flow is known by: the hook will know. */
		if (unlikely(packet->truesize > packet->least) && !packet->skb &&
		    !sock_room_left(packet->sk, packet->truesize))
			return FILTER_PASS_UNTRACKED;
		entry_measure_room(entry, packet->sk, packet->least);
		return FILTER_PASS;
	}
	/* From 6.18 on there may be room for a smaller one. */
	entry_note_room(entry, sock_room_left(packet->sk, 0));
	pflow_load_renew();
	return test_bit(PFLOW_SOCK_GROWS, &entry->flags) ? FILTER_PASS : FILTER_DROP_FULL;
}

/**
 * filter_note_frame() - count a frame that is dropped, though B1 did not count it
 * @packet: it; its receiver's buffer is full
 *
 * Context: softirq, RCU read side.
 */
static void filter_note_frame(const struct filter_packet *packet)
{
	pflow_sock_arrival(packet->entry, packet->packets);
	packet_note_harm(packet, filter_level(packet->entry));
}

/**
 * filter_judge() - decide about a packet
 * @packet: classified
 *
 * Context: softirq, RCU read side. Return: what to do with it and why.
 */
static enum filter_outcome filter_judge(struct filter_packet *packet)
{
	struct pflow_sock *entry = packet->entry;
	enum filter_outcome outcome;
	u32 lasted = 0;
	u16 level;

	if (likely(!packet->ranked))
		lasted = pflow_sock_arrival(entry, packet->packets);
	if (!this_cpu_read(pflow_load.pressed)) {
		if (packet->sk)
			entry_note_drops(entry, packet->full);
		return FILTER_PASS;
	}
	if (packet_is_exempt(packet))
		return FILTER_PASS_EXEMPT;

	level = filter_level(entry);
	outcome = packet_judge_rank(packet, level, lasted);
	if (outcome != FILTER_PASS)
		return outcome;
	/* What a super-packet takes is not known beforehand. */
	if (!packet->sk && packet->packets == 1 && entry_has_room(entry, packet->truesize)) {
		entry_take_room(entry, packet->truesize);
		return FILTER_PASS;
	}
	/* Nothing would come of another look at so large a group in this jiffy. */
	if (!packet->sk && unlikely(packet->group == FILTER_GROUP_PART))
		return FILTER_PASS;
	outcome = packet->sk ? FILTER_PASS : filter_find_sock(packet);
	return outcome == FILTER_PASS ? packet_judge_socket(packet, level) : outcome;
}
