// SPDX-License-Identifier: GPL-2.0-only
/*
 * The controllers: two cuts a CPU (policy.h), moved by a tick.
 *
 * The *queue* cut answers a receive queue that overflows on this CPU. It sheds
 * among the packets that arrive here, from the bottom up to, but never
 * including, the most important receiver that is served here.
 *
 * The *harm* cut answers a receiver whose socket buffer overflows, or stays
 * over the threshold, or a TCP receiver that waits for its turn while its window is
 * shut (stream.c), although the CPU it runs on has no idle time left: the
 * CPU is eaten by less important receivers' packets (if they arrive there) and
 * work (if they run there). It sheds those below the harmed receiver. A
 * receiver that overflows on a CPU with time to spare is slow by itself or
 * bursty; shedding others would not help it. Nor does it count that a receiver
 * on which the cut stands, or below it, has too little: that is what it is for.
 * And where shedding, once tried, does not help, it is given up for a while: a
 * buffer that overflows in bursts may want to be larger, and nothing else.
 *
 * Where nothing is cut and next to nothing dropped, the CPU rests from looking:
 * that would take from receivers more than it gives them.
 *
 * The tick runs only while a CPU is pressed or cut, as a timer, since a worker
 * may not get the CPU in just this situation. It reads what the packet path
 * counted, and publishes each cut as one word; the packet path takes no lock.
 *
 * Context: filter_control_ask() in softirq, _harm() there and in process context; the tick
 * in timer softirq on any one CPU.
 */
#include <linux/random.h>
#include <linux/ktime.h>
#include <linux/timer.h>

#include "../common/compat/compat.h"
#include "filter.h"

#define TICK		msecs_to_jiffies(10)
#define ACTIVE		(HZ / 2)	/* a level counts so long after its last packet */
#define IDLE_ENOUGH	(PFLOW_ONE / 8)	/* this much idle time means: not the CPU */
#define FUTILE		4		/* shedding less than 1/4 of the load is no relief */
#define MEMORY		8		/* ticks over which load is averaged */
#define WINDOW_US	100000		/* over which losses are averaged */
#define TRIAL		HZ		/* by then shedding has to help */
#define GIVEN_UP	(10 * HZ)
#define LOOK_US		200000		/* so long before it is asked whether that pays */
#define LOST_FOR	(HZ / 5)	/* twice as long as the estimator takes to look again */
#define LONG_AGO_US	(24LL * 3600 * USEC_PER_SEC)	/* jiffies come round in 24 days or more */
#define PATIENCE_US	250000		/* a queue that clears sooner is a burst, caught up with */

/**
 * struct level - the receivers of one level on one CPU
 * @seen: jiffies of their last packet
 * @top_rate: what the busiest is sent, packets/s; decays
 * @packets: their packets that arrived on this CPU
 * @ticked: @packets at the last tick
 */
struct level {
	u32 seen;
	u32 top_rate;
	u32 packets;
	u32 ticked;
};

/* What is done about harm. */
enum answer {
	NONE,		/* there is too little of it */
	SHED,
	GIVE_UP,	/* it did not help */
};

/**
 * struct control - the controllers of one CPU
 * @queue: a cut as one word; read by the packet path, written by the tick
 * @harm: the same
 * @harmed: highest level harmed since the last tick plus one, or 0
 * @window: number of this window, over which losses are averaged
 * @window_us: its length so far
 * @worst_ns: in it, how long the worst hit receiver's losses took to send
 * @weighed_ns: of that, what the ticks before have seen
 * @harm_us: what is lost beyond what is bearable, see pflow_harm_step()
 * @loss: share lost lately, 0..65536
 * @before: share lost when shedding began
 * @since: jiffies when it began, or was given up
 * @answered: @harmed of the most important receiver that @state is about
 * @state: whether harm is answered
 * @standing: pflow_load.standing_ns at the last tick
 * @lost: pflow_load.lost at the last tick
 * @lost_at: jiffies when it last rose, with the lowest bit set; 0 for not lately
 * @polled: pflow_load.polled at the last tick
 * @load: packets taken from devices in MEMORY ticks
 * @sheddable: those of them that could be shed
 * @stood_us: how long the queue has stood, less the time it did not
 * @idle_us: idle time at the last tick
 * @idle: share of time idle lately, 0..65536
 * @looked_us: time spent looking since it was asked whether that pays
 * @dropped: packets dropped early on this CPU until then
 * @passed: packets looked at in vain
 * @random: for the coin
 * @levels: by level
 */
