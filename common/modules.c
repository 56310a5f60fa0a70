// SPDX-License-Identifier: GPL-2.0-only
/*
 * The modules that hang on pf_common, and the switch that stops them all.
 *
 * One mutex orders registration and the switch. Anybody may read what modules tell of themselves,
 * so a reader takes no mutex, and reads under RCU. A module is stopped a grace period after it was
 * last shown, so none of its functions runs once it has left. The estimator uses a second mutex
 * when it tells modules of pressure: a holder of the first one may be waiting for the estimator.
 *
 * An administrator may switch off all probes. Then nobody tells who closes, binds and receives,
 * and what was decided by that must not stay. So a check once a second tells whether probes are
 * called (canary.c). While they are not, the suite stands by: all is detached and undone as if it
 * were switched off.
 *
 * Context: process, may sleep. The estimator's thread, for what it tells modules.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/proc_fs.h>
#include <linux/rculist.h>
#include <linux/workqueue.h>

#include "internal.h"

#define CHECK_EVERY	HZ
#define RETRY_EVERY	(60 * HZ)	/* a start that failed; each time it says why in the log */
#define UNHEARD		2	/* checks in a row; a single one may meet a change under way */

static LIST_HEAD(modules);		/* read under RCU */
static LIST_HEAD(running_modules);	/* read under RCU */
static LIST_HEAD(told);		/* those that run and are told of pressure; under told_lock */
static DEFINE_MUTEX(modules_lock);
static DEFINE_MUTEX(told_lock);
static bool wanted;		/* switched on; under modules_lock */
static bool running;		/* wanted, and probes are called; written under modules_lock */
static bool silent;		/* wanted, but it stands by, as probes were not called; likewise */
static int start_error;		/* why it stands by though they are called again; likewise */
static unsigned int unheard;	/* checks in a row in which no probe was called; likewise */
static void suite_check_probes(struct work_struct *work);
static DECLARE_DELAYED_WORK(check_work, suite_check_probes);

/*
 * To be called when no module runs any more. From then on nothing is dropped, so what sockets are
 * owed (pf_filter/act.c) is final. First a scan meets every open socket and pays. Then the entries
 * go, which know the debts. The scan needs no probe and no worker. It may enter sockets anew, which
 * go with the rest.
 */
static void table_drain(void)
{
	lockdep_assert_held(&modules_lock);
	pflow_scan_whole();
	pflow_table_clear();
}

static int suite_start_module(struct pflow_module *module)
{
	int err = module->start();

	lockdep_assert_held(&modules_lock);
	if (err)
		return err;
	list_add_tail_rcu(&module->run, &running_modules);
	WRITE_ONCE(module->runs, true);
	mutex_lock(&told_lock);
	list_add_tail(&module->told, &told);
	mutex_unlock(&told_lock);
	return 0;
}

/*
 * Probes, the table and readers call the module's functions without the mutex. After a grace period
 * nobody is in these functions any more, or finds them. Then what they need may go, and their text
 * later.
 */
static void suite_stop_module(struct pflow_module *module)
{
	lockdep_assert_held(&modules_lock);
	mutex_lock(&told_lock);
	list_del(&module->told);
	mutex_unlock(&told_lock);
	list_del_rcu(&module->run);
	WRITE_ONCE(module->runs, false);
	synchronize_rcu();
	module->stop();
}

static int suite_start(void)
{
	struct pflow_module *module;
	int err;

	lockdep_assert_held(&modules_lock);
	err = pflow_calls_setup();
	if (err)
		return err;
	err = pflow_probes_setup();
	if (err)
		goto calls;
	err = pflow_estimator_setup();
	if (err)
		goto probes;
	list_for_each_entry(module, &modules, list) {
		err = suite_start_module(module);
		if (err)
			goto modules;
	}
	WRITE_ONCE(running, true);
	return 0;

modules:
	list_for_each_entry_continue_reverse(module, &modules, list)
		suite_stop_module(module);
	pflow_estimator_teardown();
probes:
	pflow_probes_teardown();
calls:
	pflow_calls_teardown();
	table_drain();
	return err;
}

static void suite_stop(void)
{
	struct pflow_module *module;

	lockdep_assert_held(&modules_lock);
	list_for_each_entry_reverse(module, &modules, list)
		suite_stop_module(module);
	pflow_estimator_teardown();
	pflow_probes_teardown();
	pflow_calls_teardown();
	table_drain();
	WRITE_ONCE(running, false);
}

