// SPDX-License-Identifier: GPL-2.0-only
/*
 * The tables of probes: every kernel function that the suite looks into. Each module has a table of
 * its own rows. Here they are registered, armed and shown. A probe is a kprobe. Where it runs for
 * every packet and the kernel can do it, it is a call by ftrace.
 *
 * Arming a probe makes ftrace walk all functions of the kernel. That takes tens of milliseconds on
 * a slow CPU. Probes that are wanted only at times would be armed just when CPU time is short. So
 * nearly all stay armed as long as the suite runs, and look at a flag first.
 *
 * pf_common's own handlers run in the context of the caller, which is a system call or the last
 * close of a file. In a kprobe preemption is off, otherwise it is as in the caller. The caller
 * holds the socket that its first argument names. Handlers read, and never change what the kernel
 * does. A hit can be missed. Then the next one, or a scan, learns the same thing.
 *
 * Context: process, may sleep; handlers, as said above.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/err.h>
#include <linux/kprobes.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/net.h>
#include <linux/rculist.h>

#include "../compat/compat.h"
#include "../internal.h"

static struct socket *socket_argument(struct pt_regs *regs, unsigned int n)
{
	return (struct socket *)regs_get_kernel_argument(regs, n);
}

/* A kernel thread is no receiver. NFS has such threads; those of io_uring are the process's own. */
static void owner_learn_holder(struct sock *sk)
{
	if (!sk || (current->flags & PF_KTHREAD))
		return;
	rcu_read_lock();
	pflow_owner_note_holding(sk, current, 0);
	rcu_read_unlock();
}

/* inet_bind(struct socket *sock, ...), inet6_bind(struct socket *sock, ...) */
static int on_bind(struct kprobe *kp, struct pt_regs *regs)
{
	owner_learn_holder(pflow_process_sock(socket_argument(regs, 0)));
	return 0;
}

/* __inet_accept(struct socket *sock, struct socket *newsock, struct sock *newsk) */
static int on_accept(struct kprobe *kp, struct pt_regs *regs)
{
	struct sock *sk = (struct sock *)regs_get_kernel_argument(regs, 2);

	/* newsock has its file already, but newsk is grafted onto it only now. */
	if (!socket_argument(regs, 1)->file || !sk || (current->flags & PF_KTHREAD))
		return 0;
	rcu_read_lock();
	pflow_owner_note_accept(sk);
	rcu_read_unlock();
	return 0;
}

/* inet_release(struct socket *sock); inet6_release() ends in it */
static int on_release(struct kprobe *kp, struct pt_regs *regs)
{
	const struct sock *sk = socket_argument(regs, 0)->sk;

	if (!sk)
		return 0;
	/* This comes first: modules that are told find it gone, so nothing begins for it again. */
	pflow_sock_forget(sk);
	pflow_modules_note_close(sk);
	return 0;
}

static struct pflow_probe rows[] = {
	{ "inet_bind", on_bind, PFLOW_PROBE_ALWAYS, false,
	  "new IPv4 sockets are learnt when they receive, or by a scan" },
	{ "inet6_bind", on_bind, PFLOW_PROBE_ALWAYS, false,
	  "new IPv6 sockets are learnt when they receive, or by a scan" },
	{ "__inet_accept", on_accept, PFLOW_PROBE_ALWAYS, false,
	  "accepted sockets are learnt when they receive, or by a scan" },
	{ "inet_release", on_release, PFLOW_PROBE_ALWAYS, false,
	  "sockets that close are found late: by a scan after a minute, by pf_mm after 0.1 s" },
};

static struct pflow_probes own = {
	.owner = THIS_MODULE, .rows = rows, .nr_rows = ARRAY_SIZE(rows),
};

static LIST_HEAD(tables);	/* read under RCU */
static DEFINE_MUTEX(tables_lock);

/*
 * A kprobe that is registered and not armed knows the function's address, which no exported
 * function tells. If ftrace refuses, the kprobe does the work itself.
 */
static int probe_arm(struct pflow_probe *probe)
{
	struct ftrace_ops *ops = ERR_PTR(-EOPNOTSUPP);
	int err;

	if (probe->hot) {
		ops = pflow_ftrace_attach(probe->kp.addr, probe->hot);
		if (IS_ERR(ops))
			pr_warn_ratelimited("no ftrace at %s (error %ld): a kprobe costs every packet more\n",
					    probe->symbol, PTR_ERR(ops));
	}
	if (!IS_ERR(ops)) {
		WRITE_ONCE(probe->ops, ops);
	} else {
		err = enable_kprobe(&probe->kp);
		if (err)
			return err;
	}
	WRITE_ONCE(probe->armed, true);
	return 0;
}

static void probe_disarm(struct pflow_probe *probe)
{
	if (!probe->armed)
		return;
	if (probe->ops)
		pflow_ftrace_detach(probe->ops);
	else
		disable_kprobe(&probe->kp);
	probe->ops = NULL;
	probe->armed = false;
}

static void probe_unregister(struct pflow_probe *probe)
{
	probe_disarm(probe);
	if (probe->present)
		unregister_kprobe(&probe->kp);
	probe->present = false;
}