struct control {
	u32 queue;
	u32 harm;
	u32 harmed;
	u32 window;
	u32 window_us;
	u32 worst_ns;
	u32 weighed_ns;
	u32 harm_us;
	u32 loss;
	u32 before;
	u32 since;
	u32 answered;
	enum answer state;
	u64 standing;
	u32 lost;
	u32 lost_at;
	u32 polled;
	u32 load;
	u32 sheddable;
	u32 stood_us;
	u64 idle_us;
	u32 idle;
	u32 looked_us;
	u64 dropped;
	u64 passed;
	u32 random;
	struct level levels[PFLOW_LEVELS];
};

static struct control __percpu *controls;
static struct timer_list tick;
static ktime_t tick_at;
static bool ticking;

static void level_seen(struct level *level, u32 rate)
{
	u32 now = jiffies;

	if (READ_ONCE(level->seen) != now)
		WRITE_ONCE(level->seen, now);
	if (rate > READ_ONCE(level->top_rate))
		WRITE_ONCE(level->top_rate, rate);
}

static struct pflow_cut load_cut(const u32 *word)
{
	u32 value = READ_ONCE(*word);

	return (struct pflow_cut){ .level = value >> 16, .share = value & U16_MAX };
}

/**
 * filter_control_harm() - a receiver loses packets, or is about to, or loses time
 * @entry: the receiver
 * @level: its level
 * @ns: of a packet that it loses, the time that it took to send
 *
 * What counts is what the worst hit one loses, not how many lose a little.
 */
static void filter_control_harm(struct pflow_sock *entry, u16 level, u64 ns)
{
	struct control *control = per_cpu_ptr(controls, READ_ONCE(entry->run_cpu));
	u32 window = READ_ONCE(control->window);

	/* A receiver on which the cut stands, or below it, is shed, not harmed. */
	if (level <= load_cut(&control->harm).level)
		return;
	/* Others may write too, and a loss be forgotten; there are more. */
	if (READ_ONCE(entry->harm_window) != window)
		WRITE_ONCE(entry->harm_window, window);
	else
		ns += READ_ONCE(entry->harm_ns);
	ns = min_t(u64, ns, NSEC_PER_SEC);
	WRITE_ONCE(entry->harm_ns, ns);
	if (ns > READ_ONCE(control->worst_ns))
		WRITE_ONCE(control->worst_ns, ns);
	if (level >= READ_ONCE(control->harmed))
		WRITE_ONCE(control->harmed, level + 1);
}

static void store_cut(u32 *word, struct pflow_cut cut)
{
	WRITE_ONCE(*word, (u32)cut.level << 16 | cut.share);
}

static bool cutting(const struct control *control)
{
	return READ_ONCE(control->queue) || READ_ONCE(control->harm);
}

static u32 keep_under(const u32 *word, const struct control *control,
		      const struct pflow_sock *entry, u16 level)
{
	struct pflow_cut cut = load_cut(word);

	if (likely(level > cut.level))
		return PFLOW_ONE;
	return pflow_keep(pflow_cut_share(cut, level), READ_ONCE(entry->rate),
			  READ_ONCE(control->levels[level].top_rate),
			  READ_ONCE(filter_knobs[FILTER_KNOB_FLOOR].value));
}

/* Heads with this probability; of so cheap a generator only the high bits are random. */
static bool toss(struct control *control, u32 probability)
{
	control->random = control->random * 1664525 + 1013904223;
	return control->random >> 16 < probability;
}

/**
 * filter_control_ask() - count a packet that may be shed, and say whether to
 * @entry: its receiver
 * @level: the receiver's
 * @packets: how many the buffer carries
 *
 * Return: %FILTER_PASS or why to drop it.
 */
static enum filter_outcome filter_control_ask(const struct pflow_sock *entry, u16 level,
					      unsigned int packets)
{
	struct control *here = this_cpu_ptr(controls), *there = here;
	unsigned int run_cpu = READ_ONCE(entry->run_cpu);
	u32 keep, keep_unharmed;

	level_seen(&here->levels[level], READ_ONCE(entry->rate));
	WRITE_ONCE(here->levels[level].packets, here->levels[level].packets + packets);
	if (run_cpu != smp_processor_id()) {
		there = per_cpu_ptr(controls, run_cpu);
		level_seen(&there->levels[level], READ_ONCE(entry->rate));
	}
	/* It may be taken off meanwhile, plainly: then the next packet starts it. */
	if (unlikely(!data_race(timer_pending(&tick))))
		mod_timer(&tick, jiffies + TICK);

	keep = keep_under(&here->queue, here, entry, level);
	keep_unharmed = keep_under(&here->harm, here, entry, level);
	if (there != here)
		keep_unharmed = min(keep_unharmed, keep_under(&there->harm, there, entry, level));
	if (likely(min(keep, keep_unharmed) >= PFLOW_ONE))
		return FILTER_PASS;
	if (toss(here, min(keep, keep_unharmed)))
		return FILTER_PASS;
	return keep_unharmed < keep ? FILTER_DROP_HARM : FILTER_DROP_OVERLOAD;
}

