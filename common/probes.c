// SPDX-License-Identifier: GPL-2.0-only
/*
 * The tables of probes: every kernel function that the suite looks into. Each module
 * has a table of its own rows; here they are registered, armed and told of. A probe is a
 * kprobe, or, where it runs for every packet and the kernel can, a call by ftrace.
 *
 * pf_common's own handlers run with preemption off, in the context of the caller; here that
 * is always a system call (or the last close of a file), and the caller holds
 * the socket that its first argument names. They read, they never change what
 * the kernel does. A hit can be missed; then the next one, or a scan, learns
 * the same thing.
 *
 * The receive calls are probed only while somebody looks (overload, or the
 * estimator's short sample), the others always: those run once a socket.
 */
#include <linux/err.h>
#include <linux/kprobes.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/net.h>

#include "internal.h"

static struct socket *socket_argument(struct pt_regs *regs, unsigned int n)
{
	return (struct socket *)regs_get_kernel_argument(regs, n);
}

/* Kernel threads (those of NFS; io_uring has none) are nobody's receiver. */
static void learn_holder(struct sock *sk)
{
	if (!sk || (current->flags & PF_KTHREAD))
		return;
	rcu_read_lock();
	pflow_owner_holds(sk, current, 0);
	rcu_read_unlock();
}

/* inet_bind(struct socket *sock, ...), inet6_bind() alike */
static int on_bind(struct kprobe *kp, struct pt_regs *regs)
{
	learn_holder(pflow_process_sock(socket_argument(regs, 0)));
	return 0;
}

/* __inet_accept(struct socket *sock, struct socket *newsock, struct sock *newsk) */
static int on_accept(struct kprobe *kp, struct pt_regs *regs)
{
	/* newsock has its file already, but newsk is grafted onto it only now. */
	if (socket_argument(regs, 1)->file)
		learn_holder((struct sock *)regs_get_kernel_argument(regs, 2));
	return 0;
}

/* inet_recvmsg(struct socket *sock, ...), inet6_recvmsg() alike */
static int on_receive(struct kprobe *kp, struct pt_regs *regs)
{
	struct sock *sk = pflow_process_sock(socket_argument(regs, 0));

	if (!sk || (current->flags & PF_KTHREAD))
		return 0;
	rcu_read_lock();
	pflow_owner_receives(sk);
	rcu_read_unlock();
	return 0;
}

/* inet_release(struct socket *sock); inet6_release() ends in it */
static int on_release(struct kprobe *kp, struct pt_regs *regs)
{
	const struct sock *sk = socket_argument(regs, 0)->sk;

	if (!sk)
		return 0;
	/* First: who is told finds it gone from the table, so nothing begins for it again. */
	pflow_sock_forget(sk);
	pflow_modules_closes(sk);
	return 0;
}

