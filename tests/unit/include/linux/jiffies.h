/* SPDX-License-Identifier: GPL-2.0-only */
/* Stands in for the kernel's header where the policy is built in user space. */
#include <linux/types.h>

#define HZ 1000

extern unsigned long jiffies;

static inline bool time_before32(u32 a, u32 b)
{
	return (s32)(a - b) < 0;
}
