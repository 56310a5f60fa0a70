// SPDX-License-Identifier: GPL-2.0-only
/*
 * /proc/packetflow: status for people, metrics for machines (OpenMetrics),
 * sockets (the shared table, a line a socket), and the suite's own knobs.
 *
 * Anybody may read status and metrics, so they take no mutex and keep nobody waiting: see
 * pflow_show_begin(). Whoever reads the sockets has the table brought up to date first.
 *
 * Context: process, may sleep.
 */
#include <linux/capability.h>
#include <linux/pid_namespace.h>
#include <linux/proc_fs.h>
#include <linux/user_namespace.h>
#include <net/ipv6.h>

#include "../internal.h"

struct proc_dir_entry *pflow_root;

/**
 * pflow_reader_is_admin() - may whoever opened this file be told of other people's processes?
 * @m: of the file
 *
 * Context: process, in what is shown of status or metrics. Return: whether they have CAP_NET_ADMIN
 * in the initial user namespace.
 */
bool pflow_reader_is_admin(const struct seq_file *m)
{
	return m->private;
}
EXPORT_SYMBOL_GPL(pflow_reader_is_admin);

/*
 * Remember the answer for pflow_reader_is_admin(). A security module that refuses may write a log,
 * and so may sleep on a real-time kernel. Later preemption is off. The opener counts: a program
 * with privileges may be handed the file to read.
 */
static void reader_ask(struct seq_file *m)
{
	m->private = file_ns_capable(m->file, &init_user_ns, CAP_NET_ADMIN) ? m : NULL;
}

static void status_show_inert(struct seq_file *m)
{
	struct pflow_inert inert;

	pflow_inert_check(&inert);
	if (!inert.groups_differ)
		seq_puts(m, "nice: effective between the receivers seen, which share one scheduling group\n");
	else if (inert.autogroup)
		seq_puts(m, "nice: inert for the CPU scheduler between receivers of different sessions (autogroup); PacketFlow ranks by it all the same. sysctl kernel.sched_autogroup_enabled=0 makes it effective\n");
	else
		seq_puts(m, "nice: inert for the CPU scheduler between receivers of different cgroups; PacketFlow ranks by it all the same, and by cpu.weight. Set cpu.weight of the cgroups\n");
}

static int status_show(struct seq_file *m, void *unused)
{
	struct pflow_table_stats stats;

	reader_ask(m);
	pflow_table_stats(&stats);
	seq_printf(m, "sockets: %u of at most %u; refused %lu, left to a scan %lu, reaped %lu, gave way %lu\n",
		   stats.used, stats.max, stats.refused, stats.starved, stats.reaped,
		   stats.displaced);
	if (stats.refused)
		seq_puts(m, "sockets: some are not tracked; raise max_sockets\n");
	status_show_inert(m);
	pflow_pressure_status(m);
	pflow_batch_status(m);
	if (READ_ONCE(pflow_knobs[PFLOW_KNOB_ENABLE].value))
		pflow_probes_status(m);
	pflow_modules_status(m);
	return 0;
}

static int metrics_show(struct seq_file *m, void *unused)
{
	struct pflow_table_stats stats;

	reader_ask(m);
	pflow_table_stats(&stats);
	seq_printf(m, "# TYPE packetflow_sockets gauge\n"
		   "# HELP packetflow_sockets Sockets in the shared table.\n"
		   "packetflow_sockets %u\n", stats.used);
	seq_printf(m, "# TYPE packetflow_sockets_missed counter\n"
		   "# HELP packetflow_sockets_missed Sockets not entered, entries whose release was missed, and such as gave way.\n"
		   "packetflow_sockets_missed_total{reason=\"refused\"} %lu\n"
		   "packetflow_sockets_missed_total{reason=\"starved\"} %lu\n"
		   "packetflow_sockets_missed_total{reason=\"reaped\"} %lu\n"
		   "packetflow_sockets_missed_total{reason=\"displaced\"} %lu\n",
		   stats.refused, stats.starved, stats.reaped, stats.displaced);
	pflow_pressure_metrics(m);
	pflow_probes_metrics(m);
	pflow_modules_metrics(m);
	seq_puts(m, "# EOF\n");
	return 0;
}

static void sockets_show_task(struct seq_file *m, pid_t pid)
{
	char comm[TASK_COMM_LEN] = "-", group[PFLOW_GROUP_NAME] = "-";
	struct task_struct *task;

	rcu_read_lock();
	task = pid_task(find_pid_ns(pid, &init_pid_ns), PIDTYPE_PID);
	if (task) {
		strscpy(comm, task->comm, sizeof(comm));
		pflow_group_name(task, group, sizeof(group));
	}
	rcu_read_unlock();
	pflow_one_word(comm);
	pflow_one_word(group);
	seq_printf(m, " %s %s", comm, group);
}

static void sockets_show_address(struct seq_file *m, const struct in6_addr *address, u16 port)
{
	if (ipv6_addr_v4mapped(address))
		seq_printf(m, " %pI4:%u", &address->s6_addr32[3], port);
	else
		seq_printf(m, " [%pI6c]:%u", address, port);
}

/*
 * What receiving costs, in thousandths of a CPU: the owner's own run time and the softirqs for
 * the packets; and how much of the time the owner waits. As far as that is measured.
 */
