/* SPDX-License-Identifier: GPL-2.0-only */
/* Stands in for the kernel's header where the policy is built in user space. */
#ifndef _STAND_IN_MATH64_H
#define _STAND_IN_MATH64_H

#include <linux/types.h>

static inline u64 div_u64(u64 dividend, u32 divisor)
{
	return dividend / divisor;
}

static inline u64 div64_u64(u64 dividend, u64 divisor)
{
	return dividend / divisor;
}

static inline s64 div64_s64(s64 dividend, s64 divisor)
{
	return dividend / divisor;
}

#endif