static void probes_unregister(struct pflow_probes *probes)
{
	unsigned int i;

	for (i = 0; i < probes->nr_rows; i++)
		probe_unregister(&probes->rows[i]);
}

static int probe_register(struct pflow_probe *probe)
{
	int err;

	/* A struct kprobe must be pristine each time it is registered. */
	memset(&probe->kp, 0, sizeof(probe->kp));
	probe->kp.symbol_name = probe->symbol;
	probe->kp.pre_handler = probe->handler;
	probe->kp.flags = KPROBE_FLAG_DISABLED;
	err = register_kprobe(&probe->kp);
	probe->present = !err;
	if (!err && probe->when == PFLOW_PROBE_ALWAYS)
		err = probe_arm(probe);
	if (err)
		probe_unregister(probe);
	if (!err)
		return 0;
	if (!probe->required) {
		pr_warn("cannot probe %s (error %d): %s\n", probe->symbol, err, probe->without);
		return 0;
	}
	pr_err("cannot probe %s (error %d): %s; refusing to start\n", probe->symbol, err,
	       probe->without);
	return err;
}

/**
 * pflow_probes_add() - register a table
 * @probes: its rows are as in its definition, or as pflow_probes_remove() left them
 *
 * Context: process, may sleep. Return: 0, or the error of a required probe,
 * and then nothing is left registered.
 */
int pflow_probes_add(struct pflow_probes *probes)
{
	unsigned int i;
	int err;

	for (i = 0; i < probes->nr_rows; i++) {
		err = probe_register(&probes->rows[i]);
		if (err) {
			probes_unregister(probes);
			return err;
		}
	}
	mutex_lock(&tables_lock);
	list_add_tail_rcu(&probes->list, &tables);
	mutex_unlock(&tables_lock);
	return 0;
}
EXPORT_SYMBOL_GPL(pflow_probes_add);

/**
 * pflow_probes_remove() - unregister a table
 * @probes: it
 *
 * Context: process, may sleep. No handler of it runs any more on return.
 */
void pflow_probes_remove(struct pflow_probes *probes)
{
	mutex_lock(&tables_lock);
	list_del_rcu(&probes->list);
	mutex_unlock(&tables_lock);
	synchronize_rcu();	/* nobody shows it any more */
	probes_unregister(probes);
}
EXPORT_SYMBOL_GPL(pflow_probes_remove);

/**
 * pflow_probes_setup() - attach probes where sockets come and go
 *
 * Context: process, may sleep. Return: 0 or a negative error, and then nothing
 * is left attached.
 */
int pflow_probes_setup(void)
{
	return pflow_probes_add(&own);
}

/**
 * pflow_probes_teardown() - detach them
 *
 * Context: process, may sleep. No handler runs any more when it returns.
 */
void pflow_probes_teardown(void)
{
	pflow_probes_remove(&own);
}

/**
 * pflow_probes_arm() - arm what is armed only when it is first needed
 * @probes: a table; what cannot be armed now is tried again next time
 *
 * It stays armed, which has its price.
 *
 * Context: process, may sleep. Return: whether any were not armed before.
 */
bool pflow_probes_arm(struct pflow_probes *probes)
{
	bool any = false;
	unsigned int i;

	mutex_lock(&tables_lock);
	for (i = 0; i < probes->nr_rows; i++) {
		struct pflow_probe *probe = &probes->rows[i];

		if (probe->present && !probe->armed) {
			probe_arm(probe);
			any |= probe->armed;
		}
	}
	mutex_unlock(&tables_lock);
	return any;
}

static const char *probe_state(const struct pflow_probe *probe)
{
	if (!probe->present)
		return "absent";
	return READ_ONCE(probe->armed) ? "armed" : "idle";
}

/**
 * pflow_probes_status() - the table for people
 * @m: where to
 *
 * Context: process.
 */
void pflow_probes_status(struct seq_file *m)
{
	const struct pflow_probes *table;
	unsigned int i;

	pflow_show_begin();
	list_for_each_entry_rcu(table, &tables, list) {
		for (i = 0; i < table->nr_rows; i++) {
			const struct pflow_probe *probe = &table->rows[i];

			seq_printf(m, "probe: %-17s %-6s missed %lu%s%s%s\n", probe->symbol,
				   probe_state(probe), probe->kp.nmissed,
				   READ_ONCE(probe->ops) ? ", by ftrace" : "",
				   probe->present ? "" : "; ",
				   probe->present ? "" : probe->without);
		}
	}
	pflow_show_end();
}

/**
 * pflow_probes_metrics() - the table for machines
 * @m: where to
 *
 * Context: process.
 */
void pflow_probes_metrics(struct seq_file *m)
{
	const struct pflow_probes *table;
	unsigned int i;

	seq_puts(m, "# TYPE packetflow_probe_missed counter\n"
		    "# HELP packetflow_probe_missed Hits that a probe could not handle.\n");
	pflow_show_begin();
	list_for_each_entry_rcu(table, &tables, list)
		for (i = 0; i < table->nr_rows; i++)
			seq_printf(m, "packetflow_probe_missed_total{module=\"%s\",symbol=\"%s\"} %lu\n",
				   table->owner->name, table->rows[i].symbol,
				   table->rows[i].kp.nmissed);
	pflow_show_end();
}
