// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kprobe table: every kernel function that pf_common looks into.
 *
 * Handlers run with preemption off, in the context of the caller; here that
 * is always a system call (or the last close of a file), and the caller holds
 * the socket that its first argument names. They read, they never change what
 * the kernel does. A hit can be missed; then the next one, or a scan, learns
 * the same thing.
 *
 * The receive calls are probed only while somebody looks (overload, or the
 * estimator's short sample), the others always: those run once a socket.
 */
#include <linux/kprobes.h>
#include <linux/mutex.h>
#include <linux/net.h>

#include "internal.h"

enum probe_when {
	ALWAYS,
	WATCHED,
};

/**
 * struct pflow_probe - one row of the table
 * @symbol: function, probed at its entry
 * @handler: what to do there
 * @when: armed always, or while somebody looks
 * @required: without it the module refuses to load
 * @without: what is lost when the kernel does not have it
 * @kp: the probe
 * @present: registered
 * @armed: enabled
 */
struct pflow_probe {
	const char *symbol;
	kprobe_pre_handler_t handler;
	enum probe_when when;
	bool required;
	const char *without;
	struct kprobe kp;
	bool present;
	bool armed;
};

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

	if (sk)
		pflow_sock_forget(sk);
	return 0;
}

static struct pflow_probe probes[] = {
	{ "inet_recvmsg", on_receive, WATCHED, true,
	  "who receives cannot be learnt" },
	{ "inet6_recvmsg", on_receive, WATCHED, false,
	  "who receives on IPv6 sockets is guessed from who has them open" },
	{ "inet_bind", on_bind, ALWAYS, false,
	  "new IPv4 sockets are learnt when they receive, or by a scan" },
	{ "inet6_bind", on_bind, ALWAYS, false,
	  "new IPv6 sockets are learnt when they receive, or by a scan" },
	{ "__inet_accept", on_accept, ALWAYS, false,
	  "accepted sockets are learnt when they receive, or by a scan" },
	{ "inet_release", on_release, ALWAYS, false,
	  "entries of closed sockets stay for a minute, until a scan reaps them" },
};

static DEFINE_MUTEX(probes_lock);

static void probe_arm(struct pflow_probe *probe, bool on)
{
	if (!probe->present || probe->armed == on)
		return;
	if (on ? enable_kprobe(&probe->kp) : disable_kprobe(&probe->kp))
		return;
	probe->armed = on;
}

/**
 * pflow_probes_watch() - arm or disarm the probes on the receive calls
 * @on: which
 *
 * Context: process, may sleep.
 */
void pflow_probes_watch(bool on)
{
	unsigned int i;

	mutex_lock(&probes_lock);
	for (i = 0; i < ARRAY_SIZE(probes); i++)
		if (probes[i].when == WATCHED)
			probe_arm(&probes[i], on);
	mutex_unlock(&probes_lock);
}

/**
 * pflow_probes_setup() - register the table
 *
 * Context: process, may sleep. Return: 0, or the error of a required probe,
 * and then nothing is left registered.
 */
int pflow_probes_setup(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		struct pflow_probe *probe = &probes[i];
		int err;

		/* A struct kprobe must be pristine each time it is registered. */
		memset(&probe->kp, 0, sizeof(probe->kp));
		probe->kp.symbol_name = probe->symbol;
		probe->kp.pre_handler = probe->handler;
		probe->kp.flags = probe->when == WATCHED ? KPROBE_FLAG_DISABLED : 0;
		err = register_kprobe(&probe->kp);
		probe->present = !err;
		probe->armed = probe->present && probe->when == ALWAYS;
		if (!err)
			continue;
		if (probe->required) {
			pr_err("cannot probe %s (error %d): %s; refusing to start\n",
			       probe->symbol, err, probe->without);
			pflow_probes_teardown();
			return err;
		}
		pr_warn("cannot probe %s (error %d): %s\n", probe->symbol, err, probe->without);
	}
	return 0;
}

/**
 * pflow_probes_teardown() - unregister the table
 *
 * Context: process, may sleep. No handler runs any more when it returns.
 */
void pflow_probes_teardown(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		if (probes[i].present)
			unregister_kprobe(&probes[i].kp);
		probes[i].present = false;
		probes[i].armed = false;
	}
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
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(probes); i++)
		seq_printf(m, "probe: %-14s %-6s missed %lu%s%s\n", probes[i].symbol,
			   probe_state(&probes[i]), probes[i].kp.nmissed,
			   probes[i].present ? "" : "; ",
			   probes[i].present ? "" : probes[i].without);
}

/**
 * pflow_probes_metrics() - the table for machines
 * @m: where to
 *
 * Context: process.
 */
void pflow_probes_metrics(struct seq_file *m)
{
	unsigned int i;

	seq_puts(m, "# TYPE packetflow_probe_missed counter\n"
		    "# HELP packetflow_probe_missed Hits that a kprobe could not handle.\n");
	for (i = 0; i < ARRAY_SIZE(probes); i++)
		seq_printf(m, "packetflow_probe_missed_total{symbol=\"%s\"} %lu\n",
			   probes[i].symbol, probes[i].kp.nmissed);
}
