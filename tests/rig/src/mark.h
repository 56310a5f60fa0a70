/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What every datagram of udp_send starts with, for udp_recv to read. Both ends
 * have the same byte order: they run on one machine.
 */
#ifndef RIG_MARK_H
#define RIG_MARK_H

#include <stdint.h>

struct mark {
	uint32_t seq;		/* counts up from 0 in each flow */
	uint32_t flow;
	int64_t sent_ns;	/* when it was due, CLOCK_MONOTONIC of the sender */
};

#endif
