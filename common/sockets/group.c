// SPDX-License-Identifier: GPL-2.0-only
/*
 * Group: what the weight of a control group amounts to, as a nice level.
 *
 * Nice counts between the threads of one scheduling group. Between groups the scheduler goes by
 * their weights (cpu.weight), which may be all that an administrator of containers ever sets.
 * The kernel itself says which nice level a weight is like (cpu.weight.nice). Shares of shares
 * multiply, and so these levels add up, from a thread's own group to the root. Weights that nobody
 * has changed add nothing.
 *
 * The scheduler holds a weight against the other groups of one parent. Here it counts against all
 * of the host. That is right for weights that the administrator sets, and wrong for those that are
 * delegated: a user who may set weights below a group could get its receivers any rank. The kernel
 * does not tell who may. So only groups of the first levels (rank_depth) raise a rank, and those
 * below them only lower it. A walk begins at the root, and goes no deeper than GROUPS_MOST, so
 * nobody can make it long by nesting. A group that lies deeper is not lowered by its weight. That
 * gains its owner nothing that he could not have by leaving the weight alone.
 *
 * The kernel does not export the function that computes a nice level of a weight. But a control
 * group's files are known by name, and each names the function that reads it.
 *
 * The answer is needed with each receive call. So it is kept for a second, under the address of
 * the group, which is only compared.
 *
 * Context: any.
 */
#include <linux/cgroup.h>
#include <linux/hash.h>
#include <linux/sched.h>

#include "../internal.h"

#if IS_ENABLED(CONFIG_CGROUP_SCHED)
#define GROUP_BITS	6
#define GROUPS_MOST	8	/* levels below the root that are asked */

/* Half of the mixed address, the time and the level are one word, so no answer mixes two. */
static u64 groups[1 << GROUP_BITS];

static u64 group_pack_word(u64 mixed, int nice)
{
	return (mixed & 0xffffffff00000000) | (u64)(u16)(jiffies / HZ) << 16 | (u16)nice;
}

/* Find the file that tells a weight as a nice level. Files of a subsystem are there for good. */
static struct cftype *group_file(const struct cgroup_subsys *ss)
{
	static struct cftype *found;
	struct cftype *file = READ_ONCE(found);

	if (file)
		return file;
	for (file = ss->dfl_cftypes; file && file->name[0]; file++) {
		if (!file->read_s64 || strcmp(file->name, "weight.nice"))
			continue;
		WRITE_ONCE(found, file);
		return file;
	}
	return NULL;
}

static int css_own_nice(struct cgroup_subsys_state *css)
{
	struct cftype *file = group_file(css->ss);

	return file ? file->read_s64(css, file) : 0;
}

/* Add up the levels of a group and of those above it, which it holds. Under RCU. */
static noinline int css_nice(struct cgroup_subsys_state *css)
{
	unsigned int deepest = READ_ONCE(pflow_knobs[PFLOW_KNOB_RANK_DEPTH].value);
	struct cgroup *group = css->cgroup;
	int nice = 0, level;

	/* The root, of level 0, has no weight. */
	for (level = 1; level <= min(group->level, GROUPS_MOST); level++) {
		struct cgroup_subsys_state *own =
			rcu_dereference(cgroup_ancestor(group, level)->subsys[cpu_cgrp_id]);

		if (own)
			nice += pflow_group_counts(css_own_nice(own), level <= deepest);
	}
	return clamp(nice, 2 * MIN_NICE, 2 * MAX_NICE);
}

/**
 * pflow_group_nice() - what a thread's control groups add to its nice level
 * @task: thread that the caller holds, or current
 *
 * With control groups of version 1, cpu.shares count in the same way.
 *
 * Context: any. Return: levels; these may be more than the nice levels reach, both ways.
 */
int pflow_group_nice(const struct task_struct *task)
{
	struct cgroup_subsys_state *css;
	u64 mixed, *slot, known;
	int nice;

	rcu_read_lock();
	css = task_css((struct task_struct *)task, cpu_cgrp_id);
	if (!css->parent) {
		rcu_read_unlock();
		return 0;
	}
	mixed = (u64)(unsigned long)css * GOLDEN_RATIO_64;
	slot = &groups[mixed >> (64 - GROUP_BITS)];
	known = READ_ONCE(*slot);
	nice = (s16)known;
	if (known != group_pack_word(mixed, nice)) {
		nice = css_nice(css);
		WRITE_ONCE(*slot, group_pack_word(mixed, nice));
	}
	rcu_read_unlock();
	return nice;
}

/**
 * pflow_group_name() - which control group is a thread in?
 * @task: thread that the caller holds, or RCU
 * @name: filled in: the last part of its path; "-" for the root
 * @size: of @name, bytes
 *
 * Context: RCU read side, not NMI.
 */
void pflow_group_name(struct task_struct *task, char *name, size_t size)
{
	char *last, path[512];
	int length = kernfs_path(task_dfl_cgroup(task)->kn, path, sizeof(path));

	strscpy(name, "-", size);
	/* A path that was cut short fills @path, or its length says that it would. */
	if (length < 0 || length >= sizeof(path) - 1)
		return;
	last = strrchr(path, '/');
	if (last && last[1])
		strscpy(name, last + 1, size);
}
#else
int pflow_group_nice(const struct task_struct *task)
{
	return 0;
}

void pflow_group_name(struct task_struct *task, char *name, size_t size)
{
	strscpy(name, "-", size);
}
#endif
