// SPDX-License-Identifier: GPL-2.0-only
/*
 * Knobs: one value each, a module parameter at load time and a file in
 * /proc/packetflow afterwards, both through the same parser.
 *
 * To write takes CAP_NET_ADMIN in the initial user namespace, and the capability that the module
 * asks for. Both the process that opened the file and the one that writes must have them. A value
 * that does not parse changes nothing.
 *
 * Context: process, may sleep. Readers of a value take it with READ_ONCE(), anywhere.
 */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/mutex.h>
#include <linux/proc_fs.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/user_namespace.h>

#include "../internal.h"

#define TEXT_MAX	1024	/* bytes of a value, without its newline */

static DEFINE_MUTEX(knob_lock);

struct pflow_knob pflow_knobs[PFLOW_KNOBS] = {
	[PFLOW_KNOB_ENABLE] = {
		.name = "enable", .unit = "0 or 1", .max = 1, .fallback = 1, .value = 1,
		.help =
		"0 detaches every hook and forgets every socket, without unloading",
		.apply = pflow_enable,
	},
	[PFLOW_KNOB_MAX_SOCKETS] = {
		.name = "max_sockets", .unit = "sockets",
		.min = 64, .max = 4194304, .fallback = 131072, .value = 131072,
		.help =
		"bound of the table, 200 bytes each when used; raise it when status says that sockets were refused",
	},
	[PFLOW_KNOB_BATCH_US] = {
		.name = "batch_us", .unit = "microseconds",
		.max = 1000, .fallback = 250, .value = 250,
		.help =
		"while a CPU is under pressure and has no time to spare, the interrupts of its network device are put off and it is looked at once in this time, so that receivers are woken for several packets at a time; 0 never does that, for where so much latency is too much",
	},
	[PFLOW_KNOB_RANK_DEPTH] = {
		.name = "rank_depth", .unit = "levels of control groups",
		.max = 8, .fallback = 2, .value = 2,
		.help =
		"weights of control groups so far from the root raise and lower the rank of who is in them, deeper ones only lower it; no deeper than nobody but the administrator sets them",
	},
};

module_param_cb(enable, &pflow_knob_param_ops, &pflow_knobs[PFLOW_KNOB_ENABLE], 0444);
MODULE_PARM_DESC(enable, "0 loads with every hook detached (default 1)");
module_param_cb(max_sockets, &pflow_knob_param_ops, &pflow_knobs[PFLOW_KNOB_MAX_SOCKETS], 0444);
MODULE_PARM_DESC(max_sockets, "bound of the socket table (default 131072)");
module_param_cb(batch_us, &pflow_knob_param_ops, &pflow_knobs[PFLOW_KNOB_BATCH_US], 0444);
MODULE_PARM_DESC(batch_us, "under pressure a device is looked at so often, microseconds (default 250)");
module_param_cb(rank_depth, &pflow_knob_param_ops, &pflow_knobs[PFLOW_KNOB_RANK_DEPTH], 0444);
MODULE_PARM_DESC(rank_depth, "weights of control groups so deep may raise a rank (default 2)");

static int knob_parse_choice(const struct pflow_knob *knob, const char *text, unsigned int *value)
{
	for (*value = 0; knob->choices[*value]; (*value)++)
		if (!strcmp(knob->choices[*value], text))
			return 0;
	return -EINVAL;
}

static int knob_parse_number(const struct pflow_knob *knob, const char *text, unsigned int *value)
{
	/* kstrtouint() takes a sign. */
	if (text[0] == '+' || kstrtouint(text, 10, value))
		return -EINVAL;
	return *value < knob->min || *value > knob->max ? -EINVAL : 0;
}

static int knob_set(struct pflow_knob *knob, char *text, bool apply)
{
	unsigned int value;
	int err;

	lockdep_assert_held(&knob_lock);
	/* kstrtouint() would take one more newline than the one that ended the value. */
	if (strlen(text) > TEXT_MAX || strchr(text, '\n'))
		return -EINVAL;
	if (knob->parse)
		return knob->parse(knob, text);
	err = knob->choices ? knob_parse_choice(knob, text, &value) :
			      knob_parse_number(knob, text, &value);
	if (err)
		return err;
	if (apply && knob->apply) {
		err = knob->apply(value);
		if (err)
			return err;
	}
	WRITE_ONCE(knob->value, value);
	return 0;
}

