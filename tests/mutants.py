# SPDX-License-Identifier: GPL-2.0-only
"""Ways to break the modules on purpose, and the test that must notice each.

A test that cannot fail is a defect. `tests/mutate` builds every mutant and
expects the named test to fail; the text that is replaced must occur exactly
once, so that a mutant that no longer applies is noticed too.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str
    test: str  # below tests/


B2, UNTOUCHED, SCHED = "vm/test_b2.py::", "vm/test_untouched.py::", "vm/test_sched.py::"

MUTANTS = [
    Mutant(
        "B2 drops what would still fit",
        "common/compat/compat.h",
        "return rmem > rcvbuf;",
        "return rmem > rcvbuf / 2;",
        B2 + "test_the_same_packets_are_received_as_on_stock",
    ),
    Mutant(
        "B2 comparison flipped",
        "common/compat/compat.h",
        "return rmem > rcvbuf;",
        "return rmem <= rcvbuf;",
        B2 + "test_every_lost_packet_is_accounted_for",
    ),
    Mutant(
        "B2 never drops",
        "common/compat/compat.h",
        "return rmem > rcvbuf;",
        "return false;",
        B2 + "test_every_lost_packet_is_accounted_for",
    ),
    Mutant(
        "IPv4 destination not checked to be local",
        "pf_filter/classify.c",
        "if (!address_is_local(packet->net, skb->dev, iph->daddr))",
        "if (0)",
        UNTOUCHED + "test_forwarded_packets",
    ),
    Mutant(
        "IPv6 destination not checked to be local",
        "pf_filter/classify.c",
        "if (!ipv6_chk_addr(packet->net, &ip6h->daddr, skb->dev, 0))",
        "if (0)",
        UNTOUCHED + "test_forwarded_packets",
    ),
    Mutant(
        "fragments taken for datagrams",
        "pf_filter/classify.c",
        " || ip_is_fragment(iph)",
        "",
        UNTOUCHED + "test_fragments",
    ),
    Mutant(
        "IP options taken for a UDP header",
        "pf_filter/classify.c",
        "iph->ihl != sizeof(*iph) / 4 || ",
        "",
        UNTOUCHED + "test_ip_options",
    ),
    Mutant(
        "extension headers taken for a UDP header",
        "pf_filter/classify.c",
        "if (ip6h->nexthdr != IPPROTO_UDP)",
        "if (0)",
        UNTOUCHED + "test_extension_headers",
    ),
    Mutant(
        "what is sent to all taken for one receiver's",
        "pf_filter/classify.c",
        "if (skb->pkt_type != PACKET_HOST)",
        "if (0)",
        UNTOUCHED + "test_several_receivers",
    ),
    Mutant(
        "lengths not checked",
        "pf_filter/classify.c",
        "if (length < sizeof(*uh) || length > skb->len - offset)",
        "if (0)",
        UNTOUCHED + "test_malformed_packets_are_left_to_stock",
    ),
    Mutant(
        "tunnels taken for processes",
        "pf_filter/classify.c",
        "if (READ_ONCE(udp_sk(packet->sk)->encap_type) ||"
        " READ_ONCE(udp_sk(packet->sk)->encap_rcv))",
        "if (0)",
        UNTOUCHED + "test_a_socket_with_a_tunnel_protocol_of_its_own_is_the_kernels",
    ),
    Mutant(
        "proxied packets looked up anew",
        "pf_filter/classify.c",
        "skb->sk || ",
        "",
        UNTOUCHED + "test_a_transparent_proxy_keeps_its_packets",
    ),
    Mutant(
        "hooked before destination NAT",
        "pf_filter/hook.c",
        "NF_IP_PRI_NAT_DST + 1",
        "NF_IP_PRI_NAT_DST - 1",
        UNTOUCHED + "test_a_port_published_by_destination_nat",
    ),
    Mutant(
        "packets of virtual services taken for the host's",
        "pf_filter/classify.c",
        "if (ipvs_serves(state))",
        "if (0)",
        UNTOUCHED + "test_virtual_services",
    ),
    Mutant(
        "a group's program not heeded",
        "pf_filter/classify.c",
        "group && rcu_access_pointer(group->prog)",
        "false",
        B2 + "test_a_group_with_a_program_is_dropped_for_only_if_all_are_full",
    ),
    Mutant(
        "a super-packet counted as one",
        "pf_filter/classify.c",
        "return shinfo->gso_segs ?: DIV_ROUND_UP(skb->len, shinfo->gso_size);",
        "return 1;",
        B2 + "test_a_super_packet_counts_as_the_packets_it_carries",
    ),
    Mutant(
        "observe drops",
        "pf_filter/hook.c",
        "== FILTER_MODE_OBSERVE) {",
        "== FILTER_MODE_OBSERVE + 1) {",
        B2 + "test_observe_counts_and_drops_nothing",
    ),
    Mutant(
        "a drop for a full socket called another",
        "pf_filter/act.c",
        "SKB_DROP_REASON_SOCKET_RCVBUFF",
        "SKB_DROP_REASON_CPU_BACKLOG",
        B2 + "test_a_drop_is_seen_by_reason_and_place",
    ),
    Mutant(
        "closed sockets stay in the table",
        "common/probes.c",
        "pflow_sock_forget(sk);",
        "(void)sk;",
        "vm/test_table.py::test_a_socket_is_learnt_when_it_is_bound",
    ),
    Mutant(
        "a function that is needed is done without",
        "common/probes.c",
        "if (!probe->required) {",
        "if (1) {",
        "vm/test_lifetime.py::test_a_function_that_is_needed_refuses_to_load_and_leaves_nothing",
    ),
    Mutant(
        "a function that is done without is not told of",
        "common/probes.c",
        'probe->present ? "" : probe->without',
        '""',
        "vm/test_lifetime.py::test_a_function_that_can_be_done_without_is_told_of",
    ),
    Mutant(
        "the last receiver counts, not the most important",
        "common/owner.c",
        "priority->rank >= entry->rank ||",
        "true ||",
        "vm/test_table.py::test_of_several_workers_the_most_important_counts",
    ),
    Mutant(
        "kernel sockets taken for processes'",
        "common/internal.h",
        "return sock->file ? sock->sk : NULL;",
        "return sock->sk;",
        "vm/test_table.py::test_kernel_sockets_are_nobodys",
    ),
    Mutant(
        "the table without a bound",
        "common/table.c",
        ">= READ_ONCE(pflow_knobs[PFLOW_KNOB_MAX_SOCKETS].value)",
        "== -1",
        "vm/test_table.py::test_the_table_is_bounded",
    ),
    Mutant(
        "anybody may write an open file",
        "common/knobs.c",
        "if (!may_write(knob, file))",
        "if (0)",
        "vm/test_proc.py::test_only_the_administrator_writes",
    ),
    Mutant(
        "junk after a number",
        "common/knobs.c",
        "if (strchr(text, '\\n'))",
        "if (0)",
        "vm/test_proc.py::test_a_knob_takes_what_it_should_and_nothing_else",
    ),
    Mutant(
        "an election lifts to the next rank",
        "common/policy.h",
        "(elected ? 1 : 0)",
        "(elected ? 2 : 0)",
        "unit/test_policy.py::test_an_election_lifts_above_equals_and_never_to_a_higher_rank",
    ),
    Mutant(
        "no floor",
        "pf_filter/policy.c",
        "if (allowed < floor)",
        "if (0)",
        "unit/test_policy.py::test_the_floor_is_held",
    ),
    Mutant(
        "shed from the top",
        "pf_filter/policy.h",
        "return level < cut.level ? PFLOW_ONE : cut.share;",
        "return level < cut.level ? cut.share : PFLOW_ONE;",
        "unit/test_policy.py::test_more_important_receivers_are_never_shed_more",
    ),
    Mutant(
        "no damping",
        "pf_filter/policy.c",
        "#define FALL_US\t\t4000000u",
        "#define FALL_US\t\t100000u",
        "unit/test_control.py::test_it_settles_and_does_not_oscillate",
    ),
    Mutant(
        "never lets go",
        "pf_filter/policy.c",
        "position -= min_u32(position, fall);",
        "(void)fall;",
        "unit/test_control.py::test_it_lets_go_when_the_load_ends",
    ),
    Mutant(
        "nice is not restored",
        "pf_sched/lever.c",
        "set_user_nice(task, boost->before.nice);",
        "(void)task;",
        SCHED + "test_it_ends_with_the_socket",
    ),
    Mutant(
        "another class than before is restored",
        "pf_sched/lever.c",
        ".sched_policy = SCHED_NORMAL,",
        ".sched_policy = SCHED_BATCH,",
        SCHED + "test_it_ends_with_the_socket",
    ),
    Mutant(
        "reset-on-fork stays",
        "pf_sched/lever.c",
        "boost->before.reset_on_fork ? SCHED_FLAG_RESET_ON_FORK : 0",
        "SCHED_FLAG_RESET_ON_FORK",
        SCHED + "test_it_ends_with_the_socket",
    ),
    Mutant(
        "what somebody else set is overwritten",
        "pf_sched/lever.c",
        "return policy == SCHED_NORMAL && task_nice(task) == boost->nice;",
        "return policy == SCHED_NORMAL;",
        SCHED + "test_a_renice_meanwhile_stays",
    ),
    Mutant(
        "children keep the boost",
        "pf_sched/elect.c",
        "set_user_nice(child, nice);",
        "(void)nice;",
        SCHED + "test_a_child_is_born_without_the_boost",
    ),
    Mutant(
        "the share of the raised is not held",
        "pf_sched/elect.c",
        "else if (per_cpu(budget_us, task_cpu(task)) < 0)",
        "else if (0)",
        SCHED + "test_a_flood_does_not_buy_the_cpu",
    ),
    Mutant(
        "observe raises",
        "pf_sched/elect.c",
        "if (sched_knob(SCHED_KNOB_MODE) == SCHED_MODE_OBSERVE) {",
        "if (0) {",
        SCHED + "test_observe_touches_nobody_and_counts",
    ),
    Mutant(
        "what is lent counts as rank",
        "common/priority.c",
        "if (smp_load_acquire(&pins[i].task) == task)",
        "if (0)",
        SCHED + "test_whoever_starves_is_raised_for_a_while_and_restored",
    ),
    Mutant(
        "a new program inherits the boost",
        "pf_sched/elect.c",
        "READ_ONCE(task->self_exec_id) != slot->exec_id",
        "false",
        SCHED + "test_it_ends_with_the_program",
    ),
    Mutant(
        "what is not used is saved up for ever",
        "pf_sched/policy.c",
        "if (budget > full)",
        "if (0)",
        "unit/test_sched_policy.py::test_the_budget_is_bounded_and_monotone",
    ),
    Mutant(
        "the last are raised most",
        "pf_sched/policy.c",
        "levels * (elected - place)",
        "levels * (place + 1)",
        "unit/test_sched_policy.py::test_a_boost_never_rises_with_the_place",
    ),
]
