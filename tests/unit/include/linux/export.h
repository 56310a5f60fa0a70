/* SPDX-License-Identifier: GPL-2.0-only */
/* Stands in for the kernel's header where the policy is built in user space. */
#define EXPORT_SYMBOL_GPL(symbol)