/* Show a value. A reader takes no lock: a value is one word, and lists are under RCU. */
static void knob_show(const struct pflow_knob *knob, struct seq_file *m)
{
	unsigned int value = READ_ONCE(knob->value);

	pflow_show_begin();
	if (knob->show)
		knob->show(knob, m);
	else if (knob->choices)
		seq_puts(m, knob->choices[value]);
	else
		seq_printf(m, "%u", value);
	pflow_show_end();
	seq_putc(m, '\n');
}

/* One newline, as echo writes it, ends the value; anything else belongs to it. */
static void text_strip_newline(char *text)
{
	size_t length = strlen(text);

	if (length && text[length - 1] == '\n')
		text[length - 1] = '\0';
}

static int knob_param_set(const char *given, const struct kernel_param *kp)
{
	char *text;
	int err;

	if (strlen(given) > TEXT_MAX + 1)
		return -EINVAL;
	text = kstrdup(given, GFP_KERNEL);
	if (!text)
		return -ENOMEM;
	text_strip_newline(text);
	mutex_lock(&knob_lock);
	err = knob_set(kp->arg, text, false);
	mutex_unlock(&knob_lock);
	kfree(text);
	return err;
}

static int knob_param_get(char *buffer, const struct kernel_param *kp)
{
	const struct pflow_knob *knob = kp->arg;
	struct seq_file m = { .buf = buffer, .size = PAGE_SIZE };

	knob_show(knob, &m);
	return m.count;
}

static void knob_param_free(void *arg)
{
	struct pflow_knob *knob = arg;

	if (knob->release)
		knob->release(knob);
}

const struct kernel_param_ops pflow_knob_param_ops = {
	.set = knob_param_set,
	.get = knob_param_get,
	.free = knob_param_free,
};
EXPORT_SYMBOL_GPL(pflow_knob_param_ops);

static int knob_file_show(struct seq_file *m, void *unused)
{
	knob_show(m->private, m);
	return 0;
}

/* May this process set this knob, and if it has a file open, might its opener? */
static bool knob_may_write(const struct pflow_knob *knob, const struct file *file)
{
	int also = knob->capability ?: CAP_NET_ADMIN;

	if (!capable(CAP_NET_ADMIN) || !capable(also))
		return false;
	return !file || (file_ns_capable(file, &init_user_ns, CAP_NET_ADMIN) &&
			 file_ns_capable(file, &init_user_ns, also));
}

static int knob_file_open(struct inode *inode, struct file *file)
{
	struct pflow_knob *knob = pde_data(inode);

	if ((file->f_mode & FMODE_WRITE) && !knob_may_write(knob, NULL))
		return -EPERM;
	return single_open(file, knob_file_show, knob);
}

static ssize_t knob_file_write(struct file *file, const char __user *from, size_t size, loff_t *pos)
{
	struct pflow_knob *knob = pde_data(file_inode(file));
	char *text;
	int err;

	if (!knob_may_write(knob, file))
		return -EPERM;
	/* A value has to come in one write. */
	if (!size || size > TEXT_MAX + 1 || *pos)
		return -EINVAL;
	text = memdup_user_nul(from, size);
	if (IS_ERR(text))
		return PTR_ERR(text);
	if (strlen(text) != size) {
		kfree(text);
		return -EINVAL;
	}
	text_strip_newline(text);
	mutex_lock(&knob_lock);
	err = knob_set(knob, text, true);
	mutex_unlock(&knob_lock);
	kfree(text);
	if (err)
		return err;
	*pos += size;
	return size;
}

static const struct proc_ops file_ops = {
	.proc_open = knob_file_open,
	.proc_read = seq_read,
	.proc_write = knob_file_write,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

/**
 * pflow_knob_create() - make a knob's file
 * @knob: the knob
 * @dir: directory below /proc/packetflow
 *
 * Context: process, may sleep. Return: 0 or -ENOMEM.
 */
int pflow_knob_create(struct pflow_knob *knob, struct proc_dir_entry *dir)
{
	return proc_create_data(knob->name, 0644, dir, &file_ops, knob) ? 0 : -ENOMEM;
}