/* Another CPU's jiffies may be one ahead; 0 is never. */
static bool recent(u32 now, u32 then)
{
	return then && time_before32(now, then + ACTIVE);
}

/* Clocks and counters read from another CPU may seem to step back. */
static u32 forward_us(s64 us, u32 most)
{
	return clamp_t(s64, us, 0, most);
}

/* The most important receiver served here, TCP included, as a level plus one. */
static u16 served_level(const struct control *control, const struct pflow_load *load, u32 now)
{
	int level;

	for (level = PFLOW_LEVELS - 1; level >= 0; level--)
		if (READ_ONCE(control->levels[level].top_rate) &&
		    recent(now, READ_ONCE(control->levels[level].seen)))
			break;
	if (READ_ONCE(load->tcp_rank) && time_before32(now, READ_ONCE(load->tcp_at) + PFLOW_HOLD))
		level = max_t(int, level, pflow_level(READ_ONCE(load->tcp_rank), false));
	return level + 1;
}

/*
 * Where shedding for those of a level ends: below all of their rank. One that is elected now
 * is not in a moment, and must not be shed for what it had itself; nor are its equals.
 */
static u16 beneath(u16 level)
{
	return round_down(level, 2);
}

/* The levels below @end that are in use, and how many packets they were sent. */
static unsigned int list_levels(struct control *control, u16 end, u32 now, u16 *list, u32 *packets)
{
	unsigned int n = 0, i;

	*packets = 0;
	for (i = 0; i < end; i++) {
		const struct level *level = &control->levels[i];

		if (!recent(now, READ_ONCE(level->seen)))
			continue;
		*packets += READ_ONCE(level->packets) - level->ticked;
		list[n++] = i;
	}
	return n;
}

static u32 share_of(u64 part_ns, u32 whole_us)
{
	return min_t(u64, div_u64(div_u64(part_ns, NSEC_PER_USEC) * PFLOW_ONE, whole_us),
		     PFLOW_ONE);
}

/* A loss counts until the estimator has looked again. */
static u32 queue_pressure(struct control *control, const struct pflow_load *load, u32 elapsed_us,
			  u32 now)
{
	u64 standing = READ_ONCE(load->standing_ns);
	u32 lost = READ_ONCE(load->lost);
	u32 pressure = share_of(standing - control->standing, elapsed_us);

	if (lost != control->lost)
		control->lost_at = now | 1;
	else if (control->lost_at && time_after32(now, control->lost_at + LOST_FOR))
		control->lost_at = 0;
	if (control->lost_at)
		pressure = PFLOW_ONE;
	control->standing = standing;
	control->lost = lost;
	return pressure;
}

/* Shedding begins with an overload that lasts; once begun, it answers at once. */
static bool lasting(struct control *control, u32 pressure, u32 elapsed_us)
{
	if (!pressure)
		control->stood_us -= min(control->stood_us, elapsed_us);
	else if (control->stood_us < PATIENCE_US)
		control->stood_us += elapsed_us;
	return control->queue || control->stood_us >= PATIENCE_US;
}

static void step_queue(struct control *control, const struct pflow_load *load,
		       u32 elapsed_us, u32 now, u16 *list)
{
	u32 pressure = queue_pressure(control, load, elapsed_us, now);
	u32 polled = READ_ONCE(load->polled);
	u16 served = served_level(control, load, now);
	unsigned int n;
	u32 packets;

	n = list_levels(control, served ? beneath(served - 1) : 0, now, list, &packets);
	control->sheddable += packets - control->sheddable / MEMORY;
	control->load += polled - control->polled - control->load / MEMORY;
	control->polled = polled;
	if (control->sheddable < control->load / FUTILE || !lasting(control, pressure, elapsed_us))
		pressure = 0;
	store_cut(&control->queue, pflow_cut_step(load_cut(&control->queue), pressure,
						  !pressure && control->idle >= IDLE_ENOUGH,
						  elapsed_us, list, n));
}

/* What the receivers lost is counted from zero. */
static void next_window(struct control *control)
{
	WRITE_ONCE(control->window, control->window + 1);
	WRITE_ONCE(control->worst_ns, 0);
	control->weighed_ns = 0;
}

