/* SPDX-License-Identifier: GPL-2.0-only */
/* What differs between kernels for what an XDP program calls; see compat.h. */
#ifndef _PFLOW_COMPAT_DRIVER_H
#define _PFLOW_COMPAT_DRIVER_H

#include <linux/bpf.h>
#include <linux/btf.h>
#include <linux/btf_ids.h>
#include <linux/module.h>
#include <linux/netdevice.h>

/* 6.3 (57e7c169cd6a). */
#ifndef __bpf_kfunc
#define __bpf_kfunc noinline
#endif

/* 6.9 marked the sets of functions for programs (6f3189f38a3e). */
#ifndef BTF_KFUNCS_START
#define BTF_KFUNCS_START(name) BTF_SET8_START(name)
#define BTF_KFUNCS_END(name) BTF_SET8_END(name)
#endif

/*
 * Does a program or rule look at what comes by this device, before the network layer? In 6.6
 * those of traffic control got a list of their own (e420bed02507).
 */
static inline bool pflow_ingress_used(const struct net_device *dev)
{
#ifdef CONFIG_NET_XGRESS
	if (rcu_access_pointer(dev->tcx_ingress))
		return true;
#elif defined(CONFIG_NET_CLS_ACT)
	if (rcu_access_pointer(dev->miniq_ingress))
		return true;
#endif
#ifdef CONFIG_NETFILTER_INGRESS
	if (rcu_access_pointer(dev->nf_hooks_ingress))
		return true;
#endif
	return false;
}

/*
 * Let XDP programs call functions of a module. Without types of its own (BTF), which some kernels'
 * headers cannot make, there is nothing to be registered.
 */
static inline int pflow_driver_register(const struct btf_kfunc_id_set *set)
{
#ifdef CONFIG_DEBUG_INFO_BTF_MODULES
	if (set->owner->btf_data_size)
		return register_btf_kfunc_id_set(BPF_PROG_TYPE_XDP, set);
#endif
	return 0;
}

#endif
