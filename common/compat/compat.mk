# SPDX-License-Identifier: GPL-2.0-only
# Ask the kernel's headers what they have; see compat.h.

# Releases before 6.1 lack too much of what the modules rely on, these reasons for one.
pflow-reasons := $(srctree)/include/net/dropreason*.h $(srctree)/include/linux/skbuff.h
ifeq ($(shell grep -s SKB_DROP_REASON_CPU_BACKLOG $(pflow-reasons)),)
$(error PacketFlow needs Linux 6.1 or later)
endif

# $(call pflow-has,PATTERN,HEADER,SYMBOL) defines SYMBOL if PATTERN occurs.
pflow-has = $(if $(shell grep -sE $(1) $(srctree)/include/$(2)),-DPFLOW_HAVE_$(3))

ccflags-y += $(call pflow-has,'[^t] struct sock \*rx_sk',trace/events/skb.h,KFREE_SKB_SK)
ccflags-y += $(call pflow-has,'const struct sock \*rx_sk',trace/events/skb.h,KFREE_SKB_CONST_SK)
ccflags-y += $(call pflow-has,'atomic_t[[:space:]]+dropped',linux/netdevice.h,SOFTNET_DROPPED_ATOMIC)
ccflags-y += $(call pflow-has,'struct numa_drop_counters[[:space:]]+drop_counters',linux/netdevice.h,SOFTNET_DROP_COUNTERS)
ccflags-y += $(call pflow-has,'int sk_drops_read',net/sock.h,SK_DROPS_READ)
ccflags-y += $(call pflow-has,'struct udp_table \*tbl',net/udp.h,UDP_TABLE_ARGUMENT)
ccflags-y += $(call pflow-has,'struct udp_table \*udp_table',net/netns/ipv4.h,UDP_TABLE_NETNS)
ccflags-y += $(call pflow-has,'udp_prod_queue',linux/udp.h,UDP_PROD_QUEUE)
ccflags-y += $(call pflow-has,'[[:space:]]u32[[:space:]]+defer_hard_irqs;',linux/netdevice.h,NAPI_DEFER)
ccflags-y += $(call pflow-has,'[[:space:]]num_napi_configs;',linux/netdevice.h,NUM_NAPI_CONFIGS)
ccflags-y += $(call pflow-has,'void netdev_lock.struct net_device',linux/netdevice.h,NETDEV_LOCK)
ccflags-y += $(call pflow-has,'rps_needed',net/rps.h,RPS_HEADER)
ccflags-y += $(call pflow-has,'[[:space:]]custom_slice;',linux/sched.h,CUSTOM_SLICE)
ccflags-y += $(call pflow-has,'int rc. struct sock \*sk. struct sk_buff',trace/events/udp.h,UDP_FAIL_SKB)
ccflags-y += $(call pflow-has,'struct task_struct \*task. u64 clone_flags',trace/events/task.h,NEWTASK_U64)
ccflags-y += $(call pflow-has,'void hrtimer_setup.struct hrtimer',linux/hrtimer.h,HRTIMER_SETUP)
ccflags-y += $(call pflow-has,'forward_threshold;',linux/udp.h,FORWARD_THRESHOLD)
ccflags-y += $(call pflow-has,'int tcp_space_from_win',net/tcp.h,TCP_SCALING_RATIO)
ccflags-y += $(call pflow-has,'ftrace_regs_get_argument',linux/ftrace*.h,FTRACE_ARGUMENT)
ccflags-y += $(call pflow-has,'u32 tcp_max_receive_window',net/tcp.h,TCP_MAX_RECEIVE_WINDOW)
ccflags-y += $(call pflow-has,'flowi4_dscp',net/flow.h,FLOW_DSCP)
ccflags-y += $(call pflow-has,'__inet_lookup_established.net. hashinfo',net/inet_hashtables.h,TCP_TABLE_ARGUMENT)
ccflags-y += $(call pflow-has,'skb_gso_segment',net/gso.h,GSO_HEADER)
ccflags-y += $(call pflow-has,'alloc_netdev_dummy',linux/netdevice.h,NETDEV_DUMMY_ALLOC)
