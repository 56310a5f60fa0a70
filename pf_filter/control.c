// SPDX-License-Identifier: GPL-2.0-only
/*
 * The controllers: one a CPU, each with two measures (measure.c), moved by a tick. The higher of
 * their cuts is in force.
 *
 * A cut rises if a receiver has too little of its CPU, or if the CPU's receive queue overflows
 * (harm.c). Then receivers below the harmed one are shed. For a queue, those below the most
 * important receiver served there are shed. Only receivers that run on this CPU, or whose packets
 * arrive on it, are shed. On a CPU with time to spare, a receiver that loses packets is slow by
 * itself, or was sent a burst. Shedding others would not help it.
 *
 * Where nothing is cut and next to nothing dropped, the CPU rests: looking at packets would take
 * more from receivers than it gives them.
 *
 * The tick runs only while a CPU is pressed or cut, as a timer, since a worker
 * may not get the CPU in just this situation. It reads what the packet path
 * counted, and publishes each cut as one word; the packet path takes no lock.
 *
 * Context: filter_control_judge() and filter_control_note_harm() in softirq; the tick in timer
 * softirq on any one CPU.
 */
#include <linux/random.h>
#include <linux/ktime.h>
#include <linux/timer.h>

#include "../common/compat/compat.h"
#include "filter.h"
#define CREATE_TRACE_POINTS
#include "trace.h"

#define TICK		max(msecs_to_jiffies(8), 1)
#define TICK_SOON	(msecs_to_jiffies(4) - 1)	/* a timer comes up to a jiffy later */
#define IDLE_ENOUGH	(PFLOW_ONE / 8)	/* this much idle time means: not the CPU */
#define SHED_LATELY	max(HZ / 5, 1)	/* jiffies after a packet was shed for another CPU */
#define LOOK_US		200000		/* so long before it is asked whether that pays */
#define TRIAL_OLD_US	(10LL * USEC_PER_SEC)	/* after such a pause measures begin anew */
#define LONG_AGO_US	(24LL * 3600 * USEC_PER_SEC)	/* jiffies come round in 24 days or more */

/**
 * struct control - the controller of one CPU
 * @cut: the higher of @here's and @elsewhere's, as one word; read by the packet path, written by
 *	the tick
 * @cause: that measure's
 * @level: likewise
 * @here: what is done for those who are harmed on this CPU
 * @elsewhere: what is done for those on others. It is a trial of its own: if it is in vain, that
 *	tells nothing of those here
 * @unshed: what those who are shed would cost if they were not
 * @queue: whether the receive queue stands
 * @polled: pflow_load.polled at the last tick
 * @softirq_ns: pflow_load.softirq_ns at the last tick
 * @idle_us: idle time at the last tick
 * @idle: share of time idle lately, 0..65536
 * @looked_us: time spent looking since it was asked whether that pays
 * @dropped: packets dropped early on this CPU until then
 * @passed: packets looked at in vain
 * @random: for the coin
 * @shed_for_another: stamp of when this CPU last shed a packet for the sake of another CPU
 * @victims: receivers that run here and lose packets
 * @levels: by level
 * @crowds: sockets that are shed and whose receivers run here, by pflow_sock.user
 */
struct control {
	u32 cut;
	u32 cause;
	u16 level;
	struct measure here;
	struct measure elsewhere;
	struct unshed unshed;
	struct queue queue;
	u32 polled;
	u64 softirq_ns;
	u64 idle_us;
	u32 idle;
	u32 looked_us;
	u64 dropped;
	u64 passed;
	u32 random;
	u32 shed_for_another;
	struct victim victims[VICTIMS];
	struct level levels[PFLOW_LEVELS];
	struct pflow_crowd crowds[U8_MAX + 1];
};

static struct control __percpu *controls;
static struct timer_list tick;
static ktime_t tick_at;
static bool ticking;

static struct pflow_cut cut_read(const u32 *word)
{
	u32 value = READ_ONCE(*word);

