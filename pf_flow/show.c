// SPDX-License-Identifier: GPL-2.0-only
/*
 * Show: the files of /proc/packetflow/flow, and what is told in status and metrics.
 *
 *	table	flows, as lines that can be written again behind "replace"; what is written to it
 *	flows	what became of each flow's packets, a line a flow
 *	error	what was wrong with the last write
 *
 * All three are about the network namespace of who opens them. They are the administrator's:
 * writing takes CAP_NET_ADMIN in the initial user namespace, of the opener and of the writer.
 *
 * Context: process, may sleep.
 */
#include <linux/capability.h>
#include <linux/cgroup.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/nsproxy.h>
#include <linux/proc_fs.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/user_namespace.h>
#include <net/net_namespace.h>

#include "flow.h"

#define TEXT_MOST	(32u << 20)

/* What an open file is about. */
struct flow_file {
	struct net *net;
};

static struct flow_net *file_net(const struct seq_file *m)
{
	const struct flow_file *file = m->private;

	return flow_net_of(file->net);
}

static void *flows_start(struct seq_file *m, loff_t *pos)
{
	mutex_lock(&flow_mutex);
	return seq_list_start_head(&file_net(m)->flows, *pos);
}

static void *flows_next(struct seq_file *m, void *v, loff_t *pos)
{
	return seq_list_next(v, &file_net(m)->flows, pos);
}

static void flows_stop(struct seq_file *m, void *v)
{
	mutex_unlock(&flow_mutex);
}

static unsigned int prefix_length(const __be32 *mask)
{
	unsigned int i, bits = 0;

	for (i = 0; i < 4; i++)
		bits += hweight32((__force u32)mask[i]);
	return bits;
}

static void table_show_prefix(struct seq_file *m, const char *name,
			      const struct flow_pattern *match, const __be32 *address,
			      const __be32 *mask)
{
	unsigned int bits = prefix_length(mask);

	if (!bits)
		return;
	if (match->key.family == NFPROTO_IPV6)
		seq_printf(m, " %s=%pI6c/%u", name, address, bits);
	else
		seq_printf(m, " %s=%pI4/%u", name, address, bits);
}

/* As who reads it would write it. */
static void table_show_cgroup(struct seq_file *m, u64 id)
{
#if IS_ENABLED(CONFIG_SOCK_CGROUP_DATA)
	struct cgroup *cgroup = cgroup_get_from_id(id);
	char *path;
	int length;

	if (IS_ERR(cgroup)) {
		seq_puts(m, " cgroup=(gone)");
		return;
	}
	path = kmalloc(PATH_MAX, GFP_KERNEL);
	length = path ? cgroup_path_ns(cgroup, path, PATH_MAX, current->nsproxy->cgroup_ns) : -1;
	seq_printf(m, " cgroup=%s", length < 0 || length >= PATH_MAX ? "(long)" : path);
	kfree(path);
	cgroup_put(cgroup);
#endif
}

static void table_show_match(struct seq_file *m, const struct flow_pattern *match)
{
	const struct flow_key *key = &match->key, *mask = &match->mask;

	if (match->fallback)
		seq_puts(m, " default");
	if (mask->family)
		seq_printf(m, " family=%u", key->family == NFPROTO_IPV6 ? 6 : 4);
	table_show_prefix(m, "src", match, key->source, mask->source);
	table_show_prefix(m, "dst", match, key->destination, mask->destination);
	if (mask->protocol)
		seq_printf(m, " proto=%u", key->protocol);
	if (mask->sport)
		seq_printf(m, " sport=%u", ntohs(key->sport));
	if (mask->dport)
		seq_printf(m, " dport=%u", ntohs(key->dport));
	if (mask->iif)
		seq_printf(m, " dev=%s", match->device);
	if (mask->mark)
		seq_printf(m, " mark=0x%x/0x%x", key->mark, mask->mark);
	if (mask->rank)
		seq_printf(m, " rank=%u", key->rank - FLOW_RANK_OF(0));
	if (mask->cgroup)
		table_show_cgroup(m, key->cgroup);
}

static int table_show(struct seq_file *m, void *v)
{
	const struct flow *flow = list_entry(v, struct flow, list);
	const struct flow_shape *shape = &flow->shape;

	if (v == &file_net(m)->flows)
		return 0;
	seq_printf(m, "add %s", flow->name);
	table_show_match(m, &flow->match);
	if (shape->rate)
		seq_printf(m, " rate=%llu", shape->rate);
	if (shape->peak)
		seq_printf(m, " peak=%llu", shape->peak);
	if (shape->burst)
		seq_printf(m, " burst=%u", shape->burst);
	if (shape->queue)
		seq_printf(m, " queue=%u", shape->queue);
	if (shape->weight != 1)
		seq_printf(m, " weight=%u", shape->weight);
	seq_putc(m, '\n');
	return 0;
}

