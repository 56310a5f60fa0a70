// SPDX-License-Identifier: GPL-2.0-only
/*
 * The path of a packet as one compilation unit (as kernel/sched/build_policy.c is one), so that
 * the compiler makes one function of it: some 85 instructions a packet less than in pieces, and an
 * early drop about as cheap as nftables'. The parts stand in the order in which each uses those
 * before it.
 */
#include "order.c"
#include "harm.c"
#include "loss.c"
#include "wait.c"
#include "elsewhere.c"
#include "queue.c"
#include "measure.c"
#include "control.c"
#include "crowd.c"
#include "show.c"
#include "tracked.c"
#include "trail.c"
#include "follow.c"
#include "meet.c"
#include "recall.c"
#include "wire.c"
#include "classify.c"
#include "exempt.c"
#include "judge.c"
#include "act.c"
#include "count.c"
#include "hook.c"
#include "frame.c"
#include "driver.c"
#include "ahead.c"
#include "nets.c"