/* What the worst hit receiver lost since the last tick. */
static u32 newly_lost(struct control *control)
{
	u32 worst = READ_ONCE(control->worst_ns);
	u32 lost = worst > control->weighed_ns ? worst - control->weighed_ns : 0;

	control->weighed_ns = worst;
	return lost;
}

/* Decide anew, at the end of a window, whether harm is answered. */
static void weigh_harm(struct control *control, u32 now)
{
	u32 loss = share_of(READ_ONCE(control->worst_ns), control->window_us);

	control->harm_us = pflow_harm_step(control->harm_us, loss, control->window_us);
	next_window(control);
	control->window_us = 0;
	control->loss = control->loss - control->loss / 4 + loss / 4;
	switch (control->state) {
	case NONE:
		if (!pflow_harmed(control->harm_us))
			break;
		control->harm_us = 0;
		control->state = SHED;
		control->before = max(loss, control->loss);
		control->since = now;
		break;
	case SHED:
		if (time_before32(now, control->since + TRIAL))
			break;
		if (!pflow_relieved(control->before, control->loss)) {
			control->state = GIVE_UP;
			control->since = now;
		} else if (!control->harm) {
			control->state = NONE;
			control->answered = 0;
		}
		break;
	case GIVE_UP:
		control->harm_us = 0;
		if (time_before32(now, control->since + GIVEN_UP))
			break;
		control->state = NONE;
		control->answered = 0;
		break;
	}
}

/* Is there anybody who could be shed for whoever is harmed? */
static bool answerable(struct control *control, u32 harmed, u32 now, u16 *list)
{
	u32 packets;

	return !harmed || list_levels(control, beneath(harmed - 1), now, list, &packets);
}

static void step_harm(struct control *control, int cpu, u32 elapsed_us, u32 now, u16 *list)
{
	u64 idle_us = pflow_cpu_idle_us(cpu);
	u32 idle = div_u64((u64)forward_us(idle_us - control->idle_us, elapsed_us) * PFLOW_ONE,
			   elapsed_us);
	u32 harmed = READ_ONCE(control->harmed);
	u32 pressure = 0;
	unsigned int n;
	u32 packets;
	bool spare;

	WRITE_ONCE(control->idle, control->idle - control->idle / 4 + idle / 4);
	control->idle_us = idle_us;
	WRITE_ONCE(control->harmed, 0);
	spare = control->idle >= IDLE_ENOUGH;
	if (spare || !answerable(control, harmed, now, list))
		next_window(control);
	else if (harmed)
		pressure = share_of(newly_lost(control), elapsed_us);
	if (harmed > control->answered) {
		control->answered = harmed;
		control->state = NONE;
	}
	control->window_us += elapsed_us;
	if (control->window_us >= WINDOW_US)
		weigh_harm(control, now);
	if (control->state != SHED) {
		pressure = 0;
		spare = true;
	}
	n = list_levels(control, pressure ? beneath(harmed - 1) : PFLOW_LEVELS, now, list,
			&packets);
	store_cut(&control->harm, pflow_cut_step(load_cut(&control->harm), pressure, spare,
						 elapsed_us, list, n));
}

static void age_levels(struct control *control, u32 now)
{
	unsigned int i;

	for (i = 0; i < PFLOW_LEVELS; i++) {
		struct level *level = &control->levels[i];
		u32 top = READ_ONCE(level->top_rate);

		level->ticked = READ_ONCE(level->packets);
		if (top)
			WRITE_ONCE(level->top_rate,
				   recent(now, READ_ONCE(level->seen)) ? top - top / 64 : 0);
	}
}

/* From here on count anew: what came before was no control interval. */
static void rebase(struct control *control, const struct pflow_load *load, int cpu)
{
	control->standing = READ_ONCE(load->standing_ns);
	control->lost = READ_ONCE(load->lost);
	control->polled = READ_ONCE(load->polled);
	control->idle_us = pflow_cpu_idle_us(cpu);
	WRITE_ONCE(control->harmed, 0);
	next_window(control);
	control->window_us = 0;
	control->looked_us = 0;
	filter_looks(cpu, &control->dropped, &control->passed);
}

/* After so long a pause jiffies tell nothing of what was before. */
static void forget(struct control *control)
{
	unsigned int i;

	control->state = NONE;
	control->answered = 0;
	control->harm_us = 0;
	control->loss = 0;
	control->lost_at = 0;
	control->stood_us = 0;
	for (i = 0; i < PFLOW_LEVELS; i++) {
		WRITE_ONCE(control->levels[i].seen, 0);
		WRITE_ONCE(control->levels[i].top_rate, 0);
	}
}