	return (struct pflow_cut){ .level = value >> 16, .share = value & U16_MAX };
}

/* When a controller is to be looked after again. */
enum step {
	STEP_NONE,
	STEP_AGAIN,
	STEP_SOON,	/* its cut rises: what the harmed receiver loses meanwhile counts */
};

static bool control_is_cutting(const struct control *control)
{
	return READ_ONCE(control->cut);
}

/* The CPU that a receiver runs on; where that is not known, the one that its packets take. */
static unsigned int entry_run_cpu(const struct pflow_sock *entry)
{
	unsigned int cpu = READ_ONCE(entry->run_cpu);

	return cpu == PFLOW_CPU_UNKNOWN ? smp_processor_id() : cpu;
}

/**
 * filter_control_note_harm() - a receiver loses packets
 * @entry: the receiver
 * @level: its level
 * @packets: how many
 */
static void filter_control_note_harm(struct pflow_sock *entry, u16 level, unsigned int packets)
{
	WRITE_ONCE(entry->lost, READ_ONCE(entry->lost) + packets);
	/* Each loss is counted. Once a jiffy is enough to enter who loses. */
	if (READ_ONCE(entry->lost_noted) == (u8)jiffies)
		return;
	WRITE_ONCE(entry->lost_noted, (u8)jiffies);
	victims_enter(per_cpu_ptr(controls, entry_run_cpu(entry))->victims, entry, level, packets);
}

static u32 control_keep_share(const struct control *control, const struct control *home,
			      const struct pflow_sock *entry, u16 level)
{
	struct pflow_cut cut = cut_read(&control->cut);

	if (likely(level > cut.level))
		return PFLOW_ONE;
	return pflow_keep(pflow_cut_share(cut, level), READ_ONCE(entry->rate),
			  READ_ONCE(control->levels[level].top_rate),
			  READ_ONCE(control->levels[level].floor),
			  READ_ONCE(home->crowds[entry->user].sockets));
}

/* Heads with this probability; of so cheap a generator only the high bits are random. */
static bool control_toss_coin(struct control *control, u32 probability)
{
	control->random = control->random * 1664525 + 1013904223;
	return control->random >> 16 < probability;
}

/**
 * filter_control_judge() - count a packet that may be shed, and say whether to
 * @entry: its receiver
 * @level: the receiver's
 * @packets: how many the buffer carries
 *
 * Return: %FILTER_PASS or why to drop it.
 */
static enum filter_outcome filter_control_judge(const struct pflow_sock *entry, u16 level,
						unsigned int packets)
{
	struct control *here = this_cpu_ptr(controls), *there = here;
	struct level *mine = &here->levels[level];
	unsigned int cpu = entry_run_cpu(entry);
	u32 keep, keep_there;

	level_note_packet(mine, READ_ONCE(entry->rate));
	WRITE_ONCE(mine->arrived, mine->arrived + packets);
	if (cpu != smp_processor_id()) {
		there = per_cpu_ptr(controls, cpu);
		level_note_packet(&there->levels[level], READ_ONCE(entry->rate));
	}
	/* The timer may end meanwhile, unseen by a plain look: then the next packet starts it. */
	if (unlikely(!data_race(timer_pending(&tick))))
		mod_timer(&tick, jiffies + TICK_SOON);

	keep = control_keep_share(here, there, entry, level);
	if (there != here) {
		keep_there = control_keep_share(there, there, entry, level);
		if (keep_there < keep)
			keep = keep_there;
		else
			there = here;
	}
	if (likely(keep >= PFLOW_ONE) || control_toss_coin(here, keep))
		return FILTER_PASS;
	if (there != here)
		WRITE_ONCE(here->shed_for_another, pflow_stamp_now());
	WRITE_ONCE(mine->shed, mine->shed + packets);
	return READ_ONCE(there->cause);
}