static struct pflow_probe rows[] = {
	{ "inet_recvmsg", on_receive, PFLOW_PROBE_WATCHED, true,
	  "who receives cannot be learnt" },
	{ "inet6_recvmsg", on_receive, PFLOW_PROBE_WATCHED, false,
	  "who receives on IPv6 sockets is guessed from who has them open" },
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

static LIST_HEAD(tables);
static DEFINE_MUTEX(tables_lock);

static void probe_arm(struct pflow_probe *probe, bool on)
{
	if (!probe->present || probe->armed == on)
		return;
	if (on ? enable_kprobe(&probe->kp) : disable_kprobe(&probe->kp))
		return;
	probe->armed = on;
}

/**
 * pflow_probes_arm() - arm or disarm the rows that wait for somebody to look
 * @probes: a table that was added
 * @on: which
 *
 * Arming makes ftrace walk all functions of the kernel: milliseconds.
 *
 * Context: process, may sleep.
 */
void pflow_probes_arm(struct pflow_probes *probes, bool on)
{
	unsigned int i;

	mutex_lock(&tables_lock);
	for (i = 0; i < probes->nr_rows; i++)
		if (probes->rows[i].when == PFLOW_PROBE_WATCHED)
			probe_arm(&probes->rows[i], on);
	mutex_unlock(&tables_lock);
}
EXPORT_SYMBOL_GPL(pflow_probes_arm);

static void unregister_row(struct pflow_probe *probe)
{
	if (probe->ops)
		pflow_ftrace_detach(probe->ops);
	else if (probe->present)
		unregister_kprobe(&probe->kp);
	probe->ops = NULL;
	probe->present = false;
	probe->armed = false;
}

static void unregister_rows(struct pflow_probes *probes)
{
	unsigned int i;

	for (i = 0; i < probes->nr_rows; i++)
		unregister_row(&probes->rows[i]);
}

/*
 * The kprobe, registered and not armed, knows the address, which no exported function tells;
 * and it does the work itself where ftrace refuses.
 */
static int attach_hot(struct pflow_probe *probe)
{
	struct ftrace_ops *ops = pflow_ftrace_attach(probe->kp.addr, probe->hot);
	int err;

	if (!IS_ERR(ops)) {
		unregister_kprobe(&probe->kp);
		probe->ops = ops;
		return 0;
	}
	pr_warn("no ftrace at %s (error %ld): a kprobe costs every packet more\n", probe->symbol,
		PTR_ERR(ops));
	err = enable_kprobe(&probe->kp);
	if (err)
		unregister_kprobe(&probe->kp);
	return err;
}

static int register_row(struct pflow_probe *probe)
{
	int err;

	/* A struct kprobe must be pristine each time it is registered. */
	memset(&probe->kp, 0, sizeof(probe->kp));
	probe->kp.symbol_name = probe->symbol;
	probe->kp.pre_handler = probe->handler;
	if (probe->hot || probe->when == PFLOW_PROBE_WATCHED)
		probe->kp.flags = KPROBE_FLAG_DISABLED;
	err = register_kprobe(&probe->kp);
	if (!err && probe->hot)
		err = attach_hot(probe);
	probe->present = !err;
	probe->armed = probe->present && probe->when == PFLOW_PROBE_ALWAYS;
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
		err = register_row(&probes->rows[i]);
		if (err) {
			unregister_rows(probes);
			return err;
		}
	}
	mutex_lock(&tables_lock);
	list_add_tail(&probes->list, &tables);
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
	list_del(&probes->list);
	mutex_unlock(&tables_lock);
	unregister_rows(probes);
}
EXPORT_SYMBOL_GPL(pflow_probes_remove);

/**
 * pflow_probes_setup() - register pf_common's own table
 *
 * Context: process, may sleep. Return: 0 or a negative error, and then nothing
 * is left registered.
 */
int pflow_probes_setup(void)
{
	return pflow_probes_add(&own);
}

/**
 * pflow_probes_teardown() - unregister it
 *
 * Context: process, may sleep. No handler runs any more when it returns.
 */
void pflow_probes_teardown(void)
{
	pflow_probes_remove(&own);
}

/**
 * pflow_probes_watch() - arm or disarm the probes on the receive calls
 * @on: which
 *
 * Context: process, may sleep.
 */
void pflow_probes_watch(bool on)
{
	pflow_probes_arm(&own, on);
}

static const char *probe_state(const struct pflow_probe *probe)
{
	if (!probe->present)
		return "absent";
	return probe->armed ? "armed" : "idle";
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

	mutex_lock(&tables_lock);
	list_for_each_entry(table, &tables, list) {
		for (i = 0; i < table->nr_rows; i++) {
			const struct pflow_probe *probe = &table->rows[i];

			seq_printf(m, "probe: %-17s %-6s missed %lu%s%s%s\n", probe->symbol,
				   probe_state(probe), probe->kp.nmissed,
				   probe->ops ? ", by ftrace" : "", probe->present ? "" : "; ",
				   probe->present ? "" : probe->without);
		}
	}
	mutex_unlock(&tables_lock);
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
	mutex_lock(&tables_lock);
	list_for_each_entry(table, &tables, list)
		for (i = 0; i < table->nr_rows; i++)
			seq_printf(m, "packetflow_probe_missed_total{module=\"%s\",symbol=\"%s\"} %lu\n",
				   table->owner->name, table->rows[i].symbol,
				   table->rows[i].kp.nmissed);
	mutex_unlock(&tables_lock);
}
