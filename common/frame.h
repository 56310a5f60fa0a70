/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Frames: what a driver has received and has made no buffer for yet. XDP programs ask modules
 * about them.
 */
#ifndef _PFLOW_FRAME_H
#define _PFLOW_FRAME_H

#include <linux/types.h>

struct iphdr;
struct ipv6hdr;
struct net_device;

/**
 * struct pflow_frame - what is left to be read of a frame
 * @at: next to be read
 * @end: behind its last byte
 * @dev: device that it came by; the one that the network layer sees, once it is open
 */
struct pflow_frame {
	const void *at;
	const void *end;
	struct net_device *dev;
};

/**
 * pflow_frame_take() - read on
 * @frame: it
 * @length: bytes
 *
 * Context: any. Return: the next so many bytes; NULL: there are fewer.
 */
static inline const void *pflow_frame_take(struct pflow_frame *frame, unsigned int length)
{
	const void *at = frame->at;

	if (frame->end - at < length)
		return NULL;
	frame->at += length;
	return at;
}

/* frames/frame.c */
__be16 pflow_frame_open(struct pflow_frame *frame);
const struct iphdr *pflow_frame_take_ip4(struct pflow_frame *frame);
const struct ipv6hdr *pflow_frame_take_ip6(struct pflow_frame *frame);

#endif