/* Does looking at this CPU's packets give more than it takes? Asked now and then. */
static bool pays(struct control *control, int cpu, u32 elapsed_us)
{
	u64 dropped = control->dropped, passed = control->passed;

	control->looked_us += elapsed_us;
	if (control->looked_us < LOOK_US)
		return true;
	control->looked_us = 0;
	filter_looks(cpu, &control->dropped, &control->passed);
	return control->stood_us || control->lost_at || control->harm_us ||
	       pflow_worth(control->dropped - dropped, control->passed - passed);
}

static bool step_cpu(int cpu, u32 elapsed_us, u16 *list)
{
	struct control *control = per_cpu_ptr(controls, cpu);
	const struct pflow_load *load = per_cpu_ptr(&pflow_load, cpu);
	u32 now = jiffies;

	if (!cpu_online(cpu)) {
		/* Receivers that last ran here must not be shed for its sake. */
		WRITE_ONCE(control->queue, 0);
		WRITE_ONCE(control->harm, 0);
		rebase(control, load, cpu);
		return false;
	}
	if (!READ_ONCE(load->pressed) && !READ_ONCE(control->harmed) && !cutting(control)) {
		rebase(control, load, cpu);
		return false;
	}
	step_queue(control, load, elapsed_us, now, list);
	step_harm(control, cpu, elapsed_us, now, list);
	age_levels(control, now);
	/* A cut that has not sunk yet is pressure withheld, not pressure gone. */
	if (cutting(control))
		pflow_load_raise(cpu);
	else if (!pays(control, cpu, elapsed_us))
		pflow_load_rest(cpu);
	return true;
}

static void control_tick(struct timer_list *unused)
{
	static u16 list[PFLOW_LEVELS];
	ktime_t now = ktime_get();
	s64 pause_us = ktime_us_delta(now, tick_at);
	u32 elapsed_us = clamp_t(s64, pause_us, 1, USEC_PER_SEC);
	bool busy = false;
	int cpu;

	tick_at = now;
	if (!ticking) {
		/* The first tick after a pause only takes stock. */
		for_each_possible_cpu(cpu) {
			if (pause_us > LONG_AGO_US)
				forget(per_cpu_ptr(controls, cpu));
			rebase(per_cpu_ptr(controls, cpu), per_cpu_ptr(&pflow_load, cpu), cpu);
		}
		busy = true;
	} else {
		for_each_possible_cpu(cpu)
			busy |= step_cpu(cpu, elapsed_us, list);
	}
	ticking = busy;
	if (busy)
		mod_timer(&tick, jiffies + TICK);
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

static void show_cut(struct seq_file *m, const char *name, struct pflow_cut cut)
{
	if (!cut.level && !cut.share)
		return;
	seq_printf(m, " %s: below prio %d held at the floor, %u %% of prio %d shed;", name,
		   pflow_rank_prio(cut.level / 2), cut.share * 100 / PFLOW_ONE,
		   pflow_rank_prio(cut.level / 2));
}

/**
 * filter_control_status() - what is being shed, for people
 * @m: where to
 *
 * Context: process.
 */
void filter_control_status(struct seq_file *m)
{
	bool any = false;
	int cpu;

	for_each_online_cpu(cpu) {
		const struct control *control = per_cpu_ptr(controls, cpu);

		if (!cutting(control))
			continue;
		any = true;
		seq_printf(m, "shedding: cpu %d:", cpu);
		show_cut(m, "queue", load_cut(&control->queue));
		show_cut(m, "harm", load_cut(&control->harm));
		seq_printf(m, " idle %u %%\n", READ_ONCE(control->idle) * 100 / PFLOW_ONE);
	}
	if (!any)
		seq_puts(m, "shedding: nobody\n");
}

static void show_position(struct seq_file *m, int cpu, const char *kind, struct pflow_cut cut)
{
	seq_printf(m, "packetflow_filter_cut_level{cpu=\"%d\",cut=\"%s\"} %u.%04u\n", cpu, kind,
		   cut.level, cut.share * 10000 / PFLOW_ONE);
}

/**
 * filter_control_metrics() - the cuts, for machines
 * @m: where to
 *
 * Context: process.
 */
void filter_control_metrics(struct seq_file *m)
{
	int cpu;

	seq_puts(m, "# TYPE packetflow_filter_cut_level gauge\n"
		    "# HELP packetflow_filter_cut_level Level up to which receivers are shed, and the share of the topmost.\n");
	for_each_online_cpu(cpu) {
		const struct control *control = per_cpu_ptr(controls, cpu);

		show_position(m, cpu, "queue", load_cut(&control->queue));
		show_position(m, cpu, "harm", load_cut(&control->harm));
	}
}
