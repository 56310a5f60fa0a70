/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Instructions for who computes in a guest that counts them. QEMU makes one block of a run without
 * branches, and of a NOP no code at all. So they count in the guest like any others, and cost the
 * host a twentieth. A longer run would cost still less, but it is cut wherever the CPU's turn ends,
 * and QEMU translates each piece anew.
 *
 * The work of udp_recv is not made of them: figures were measured with loops, and they would shift.
 */
#ifndef NOPS_H
#define NOPS_H

#define NOPS_IN_RUN 64

static inline void nops_run(void)
{
	__asm__ volatile(".rept 64\n\tnop\n\t.endr");
}

#endif
