// SPDX-License-Identifier: GPL-2.0-only
/*
 * A module that makes the mistake it is told to make when it is loaded, to see that a kernel
 * notices. None of them hurts the kernel for long. It never stays loaded.
 */
#include <linux/delay.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/timer.h>
#include <linux/vmalloc.h>

static char *make = "";
module_param(make, charp, 0);

/* What the compiler must not know. */
static noinline unsigned int hidden(unsigned int value)
{
	OPTIMIZER_HIDE_VAR(value);
	return value;
}

static int array[4];

static void index_out_of_bounds(void)
{
	WRITE_ONCE(array[hidden(0)], array[hidden(4)]);
}

static void shift_out_of_bounds(void)
{
	WRITE_ONCE(array[0], 1 << hidden(40));
}

static void write_behind_slab(void)
{
	char *memory = kmalloc(24, GFP_KERNEL);

	if (memory)
		WRITE_ONCE(memory[hidden(24)], 1);
	kfree(memory);
}

static void read_behind_vmalloc(void)
{
	char *memory = vmalloc(104);

	if (memory)
		READ_ONCE(memory[hidden(104)]);
	vfree(memory);
}

static void use_after_free(void)
{
	char *memory = kmalloc(24, GFP_KERNEL);

	OPTIMIZER_HIDE_VAR(memory);
	kfree(memory);
	READ_ONCE(memory[hidden(8)]);
}

static noinline void leak(void)
{
	char *memory = kmalloc(24, GFP_KERNEL);

	OPTIMIZER_HIDE_VAR(memory);
}

static void sleep_in_atomic(void)
{
	preempt_disable();
	might_sleep();
	preempt_enable();
}

static void on_time(struct timer_list *timer)
{
}

static void free_active(void)
{
	struct timer_list *timer = kmalloc(sizeof(*timer), GFP_KERNEL);

	if (!timer)
		return;
	timer_setup(timer, on_time, 0);
	mod_timer(timer, jiffies + HZ);
	kfree(timer);
}

static void add_twice(void)
{
	static LIST_HEAD(list);
	static LIST_HEAD(entry);

	list_add(&entry, &list);
	list_add(&entry, &list);
}

static void rcu_unlocked(void)
{
	static int __rcu *pointer;

	WRITE_ONCE(array[1], !rcu_dereference(pointer));
}

static void lock_both_ways(void)
{
	static DEFINE_MUTEX(one);
	static DEFINE_MUTEX(other);

	mutex_lock(&one);
	mutex_lock(&other);
	mutex_unlock(&other);
	mutex_unlock(&one);
	mutex_lock(&other);
	mutex_lock(&one);
	mutex_unlock(&one);
	mutex_unlock(&other);
}

static unsigned long shared;

static void on_race(struct timer_list *timer)
{
	shared++;
	mod_timer(timer, jiffies + 1);
}

/* With a timer on the same CPU, whose interrupt comes in the midst of it. */
static void race(void)
{
	static struct timer_list timer;
	unsigned long end = jiffies + HZ;

	timer_setup(&timer, on_race, 0);
	mod_timer(&timer, jiffies + 1);
	while (time_before(jiffies, end)) {
		shared++;
		cond_resched();
	}
	timer_shutdown_sync(&timer);
}

static void hang(void)
{
	schedule_timeout_uninterruptible(10 * HZ);
}

static void hold_cpu(void)
{
	preempt_disable();
	mdelay(5000);
	preempt_enable();
}

#define MISTAKE(name)	{ #name, name }

static const struct {
	const char *name;
	void (*make)(void);
} mistakes[] = {
	MISTAKE(index_out_of_bounds),
	MISTAKE(shift_out_of_bounds),
	MISTAKE(write_behind_slab),
	MISTAKE(read_behind_vmalloc),
	MISTAKE(use_after_free),
	MISTAKE(leak),
	MISTAKE(sleep_in_atomic),
	MISTAKE(free_active),
	MISTAKE(add_twice),
	MISTAKE(rcu_unlocked),
	MISTAKE(lock_both_ways),
	MISTAKE(race),
	MISTAKE(hang),
	MISTAKE(hold_cpu),
};

static int __init mistakes_init(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(mistakes); i++) {
		if (!strcmp(mistakes[i].name, make)) {
			mistakes[i].make();
			return -ECANCELED;
		}
	}
	return -ENOENT;
}
module_init(mistakes_init);

MODULE_DESCRIPTION("Mistakes, to see that a kernel notices them");
MODULE_LICENSE("GPL");