static void suite_stand_by(void)
{
	lockdep_assert_held(&modules_lock);
	pr_warn("probes are not called, as kprobes or ftrace are switched off: standing by\n");
	WRITE_ONCE(silent, true);
	WRITE_ONCE(start_error, 0);
}

/* Start all, at first and whenever probes are called again. Return: 0 or a negative error. */
static int suite_begin(void)
{
	int err = suite_start();

	lockdep_assert_held(&modules_lock);
	if (!err)
		WRITE_ONCE(silent, false);
	WRITE_ONCE(start_error, err);
	return err;
}

static void suite_check_probes(struct work_struct *work)
{
	mutex_lock(&modules_lock);
	if (!wanted)
		goto unlock;
	unheard = pflow_canary_heard() ? 0 : unheard + 1;
	if (running && unheard >= UNHEARD) {
		suite_stop();
		suite_stand_by();
	} else if (!running && !unheard && !suite_begin()) {
		pr_info("probes are called again: running\n");
	}
	schedule_delayed_work(&check_work, start_error ? RETRY_EVERY : CHECK_EVERY);
unlock:
	mutex_unlock(&modules_lock);
}

static int suite_switch_on(void)
{
	int err = pflow_canary_setup();

	lockdep_assert_held(&modules_lock);
	if (err)
		return err;
	if (pflow_canary_heard())
		err = suite_begin();
	else
		suite_stand_by();
	if (err) {
		pflow_canary_teardown();
		return err;
	}
	wanted = true;
	unheard = 0;
	schedule_delayed_work(&check_work, CHECK_EVERY);
	return 0;
}

static void suite_switch_off(void)
{
	lockdep_assert_held(&modules_lock);
	wanted = false;
	/* A check that waits for the mutex finds the suite not wanted. It does not come back. */
	cancel_delayed_work(&check_work);
	if (running)
		suite_stop();
	WRITE_ONCE(silent, false);
	pflow_canary_teardown();
}

/**
 * pflow_enable() - attach or detach everything
 * @on: 1 or 0
 *
 * Context: process, may sleep. Return: 0 or a negative error, and then
 * everything is detached as before. While probes are not called nothing is attached, without error.
 */
int pflow_enable(unsigned int on)
{
	int err = 0;

	mutex_lock(&modules_lock);
	if (on && !wanted)
		err = suite_switch_on();
	else if (!on && wanted)
		suite_switch_off();
	mutex_unlock(&modules_lock);
	return err;
}

/**
 * pflow_modules_teardown() - switch off for good
 *
 * Context: process, may sleep; nobody can switch it on any more.
 */
void pflow_modules_teardown(void)
{
	pflow_enable(0);
	cancel_delayed_work_sync(&check_work);
}

/**
 * pflow_refresh() - bring the table up to date for whoever reads it
 *
 * Context: process, may sleep, for about a tenth of a second.
 */
void pflow_refresh(void)
{
	mutex_lock(&modules_lock);
	if (running) {
		pflow_estimator_sample();
		pflow_scan();
	}
	mutex_unlock(&modules_lock);
}

static int module_make_files(struct pflow_module *module)
{
	unsigned int i;

	module->dir = proc_mkdir(module->name, pflow_root);
	if (!module->dir)
		return -ENOMEM;
	for (i = 0; i < module->nr_knobs; i++) {
		module->knobs[i].capability = module->capability;
		if (pflow_knob_create(&module->knobs[i], module->dir)) {
			proc_remove(module->dir);
			return -ENOMEM;
		}
	}
	return 0;
}

/**
 * pflow_module_register() - make a module part of the suite
 * @module: its place; started at once unless the suite is switched off
 *
 * Context: process, may sleep. Return: 0 or a negative error.
 */
int pflow_module_register(struct pflow_module *module)
{
	int err;

	mutex_lock(&modules_lock);
	err = running ? suite_start_module(module) : 0;
	if (err)
		goto unlock;
	err = module_make_files(module);
	if (err) {
		if (running)
			suite_stop_module(module);
		goto unlock;
	}
	list_add_tail_rcu(&module->list, &modules);
unlock:
	mutex_unlock(&modules_lock);
	return err;
}
EXPORT_SYMBOL_GPL(pflow_module_register);

/**
 * pflow_module_unregister() - take a module out of the suite
 * @module: its place; stopped, and none of its functions runs any more
 *
 * Context: process, may sleep.
 */