static void sockets_show_usage(struct seq_file *m, const struct pflow_sock *entry)
{
	const struct pflow_thread *thread = pflow_thread_find(READ_ONCE(entry->pid));
	unsigned int cpu = READ_ONCE(entry->run_cpu);
	u32 packet_ns = cpu < nr_cpu_ids && cpu_possible(cpu) ?
			READ_ONCE(per_cpu_ptr(&pflow_load, cpu)->packet_ns) : 0;

	seq_printf(m, " %u %llu %u\n", thread ? READ_ONCE(thread->run) * 1000 / PFLOW_ONE : 0,
		   div_u64((u64)READ_ONCE(entry->rate) * packet_ns, NSEC_PER_MSEC),
		   thread ? READ_ONCE(thread->wait) * 1000 / PFLOW_ONE : 0);
}

static void sockets_show_entry(struct pflow_sock *entry, void *data)
{
	struct seq_file *m = data;
	struct in6_addr local, remote;
	u16 local_port, remote_port;
	unsigned long irq;

	raw_spin_lock_irqsave(pflow_sock_lock(entry), irq);
	local = entry->local;
	remote = entry->remote;
	local_port = entry->local_port;
	remote_port = entry->remote_port;
	raw_spin_unlock_irqrestore(pflow_sock_lock(entry), irq);
	seq_printf(m, "%s%s", entry->protocol == IPPROTO_TCP ? "tcp" : "udp",
		   entry->family == AF_INET6 ? "6" : "");
	sockets_show_address(m, &local, local_port);
	sockets_show_address(m, &remote, remote_port);
	seq_printf(m, " %u %d", entry->netns, READ_ONCE(entry->pid));
	sockets_show_task(m, READ_ONCE(entry->pid));
	seq_printf(m, " %s %d %u %u %u %u %u %u %u %u %u %u %u %u %u",
		   READ_ONCE(entry->learnt) == PFLOW_RECEIVES ? "receives" : "holds",
		   pflow_rank_prio(READ_ONCE(entry->rank)), READ_ONCE(entry->rank),
		   jiffies_to_msecs((u32)jiffies - READ_ONCE(entry->window_start)),
		   READ_ONCE(entry->rate), test_bit(PFLOW_SOCK_DS, &entry->flags),
		   test_bit(PFLOW_SOCK_PP, &entry->flags),
		   test_bit(PFLOW_SOCK_GROWS, &entry->flags), READ_ONCE(entry->rmem),
		   READ_ONCE(entry->rcvbuf),
		   pflow_modules_buffer_most(entry->protocol, READ_ONCE(entry->rank)),
		   READ_ONCE(entry->drops),
		   atomic_read(&entry->early[PFLOW_DROP_OVERLOAD]),
		   atomic_read(&entry->early[PFLOW_DROP_HARM]),
		   atomic_read(&entry->early[PFLOW_DROP_FULL]));
	sockets_show_usage(m, entry);
}

/* A position is a hash chain, plus one for the heading. */
static void *sockets_start(struct seq_file *m, loff_t *pos)
{
	if (!*pos)
		return SEQ_START_TOKEN;
	return *pos <= pflow_table_buckets() ? pos : NULL;
}

static void *sockets_next(struct seq_file *m, void *v, loff_t *pos)
{
	++*pos;
	return sockets_start(m, pos);
}

static void sockets_stop(struct seq_file *m, void *v)
{
}

static int sockets_show(struct seq_file *m, void *v)
{
	if (v == SEQ_START_TOKEN)
		seq_puts(m, "proto local remote netns owner comm unit learnt prio rank age_ms rate ds pp grows rmem rcvbuf sbmax drops early_overload early_harm early_full run softirq wait\n");
	else
		pflow_table_bucket(*(loff_t *)v - 1, sockets_show_entry, m);
	return 0;
}

static const struct seq_operations sockets_seq = {
	.start = sockets_start,
	.next = sockets_next,
	.stop = sockets_stop,
	.show = sockets_show,
};

/* The file names processes and peers of all users, which root of a container is not to see. */
static int sockets_open(struct inode *inode, struct file *file)
{
	if (!capable(CAP_NET_ADMIN))
		return -EPERM;
	pflow_refresh();
	return seq_open(file, &sockets_seq);
}

static const struct proc_ops sockets_ops = {
	.proc_open = sockets_open,
	.proc_read = seq_read,
	.proc_lseek = seq_lseek,
	.proc_release = seq_release,
};

/**
 * pflow_proc_setup() - make /proc/packetflow
 *
 * Context: process, may sleep. Return: 0 or -ENOMEM, and then nothing is left.
 */
int pflow_proc_setup(void)
{
	unsigned int i;

	pflow_root = proc_mkdir("packetflow", NULL);
	if (!pflow_root)
		return -ENOMEM;
	if (!proc_create_single("status", 0444, pflow_root, status_show) ||
	    !proc_create_single("metrics", 0444, pflow_root, metrics_show) ||
	    !proc_create("sockets", 0400, pflow_root, &sockets_ops))
		goto error;
	for (i = 0; i < PFLOW_KNOBS; i++)
		if (pflow_knob_create(&pflow_knobs[i], pflow_root))
			goto error;
	return 0;
error:
	pflow_proc_teardown();
	return -ENOMEM;
}

/**
 * pflow_proc_teardown() - remove /proc/packetflow
 *
 * Context: process, may sleep. Waits for whoever is reading or writing.
 */
void pflow_proc_teardown(void)
{
	proc_remove(pflow_root);
}