/* Clocks and counters read from another CPU may seem to step back. */
static u32 clock_step_us(s64 us, u32 most)
{
	return clamp_t(s64, us, 0, most);
}

/*
 * Does this CPU shed for nobody? Those for whom it did may have gone to another CPU. A receiver
 * that loses packets here, but whose thread is not known, is taken to be here still. One that only
 * waits does not wait for those who cost little (wait.c).
 */
static bool control_is_for_nobody(const struct control *control, int cpu, bool little)
{
	const struct measure *here = &control->here;

	return here->ceased || (here->cause == FILTER_DROP_HARM &&
				(little || !receivers_above(cpu, here->cut.level)) &&
				!victims_above(control->victims, here->cut.level));
}

static void control_publish_cut(struct control *control, const struct measure *measure)
{
	WRITE_ONCE(control->cause, measure->cause);
	WRITE_ONCE(control->level, measure->level);
	WRITE_ONCE(control->cut, (u32)measure->cut.level << 16 | measure->cut.share);
}

static bool control_idles(const struct control *control, const struct usage *usage)
{
	return min(control->idle, usage->idle) >= IDLE_ENOUGH;
}

/* Take both measures on. Return: whether one rose. */
static bool control_step_measures(struct control *control, const struct usage *usage,
				  const struct order *order, u16 served, u32 elapsed_us)
{
	struct pflow_cut cut = cut_read(&control->cut);
	struct harm here = { .spare = control->idle }, elsewhere = here;
	const struct measure *in_force;
	bool little = shedding_saves_little(&control->unshed, usage, order, cut, elapsed_us);
	bool rose;

	harm_weigh_losses(&here, control->victims, usage, order, cut, elapsed_us);
	if (!little)
		harm_weigh_waits(&here, usage, order, cut);
	/* One tick without idle time is enough at an onset. */
	if (control_idles(control, usage))
		here.share = 0;
	control->queue.asking = control->here.trial.asking_us;
	harm_weigh_queue(&here, &control->queue, usage, order, cut, served, elapsed_us);
	if (!little)
		harm_weigh_elsewhere(&elsewhere, usage, order, cut);
	if (here.ceased > control->here.level)
		control->here.ceased = true;
	rose = measure_step(&control->here, &here, order,
			    control_is_for_nobody(control, usage->cpu, little), elapsed_us);
	rose |= measure_step(&control->elsewhere, &elsewhere, order, little, elapsed_us);
	in_force = measure_in_force(&control->here, &control->elsewhere);
	control_publish_cut(control, in_force);
	harm_note_shed(control->levels, order, in_force->cut);
	trace_control(usage, control->idle, control->cut,
		      in_force == &control->here ? &here : &elsewhere,
		      in_force->trial.asking_us);
	return rose;
}

/* Return: 0..65536, share of the time since the last tick for which this CPU idled. */
static u32 control_take_idle(struct control *control, int cpu, u32 elapsed_us)
{
	u64 idle_us = pflow_cpu_idle_us(cpu);
	u32 idle = div_u64((u64)clock_step_us(idle_us - control->idle_us, elapsed_us) * PFLOW_ONE,
			   elapsed_us);

	WRITE_ONCE(control->idle, pflow_mean_step(control->idle, idle));
	control->idle_us = idle_us;
	if (control->idle >= IDLE_ENOUGH)
		harm_note_idle(cpu);
	return idle;
}

/* What took this CPU's time since the last tick. */
static void control_take_usage(struct usage *usage, struct control *control,
			       const struct pflow_load *load, u32 elapsed_us)
{
	u64 softirq_ns = READ_ONCE(load->softirq_ns);
	u32 polled = READ_ONCE(load->polled);

	usage->idle = control_take_idle(control, usage->cpu, elapsed_us);
	usage->softirq = time_share_of(softirq_ns - control->softirq_ns, elapsed_us);
	usage->polled = polled - control->polled;
	control->softirq_ns = softirq_ns;
	control->polled = polled;
	usage->standing = queue_standing_share(&control->queue, load, usage,
					       control_idles(control, usage), elapsed_us);
}

