/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Instructions for who computes in a guest that counts them. QEMU makes one block of a run without
 * branches, and of a NOP no code at all. So they count in the guest like any others, and cost the
 * host a twentieth. A longer run would cost still less, but it is cut wherever the CPU's turn ends,
 * and QEMU translates each piece anew.
 */
#ifndef NOPS_H
#define NOPS_H

#include <stdint.h>

#define NOPS_IN_RUN 67	/* with those that count the runs */

static inline void nops_run(void)
{
	__asm__ volatile(".rept 64\n\tnop\n\t.endr");
}

/* About so many. */
static inline void nops(uint64_t count)
{
	for (; count >= NOPS_IN_RUN; count -= NOPS_IN_RUN)
		nops_run();
	for (; count; count--)
		__asm__ volatile("");
}

#endif
