// SPDX-License-Identifier: GPL-2.0-only
/*
 * busy - compute for ever, at next to no cost to a host that emulates (nops.h).
 */
#include "nops.h"

int main(void)
{
	for (;;)
		nops_run();
}
