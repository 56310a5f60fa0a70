// SPDX-License-Identifier: GPL-2.0-only
/* compute - for Python: to compute for a while, by instructions that cost the host little. */
#include "nops.h"

__attribute__((visibility("default"))) void compute(unsigned long instructions);

void compute(unsigned long instructions)
{
	for (; instructions >= NOPS_IN_RUN; instructions -= NOPS_IN_RUN)
		nops_run();
}