/*
 * Set the floor of each level in use (pflow_floor()). A packet costs what softirqs take for one,
 * and what its receivers run for one. A level with few packets tells nothing, and is taken to cost
 * what it cost before.
 */
static void control_set_floors(struct control *control, const struct pflow_load *load,
			       const struct order *order, const struct usage *usage, u32 elapsed_us)
{
	u32 floor = READ_ONCE(filter_knobs[FILTER_KNOB_FLOOR].value);
	u32 percent = READ_ONCE(filter_knobs[FILTER_KNOB_FLOOR_SHARE].value);
	u32 weights = percent ? receivers_weight(usage->cpu) : 0;
	unsigned int i;

	for (i = 0; i < order->n; i++) {
		struct level *level = &control->levels[order->level[i]];
		u8 rank = order->level[i] / 2;
		u32 packet_ns;

		if (percent && order->passed[i] >= PACKETS_TELL) {
			packet_ns = div_u64((u64)receivers_run(rank) * elapsed_us *
					    NSEC_PER_USEC / PFLOW_ONE, order->passed[i]);
			level->packet_ns += ((s32)packet_ns - (s32)level->packet_ns) / 4;
		}
		packet_ns = min_t(u64, (u64)level->packet_ns + READ_ONCE(load->packet_ns), U32_MAX);
		WRITE_ONCE(level->floor, pflow_floor(floor, percent, pflow_rank_weight(rank),
						     weights, packet_ns));
	}
}

/* From here on count anew: what came before was no control interval. */
static void control_rebase(struct control *control, const struct pflow_load *load, int cpu)
{
	control->queue.standing_ns = READ_ONCE(load->standing_ns);
	control->queue.lost = READ_ONCE(load->lost);
	control->queue.losses = (struct pflow_losses){ 0 };
	control->polled = READ_ONCE(load->polled);
	control->softirq_ns = READ_ONCE(load->softirq_ns);
	control->idle_us = pflow_cpu_idle_us(cpu);
	control->looked_us = 0;
	filter_count_looks(cpu, &control->dropped, &control->passed);
}

static void control_forget_measures(struct control *control)
{
	memset(&control->here, 0, sizeof(control->here));
	memset(&control->elsewhere, 0, sizeof(control->elsewhere));
	WRITE_ONCE(control->cut, 0);
}

/* Another overload comes after such a pause. */
static void control_pause(struct control *control, s64 pause_us)
{
	measure_pause(&control->here, pause_us);
	measure_pause(&control->elsewhere, pause_us);
	WRITE_ONCE(control->cut, 0);
}

/* After so long a pause jiffies tell nothing of what was before. */
static void control_forget(struct control *control)
{
	unsigned int i;

	control->queue.lost_at = 0;
	control->queue.stood_us = 0;
	for (i = 0; i < PFLOW_LEVELS; i++) {
		WRITE_ONCE(control->levels[i].seen, 0);
		WRITE_ONCE(control->levels[i].top_rate, 0);
	}
}

/* Does looking at this CPU's packets give more than it takes? Asked now and then. */
static bool control_looking_pays(struct control *control, int cpu, u32 elapsed_us)
{
	u64 dropped = control->dropped, passed = control->passed;

	control->looked_us += elapsed_us;
	if (control->looked_us < LOOK_US)
		return true;
	control->looked_us = 0;
	filter_count_looks(cpu, &control->dropped, &control->passed);
	/* What was shed for a moment ago may come back, and must be seen at once. */
	return control->here.trial.enough || control->elsewhere.trial.enough ||
	       control->queue.stood_us || control->queue.lost_at ||
	       pflow_worth(control->dropped - dropped, control->passed - passed);
}

