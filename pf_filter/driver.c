// SPDX-License-Identifier: GPL-2.0-only
/*
 * Driver: what is shed anyway is dropped before it costs a buffer.
 *
 * An early drop at the hook has cost its buffer and the way there, more than half of what softirqs
 * take for a packet. Where an administrator asks for it (packetflow xdp attach), a program of a few
 * instructions runs in a device's driver (XDP) and asks here about each frame. The verdict
 * is the hook's: same receiver, same cut, same coin (judge.c).
 *
 * Whose a flow is, the hook tells (wire.c). A frame of a flow that it has not told of goes up.
 *
 * All else passes: what has no flow here (frame.c), and what pf_filter leaves alone.
 *
 * A program that is loaded holds the module, so what it calls is always there. @judging says
 * whether frames are judged.
 *
 * On PREEMPT_RT all passes, as nothing is remembered there.
 *
 * Context: softirq, RCU read side.
 */
#include <linux/bpf.h>
#include <linux/filter.h>
#include <net/xdp.h>

#include "../common/compat/compat.h"
#include "../common/compat/driver.h"
#include "filter.h"
#include "wire.h"

static bool judging;

/* The packet of a frame whose flow is known. */
static bool frame_recall(const struct wire *wire, struct filter_packet *packet,
			 const struct frame *frame)
{
	packet->net = dev_net(frame->in.dev);
	packet->dev = frame->in.dev;
	packet->v4 = wire->key.v4;
	packet->length = frame->length;
	packet->tos = frame->tos;
	packet->loopback = frame->in.dev->flags & IFF_LOOPBACK;
	packet->truesize = wire->truesize;
	/* A longer one takes no less. */
	packet->least = frame->length >= wire->length ? wire->truesize : SKB_TRUESIZE(0);
	return wire_recall(wire, packet);
}

/* Does the driver leave a place for a mark, which nobody uses? */
static bool frame_can_have_mark(const struct xdp_buff *xdp)
{
	return xdp->data_meta == xdp->data &&
	       xdp->data - sizeof(judged_mark) >= xdp->data_hard_start + sizeof(struct xdp_frame);
}

static void frame_mark(struct xdp_buff *xdp)
{
	void *mark = xdp->data - sizeof(judged_mark);

	memcpy(mark, &judged_mark, sizeof(judged_mark));
	xdp->data_meta = mark;
}

/*
 * Is this frame to be dropped? What cannot be judged here is left to the hook. What is passed has a
 * mark. If it can have none, the hook will count and judge it as if it had not been here. So
 * whether to shed it is left to the hook: a coin that is tossed twice is no fair one. Inlined,
 * which saves 23 instructions.
 */
static __always_inline bool frame_judge(const struct wire *wire, const struct frame *frame,
					struct xdp_buff *xdp)
{
	struct filter_packet packet = { .packets = 1, .ranked = !frame_can_have_mark(xdp) };
	enum filter_outcome outcome;

	if (!frame_recall(wire, &packet, frame))
		return false;
	outcome = filter_judge(&packet);
	if (outcome < FILTER_PASS && !wire_holds(wire, packet.net))
		return false;
	if (filter_count_outcome(&packet, outcome)) {
		if (unlikely(packet.ranked))
			filter_note_frame(&packet);
		filter_drop(&packet, outcome);
		return true;
	}
	if (outcome <= FILTER_PASS_EXEMPT && !packet.ranked)
		frame_mark(xdp);
	return false;
}

static noinline int frame_decide(struct xdp_buff *xdp)
{
	struct frame frame = {
		.in = { .at = xdp->data, .end = xdp->data_end, .dev = xdp->rxq->dev },
	};
	struct wire *wire;

	/* With softirqs on, as in a test run before 6.3, nothing that is remembered is ours. */
	if (!READ_ONCE(judging) || !softirq_count() || xdp_buff_has_frags(xdp))
		return XDP_PASS;
	wire = frame_recognise(&frame, xdp);
	if (!wire)
		wire = frame_find_wire(&frame, xdp);
	return wire && frame_judge(wire, &frame, xdp) ? XDP_DROP : XDP_PASS;
}

/**
 * pflow_xdp_judge() - is a frame to be dropped in the driver?
 * @ctx: it
 *
 * For XDP programs.
 *
 * Context: a device's poll, softirq. Return: %XDP_PASS or %XDP_DROP.
 */
__bpf_kfunc int pflow_xdp_judge(struct xdp_md *ctx)
{
	if (likely(!this_cpu_read(pflow_load.pressed)) || IS_ENABLED(CONFIG_PREEMPT_RT))
		return XDP_PASS;
	return frame_decide((struct xdp_buff *)ctx);
}

BTF_KFUNCS_START(driver_ids)
BTF_ID_FLAGS(func, pflow_xdp_judge)
BTF_KFUNCS_END(driver_ids)

static const struct btf_kfunc_id_set driver_set = {
	.owner = THIS_MODULE,
	.set = &driver_ids,
};

/**
 * filter_driver_register() - let XDP programs ask
 *
 * Once in the module's life; the kernel takes it back itself.
 *
 * Context: process. Return: 0 or a negative error.
 */
int filter_driver_register(void)
{
	return pflow_driver_register(&driver_set);
}

/**
 * filter_driver_watch() - judge frames, or let all pass
 * @on: which
 *
 * Context: process. One that is being judged is done with after a grace period.
 */
void filter_driver_watch(bool on)
{
	WRITE_ONCE(judging, on);
}