static int flows_show(struct seq_file *m, void *v)
{
	struct flow *flow = list_entry(v, struct flow, list);
	u32 waiting, waiting_bytes, limit;
	struct flow_counts counts;
	u64 mean;

	if (v == &file_net(m)->flows) {
		seq_puts(m, "name rate waiting waiting_bytes limit_bytes direct direct_bytes deferred deferred_bytes urgent early full unfit memory gone delay_us delay_most_us\n");
		return 0;
	}
	spin_lock_bh(&flow->lock);
	counts = flow->counts;
	waiting = flow->queue.qlen;
	waiting_bytes = flow->bytes;
	limit = flow->queue_bytes;
	spin_unlock_bh(&flow->lock);
	mean = counts.deferred ? div64_u64(counts.delay_ns, counts.deferred) : 0;
	seq_printf(m, "%s %llu %u %u %u %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu\n",
		   flow->name, flow->shape.rate, waiting, waiting_bytes, limit,
		   counts.direct, counts.direct_bytes, counts.deferred, counts.deferred_bytes,
		   counts.urgent, (u64)atomic64_read(&flow->early), counts.full, counts.unfit,
		   counts.memory, counts.gone, div_u64(mean, NSEC_PER_USEC),
		   div_u64(counts.delay_most_ns, NSEC_PER_USEC));
	return 0;
}

static const struct seq_operations table_seq = {
	.start = flows_start, .next = flows_next, .stop = flows_stop, .show = table_show,
};

static const struct seq_operations flows_seq = {
	.start = flows_start, .next = flows_next, .stop = flows_stop, .show = flows_show,
};

/* Who opened it counts, and who writes. */
static bool file_may_write(const struct file *file)
{
	return capable(CAP_NET_ADMIN) && file_ns_capable(file, &init_user_ns, CAP_NET_ADMIN);
}

/* The namespace stays as long as the file is open. */
static int file_open(struct file *file, const struct seq_operations *seq)
{
	struct flow_file *ours;

	if (!capable(CAP_NET_ADMIN))
		return -EPERM;
	ours = __seq_open_private(file, seq, sizeof(*ours));
	if (!ours)
		return -ENOMEM;
	ours->net = get_net(current->nsproxy->net_ns);
	return 0;
}

static int file_release(struct inode *inode, struct file *file)
{
	const struct flow_file *ours = ((struct seq_file *)file->private_data)->private;

	put_net(ours->net);
	return seq_release_private(inode, file);
}

static int table_open(struct inode *inode, struct file *file)
{
	return file_open(file, &table_seq);
}

static int flows_open(struct inode *inode, struct file *file)
{
	return file_open(file, &flows_seq);
}

static char *text_copy(const char __user *from, size_t size)
{
	char *text = kvmalloc(size + 1, GFP_KERNEL_ACCOUNT);

	if (!text)
		return ERR_PTR(-ENOMEM);
	if (copy_from_user(text, from, size)) {
		kvfree(text);
		return ERR_PTR(-EFAULT);
	}
	text[size] = '\0';
	if (strlen(text) == size)
		return text;
	kvfree(text);
	return ERR_PTR(-EINVAL);
}

static ssize_t table_write(struct file *file, const char __user *from, size_t size, loff_t *pos)
{
	char *text;
	int err;

	if (!file_may_write(file))
		return -EPERM;
	/* A change comes in one write, or it is not one. */
	if (!size || size > TEXT_MOST || *pos)
		return -EINVAL;
	text = text_copy(from, size);
	if (IS_ERR(text))
		return PTR_ERR(text);
	mutex_lock(&flow_mutex);
	err = flow_write(file_net(file->private_data), text);
	mutex_unlock(&flow_mutex);
	kvfree(text);
	return err ?: size;
}

static const struct proc_ops table_ops = {
	.proc_open = table_open,
	.proc_read = seq_read,
	.proc_write = table_write,
	.proc_lseek = seq_lseek,
	.proc_release = file_release,
};

static const struct proc_ops flows_ops = {
	.proc_open = flows_open,
	.proc_read = seq_read,
	.proc_lseek = seq_lseek,
	.proc_release = file_release,
};

static int error_show(struct seq_file *m, void *unused)
{
	mutex_lock(&flow_mutex);
	seq_puts(m, flow_error);
	mutex_unlock(&flow_mutex);
	return 0;
}

static int error_open(struct inode *inode, struct file *file)
{
	return capable(CAP_NET_ADMIN) ? single_open(file, error_show, NULL) : -EPERM;
}

static const struct proc_ops error_ops = {
	.proc_open = error_open,
	.proc_read = seq_read,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

/**
 * flow_files_setup() - make our files
 * @dir: where; they go with it
 *
 * Context: process, may sleep. Return: 0 or -ENOMEM.
 */
int flow_files_setup(struct proc_dir_entry *dir)
{
	return proc_create("table", 0600, dir, &table_ops) &&
	       proc_create("flows", 0400, dir, &flows_ops) &&
	       proc_create("error", 0400, dir, &error_ops) ? 0 : -ENOMEM;
}

/**
 * flow_status() - lines for people
 * @m: where to
 *
 * Context: RCU read side, may not sleep.
 */
void flow_status(struct seq_file *m)
{
	seq_printf(m, "flows: %u\n", flow_nets_flows());
	flow_server_status(m);
}

/**
 * flow_metrics() - families of OpenMetrics for machines
 * @m: where to
 *
 * Context: RCU read side, may not sleep.
 */
void flow_metrics(struct seq_file *m)
{
	seq_printf(m, "# TYPE packetflow_flow_flows gauge\n"
		   "# HELP packetflow_flow_flows Flows in all network namespaces.\n"
		   "packetflow_flow_flows %u\n", flow_nets_flows());
	flow_server_metrics(m);
}