static enum step control_step_cpu(int cpu, u32 elapsed_us)
{
	static struct order order;	/* one tick runs at a time */
	struct control *control = per_cpu_ptr(controls, cpu);
	const struct pflow_load *load = per_cpu_ptr(&pflow_load, cpu);
	struct usage usage = { .cpu = cpu };
	bool rose;

	if (!cpu_online(cpu)) {
		/* Receivers that last ran here must not be shed for its sake. */
		control_forget_measures(control);
		control_rebase(control, load, cpu);
		return STEP_NONE;
	}
	if (!READ_ONCE(load->pressed) && !victims_any(control->victims) &&
	    !control_is_cutting(control)) {
		measure_rest(&control->here, elapsed_us);
		measure_rest(&control->elsewhere, elapsed_us);
		control_take_idle(control, cpu, elapsed_us);
		control_rebase(control, load, cpu);
		return STEP_NONE;
	}
	control_take_usage(&usage, control, load, elapsed_us);
	order_take(&order, control->levels);
	control_set_floors(control, load, &order, &usage, elapsed_us);
	rose = control_step_measures(control, &usage, &order,
				     order_served_level(&order, load), elapsed_us);
	/* Shedding may keep all signals away. So meanwhile the CPU is kept under pressure. */
	if (control_is_cutting(control) ||
	    pflow_within(READ_ONCE(control->shed_for_another), SHED_LATELY))
		pflow_load_raise(cpu);
	else if (!control_looking_pays(control, cpu, elapsed_us))
		pflow_load_rest(cpu);
	return rose ? STEP_SOON : STEP_AGAIN;
}

static void control_trace_receivers(void)
{
	unsigned int i;

	if (!trace_receiver_enabled())
		return;
	for (i = 0; i < PFLOW_THREADS; i++)
		if (READ_ONCE(pflow_threads[i].pid))
			trace_receiver(&pflow_threads[i]);
}

static void control_tick(struct timer_list *unused)
{
	ktime_t now = ktime_get();
	s64 pause_us = ktime_us_delta(now, tick_at);
	u32 elapsed_us = clamp_t(s64, pause_us, 1, USEC_PER_SEC);
	enum step next = STEP_NONE;
	int cpu;

	tick_at = now;
	rcu_read_lock();
	pflow_threads_sample();
	control_trace_receivers();
	if (!ticking) {
		/* The first tick after a pause only takes stock. */
		for_each_possible_cpu(cpu) {
			if (pause_us > LONG_AGO_US)
				control_forget(per_cpu_ptr(controls, cpu));
			if (pause_us > TRIAL_OLD_US)
				control_pause(per_cpu_ptr(controls, cpu), pause_us);
			control_rebase(per_cpu_ptr(controls, cpu), per_cpu_ptr(&pflow_load, cpu),
				       cpu);
		}
		next = STEP_SOON;
	} else {
		for_each_possible_cpu(cpu)
			next = max(next, control_step_cpu(cpu, elapsed_us));
	}
	harm_end_tick();
	rcu_read_unlock();
	ticking = next != STEP_NONE;
	if (ticking)
		mod_timer(&tick, jiffies + (next == STEP_SOON ? TICK_SOON : TICK));
}

/**
 * filter_control_setup() - make the controllers
 *
 * Context: process, may sleep. Return: 0 or -ENOMEM.
 */
int filter_control_setup(void)
{
	int cpu;

	controls = alloc_percpu(struct control);
	if (!controls)
		return -ENOMEM;
	for_each_possible_cpu(cpu) {
		per_cpu_ptr(controls, cpu)->idle = PFLOW_ONE;
		per_cpu_ptr(controls, cpu)->random = get_random_u32();
	}
	ticking = false;
	timer_setup(&tick, control_tick, 0);
	return 0;
}

/**
 * filter_control_teardown() - free the controllers
 *
 * Context: process, may sleep; no packet is judged any more.
 */
void filter_control_teardown(void)
{
	timer_shutdown_sync(&tick);
	free_percpu(controls);
}