void pflow_module_unregister(struct pflow_module *module)
{
	mutex_lock(&modules_lock);
	list_del_rcu(&module->list);
	if (running)
		suite_stop_module(module);
	else
		synchronize_rcu();
	mutex_unlock(&modules_lock);
	/* This comes last, as it waits for readers of the files, who may take any time. */
	proc_remove(module->dir);
}
EXPORT_SYMBOL_GPL(pflow_module_unregister);

/**
 * pflow_modules_pressure() - tell the modules whether packets may have to wait
 * @pressure: a CPU is under pressure or has no time to spare
 * @watch: packets of a CPU are looked at, or were a moment ago
 *
 * Context: the estimator's thread, may sleep.
 */
void pflow_modules_pressure(bool pressure, bool watch)
{
	struct pflow_module *module;

	mutex_lock(&told_lock);
	list_for_each_entry(module, &told, told) {
		if (module->pressure)
			module->pressure(pressure);
		if (module->watch)
			module->watch(watch);
	}
	mutex_unlock(&told_lock);
}

/**
 * pflow_modules_time_threads() - does a module ask how receivers spend their time?
 *
 * Context: the estimator's thread, may sleep. Return: whether one does.
 */
bool pflow_modules_time_threads(void)
{
	const struct pflow_module *module;
	bool any = false;

	mutex_lock(&told_lock);
	list_for_each_entry(module, &told, told)
		any |= module->times_threads;
	mutex_unlock(&told_lock);
	return any;
}

/**
 * pflow_modules_note_close() - tell the modules that a socket is about to be closed
 * @sk: it; the caller holds it
 *
 * Context: process, preemption may be off.
 */
void pflow_modules_note_close(const struct sock *sk)
{
	const struct pflow_module *module;

	rcu_read_lock();
	list_for_each_entry_rcu(module, &running_modules, run)
		if (module->note_close)
			module->note_close(sk);
	rcu_read_unlock();
}

/**
 * pflow_modules_buffer_most() - how large a receiver's buffer may become
 * @protocol: of its socket
 * @rank: its own
 *
 * Context: any. Return: bytes; 0 where no module makes buffers larger.
 */
u32 pflow_modules_buffer_most(u8 protocol, u8 rank)
{
	const struct pflow_module *module;
	u32 most = 0;

	rcu_read_lock();
	list_for_each_entry_rcu(module, &running_modules, run)
		if (module->buffer_most)
			most = module->buffer_most(protocol, rank);
	rcu_read_unlock();
	return most;
}

static void suite_status(struct seq_file *m)
{
	if (READ_ONCE(running))
		seq_puts(m, "suite: running\n");
	else if (READ_ONCE(silent) && READ_ONCE(start_error))
		seq_printf(m, "suite: stands by, with all undone, as it could not start again (error %d, and see the kernel's log); it is tried each minute\n",
			   READ_ONCE(start_error));
	else if (READ_ONCE(silent))
		seq_puts(m, "suite: stands by, with all undone, as probes are not called: kprobes or ftrace are switched off (/sys/kernel/debug/kprobes/enabled, kernel.ftrace_enabled)\n");
	else
		seq_puts(m, "suite: switched off (write 1 to /proc/packetflow/enable)\n");
}

/**
 * pflow_modules_status() - what the modules tell people
 * @m: where to
 *
 * Context: process.
 */
void pflow_modules_status(struct seq_file *m)
{
	struct pflow_module *module;

	pflow_show_begin();
	suite_status(m);
	/* What a module has to tell lives from its start to its stop. */
	list_for_each_entry_rcu(module, &modules, list) {
		seq_printf(m, "\n[%s]\n", module->name);
		if (READ_ONCE(module->runs))
			module->status(m);
	}
	pflow_show_end();
}

/**
 * pflow_modules_metrics() - what the modules tell machines
 * @m: where to
 *
 * Context: process.
 */
void pflow_modules_metrics(struct seq_file *m)
{
	struct pflow_module *module;

	seq_printf(m, "# TYPE packetflow_probes_silent gauge\n"
		   "# HELP packetflow_probes_silent 1 while the suite stands by, as no probe is called.\n"
		   "packetflow_probes_silent %d\n", READ_ONCE(silent));
	pflow_show_begin();
	list_for_each_entry_rcu(module, &modules, list)
		if (READ_ONCE(module->runs))
			module->metrics(m);
	pflow_show_end();
}
