/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of pf_sched share.
 *
 * The hook (hook.c) finds a socket whose buffer fills. The election (elect.c) picks its receiver if
 * it is among the most important ones. A lever (lever.c) raises that thread. pf_sched's own thread
 * (boost.c) looks after all that are raised, and restores them in the end.
 */
#ifndef _PFLOW_SCHED_H
#define _PFLOW_SCHED_H

#include <linux/sched.h>
#include <linux/seq_file.h>
#include <net/sock.h>

#include "../common/packetflow.h"
#include "policy.h"

/* knobs.c */
enum {
	SCHED_KNOB_MODE,
	SCHED_KNOB_LEVER,
	SCHED_KNOB_ELECT,
	SCHED_KNOB_THRESHOLD,
	SCHED_KNOB_LEVELS,
	SCHED_KNOB_HOLD,
	SCHED_KNOB_APART,
	SCHED_KNOB_CAP,
	SCHED_KNOB_ESCAPE,
	SCHED_KNOB_EXEMPT,
	SCHED_KNOBS,
};

enum {
	SCHED_MODE_ENFORCE,
	SCHED_MODE_OBSERVE,
};

extern struct pflow_knob sched_knobs[SCHED_KNOBS];
bool boost_exempt(const struct task_struct *task);

static inline unsigned int sched_knob(unsigned int which)
{
	return READ_ONCE(sched_knobs[which].value);
}

/* How a thread is raised; the knob's values are these, after "auto". */
enum boost_lever {
	LEVER_NICE,
	LEVER_GROUP,	/* its session's nice level, set by tools/packetflow-group */
	LEVER_DEADLINE,	/* from here on: a class above all groups */
	LEVER_RR,
	LEVERS,
};

/* The knob's value that asks for a lever by its name. */
static inline unsigned int lever_by_name(enum boost_lever lever)
{
	return lever + 1;
}

static inline bool lever_above_groups(enum boost_lever lever)
{
	return lever == LEVER_DEADLINE || lever == LEVER_RR;
}

/* Why a boost ended; indexes the counters. */
enum boost_end {
	END_EXPIRED,
	END_CLOSED,
	END_EXITED,
	END_EXEC,
	END_OTHER,
	END_BARRED,
	END_TRIAL,	/* taken back for a moment, to see whether it helps */
	END_DISPLACED,
	END_STOPPED,
	END_CHANGED,
	END_CAP,
	END_WEAK,
	ENDS,
};

/**
 * struct boost_before - how a thread was scheduled before its boost
 * @nice: nice level
 * @reset_on_fork: its own wish
 * @timer_slack_ns: timer slack; a real-time class has none, and leaving it gives the default
 * @slice_ns: custom slice, 0 for none
 */
struct boost_before {
	int nice;
	bool reset_on_fork;
	u64 timer_slack_ns;
	u64 slice_ns;
};

/**
 * struct boost - a thread that is raised
 * @task: held
 * @lever: by what
 * @levels: nice levels that it is raised by; 0 with a class above all groups
 * @nice: nice level that was set; LEVER_NICE
 * @priority: real-time priority that was set; LEVER_RR
 * @runtime_ns: reservation that was made; LEVER_DEADLINE
 * @scant: less was reserved than is to be had
 * @held: stamp of when its end was first put off, or 0; see lever_holds()
 * @before: what to restore
 * @need: percent of a CPU that it was seen to use, 0 where not known
 * @weak: nice was seen not to be enough for it
 */
struct boost {
	struct task_struct *task;
	enum boost_lever lever;
	unsigned int levels;
	int nice;
	unsigned int priority;
	u64 runtime_ns;
	bool scant;
	u32 held;
	struct boost_before before;
	unsigned int need;
	bool weak;
};

/* lever.c */
int lever_choose(const struct task_struct *task, bool weak, enum boost_lever *lever);
void lever_save(struct boost *boost);
void lever_raise_nice(struct boost *boost);
int lever_raise_realtime(struct boost *boost, unsigned int cap, unsigned int priority);
void lever_reorder(struct boost *boost, unsigned int priority);
void lever_set_degree(struct boost *boost, unsigned int levels);
bool lever_untouched(const struct boost *boost);
bool lever_reniced(const struct boost *boost);
bool lever_barred(const struct boost *boost);
bool lever_holds(struct boost *boost);
void lever_restore(struct boost *boost);
void lever_status(struct seq_file *m);
void lever_metrics(struct seq_file *m);
const char *lever_name(enum boost_lever lever);

/* fork.c */
int fork_setup(void);
void fork_teardown(void);

/* lend.c */
int lend_setup(void);
void lend_teardown(void);

/* boost.c */
int boost_setup(void);
void boost_teardown(void);

/* elect.c */
/* What came of a packet that fills a buffer. */
enum considered {
	CONSIDERED_NOT,
	CONSIDERED_DONE,	/* raised, or refused for the moment */
	CONSIDERED_REFUSED,	/* for longer than a moment */
};

enum considered elect_consider(struct sock *sk);

/* status.c */
void boost_status(struct seq_file *m);
void boost_metrics(struct seq_file *m);

/* hook.c */
bool hook_wants_boost(const struct sock *sk);
int hook_setup(void);
void hook_teardown(void);
void hook_note_pressure(bool on);
void hook_metrics(struct seq_file *m);

#endif
