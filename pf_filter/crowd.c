// SPDX-License-Identifier: GPL-2.0-only
/*
 * Crowds: how many sockets of a user are shed, on the CPU where their receivers run. That many
 * share a few floors, see pflow_keep() and pflow_crowd_note() in policy.c. And what those are sent
 * whose packets arrive on another CPU, see wait.c.
 *
 * Context: softirq.
 */
#include "filter.h"

static bool control_sheds(const struct control *control, u16 level)
{
	return pflow_cut_share(cut_read(&control->cut), level);
}

/**
 * filter_control_note_socket() - count a socket once in a while, if it is shed
 * @entry: of it
 * @level: its receiver's
 * @lasted: since it was counted last, jiffies
 */
static noinline void filter_control_note_socket(const struct pflow_sock *entry, u16 level,
						u32 lasted)
{
	struct control *home = per_cpu_ptr(controls, entry_run_cpu(entry));
	struct control *here = this_cpu_ptr(controls);

	if (!control_sheds(here, level) && !control_sheds(home, level))
		return;
	/* Other CPUs may count at the same time: then some counts are lost. */
	data_race(pflow_crowd_note(&home->crowds[entry->user], jiffies_to_msecs(jiffies),
				   jiffies_to_msecs(lasted)));
	/* Its own CPU does not see what arrives here. */
	if (home != here && control_sheds(home, level))
		unshed_note_far(&home->unshed,
				div_u64((u64)READ_ONCE(entry->rate) * min_t(u32, lasted, HZ), HZ),
				min(control_keep_share(home, home, entry, level),
				    control_keep_share(here, home, entry, level)));
}
