// SPDX-License-Identifier: GPL-2.0-only
/*
 * Exempt: packets that are none of our business, by their ports.
 *
 * The destination port is the receiver's, so it is the administrator's to exempt. The source port
 * is the sender's to choose. It exempts replies, and a client gets few of them: no more than
 * %REPLY_RATE to one receiver are exempt, and no more than %REPLY_BURST in the time after which
 * a rate is known. So the beginning of a flood leaves others theirs. All receivers on a CPU
 * together have no more than %REPLY_RATE, either. Otherwise a stranger could send to many of
 * them, and nobody might shed it. Packets from the peer to which a socket is connected are
 * counted apart, for each user: neither strangers nor other users use up anything of that.
 *
 * Context: softirq, RCU read side.
 */
#include <linux/percpu.h>

#include "filter.h"

#define REPLY_RATE	1000	/* packets/s */
#define REPLY_BURST	100	/* packets in PFLOW_WINDOW */

/**
 * struct replies - what was exempt for its source port on a CPU
 * @second: of the system's uptime, in which it was counted
 * @packets: how many in it
 */
struct replies {
	u16 second;
	u16 packets;
};

/**
 * struct reply_counts - the replies on a CPU
 * @any: of whatever peer
 * @own: of a socket's own peer, by pflow_sock.user
 */
struct reply_counts {
	struct replies any;
	struct replies own[U8_MAX + 1];
};

/* Not a variable of the module: for those of all modules together there are 8 KiB. */
static struct reply_counts __percpu *reply_counts;

static int replies_setup(void)
{
	reply_counts = alloc_percpu(struct reply_counts);
	return reply_counts ? 0 : -ENOMEM;
}

/* No packet is in the hook any more. */
static void replies_teardown(void)
{
	free_percpu(reply_counts);
}

static noinline bool replies_take(const struct pflow_sock *entry, bool own_peer,
				  unsigned int packets)
{
	struct reply_counts *counts = this_cpu_ptr(reply_counts);
	struct replies *taken = own_peer ? &counts->own[entry->user] : &counts->any;
	u16 second = (u32)jiffies / HZ;

	if (taken->second != second) {
		taken->second = second;
		taken->packets = 0;
	}
	if (taken->packets >= REPLY_RATE)
		return false;
	taken->packets += packets;
	return true;
}

/* Of CPUs that count at once, one may see a window that begins after its packet. */
static bool entry_gets_too_many(const struct pflow_sock *entry)
{
	s32 arrived = READ_ONCE(entry->arrived) - READ_ONCE(entry->window_arrived);

	return READ_ONCE(entry->rate) >= REPLY_RATE || arrived > REPLY_BURST;
}

/**
 * packet_is_exempt() - is a packet none of our business?
 * @packet: classified
 *
 * Return: whether it is.
 */
static bool packet_is_exempt(const struct filter_packet *packet)
{
	const struct pflow_ports *list = rcu_dereference(filter_knobs[FILTER_KNOB_EXEMPT].ports);
	const struct pflow_sock *entry = packet->entry;

	if (test_bit(packet->local_port, list->local))
		return true;
	if (likely(!test_bit(packet->remote_port, list->remote)))
		return false;
	return !entry_gets_too_many(entry) &&
	       replies_take(entry, READ_ONCE(entry->remote_port) == packet->remote_port,
			    packet->packets);
}
