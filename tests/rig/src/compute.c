// SPDX-License-Identifier: GPL-2.0-only
/* compute - for Python: to compute for a while, by instructions that cost the host little. */
#include "nops.h"

__attribute__((visibility("default"))) void compute(uint64_t instructions);

void compute(uint64_t instructions)
{
	nops(instructions);
}
