/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Knobs: one value each, which is a module parameter and a file of the same name.
 *
 * A module describes each knob by a row of its table. pf_common makes the file, reads and checks
 * what is written to it, and shows it.
 */
#ifndef _PFLOW_KNOB_H
#define _PFLOW_KNOB_H

#include <linux/bitmap.h>
#include <linux/moduleparam.h>
#include <linux/rcupdate.h>
#include <linux/seq_file.h>

#define PFLOW_PORTS	65536

/**
 * struct pflow_ports - a set of ports, which is replaced and never changed
 * @rcu: readers may hold it for a grace period
 * @local: bitmap by port, host order
 * @remote: the same of remote ports, if the knob has them
 */
struct pflow_ports {
	struct rcu_head rcu;
	DECLARE_BITMAP(local, PFLOW_PORTS);
	unsigned long remote[];
};

/**
 * struct pflow_knob - one setting
 * @name: file below the module's directory, and module parameter
 * @unit: of the value, for people
 * @help: what it does and when to change it
 * @min: least number
 * @max: greatest number
 * @value: in force; read with READ_ONCE()
 * @fallback: the default
 * @choices: names of the values 0.., NULL-terminated; NULL for numbers
 * @parse: for values that are neither: takes the text, changes nothing on error
 * @show: the opposite of @parse; under RCU, and may not sleep
 * @release: frees what @parse made, when the module goes
 * @ports: the value of a set of ports, whose @parse, @show and @release are those of
 *	proc/ports.c; NULL until it is first set
 * @from: that set may have remote ports
 * @capability: of the module, see there; kept by pf_common
 * @apply: called with the new value before it is stored; may refuse and sleep
 */
struct pflow_knob {
	const char *name;
	const char *unit;
	const char *help;
	unsigned int min;
	unsigned int max;
	unsigned int value;
	unsigned int fallback;
	const char * const *choices;
	int (*parse)(struct pflow_knob *knob, char *text);
	void (*show)(const struct pflow_knob *knob, struct seq_file *m);
	void (*release)(struct pflow_knob *knob);
	struct pflow_ports __rcu *ports;
	bool from;
	int capability;
	int (*apply)(unsigned int value);
};

extern const struct kernel_param_ops pflow_knob_param_ops;

/* proc/ports.c */
int pflow_ports_parse(struct pflow_knob *knob, char *text);
void pflow_ports_show(const struct pflow_knob *knob, struct seq_file *m);
void pflow_ports_release(struct pflow_knob *knob);

#endif
