# SPDX-License-Identifier: GPL-2.0-only
"""Mutants of common/, but for its trials."""

from mutants.mutant import Mutant

B2_ACCOUNT = "vm/test_b2_account.py::"
OVERLOAD = "vm/test_overload.py::"
SCHED_RAISED = "vm/test_sched_raised.py::"

MUTANTS = [
    Mutant(
        "B2 drops what would still fit",
        "common/compat/compat.h",
        "return rmem > rcvbuf;",
        "return rmem > rcvbuf / 2;",
        B2_ACCOUNT + "test_the_same_packets_are_received_as_on_stock",
        kernel="6.1",
    ),
    Mutant(
        "B2 comparison flipped",
        "common/compat/compat.h",
        "return rmem > rcvbuf;",
        "return rmem <= rcvbuf;",
        B2_ACCOUNT + "test_every_lost_packet_is_accounted_for",
        kernel="6.1",
    ),
    Mutant(
        "B2 never drops",
        "common/compat/compat.h",
        "return rmem > rcvbuf;",
        "return false;",
        B2_ACCOUNT + "test_every_lost_packet_is_accounted_for",
        kernel="6.1",
    ),
    Mutant(
        "B2 by the rule of older kernels",
        "common/compat/compat.h",
        "return rmem && rmem + truesize > rcvbuf;",
        "return rmem > rcvbuf;",
        B2_ACCOUNT + "test_every_lost_packet_is_accounted_for",
        kernel="7.2",
    ),
    Mutant(
        "remote ports where there are none",
        "common/proc/ports.c",
        "if (from && str_has_prefix(item, FROM))",
        "if (str_has_prefix(item, FROM))",
        "vm/test_mm_knobs.py::test_a_knob_takes_what_it_should_and_nothing_else",
    ),
    Mutant(
        "debts die with the table",
        "common/modules.c",
        "pflow_scan();\n\tpflow_table_clear();",
        "pflow_table_clear();",
        OVERLOAD + "test_every_drop_is_the_sockets_when_the_suite_is",
    ),
    Mutant(
        "closed sockets stay in the table",
        "common/probes/probes.c",
        "pflow_sock_forget(sk);",
        "(void)sk;",
        "vm/test_table.py::test_a_socket_is_learnt_when_it_is_bound",
    ),
    Mutant(
        "a scan finds nobody",
        "common/sockets/scan.c",
        "pflow_owner_holds(sk, walk->task, scan_number);",
        "(void)sk;",
        "vm/test_table.py::test_sockets_that_were_there_before",
    ),
    Mutant(
        "who receives is not learnt",
        "common/probes/probes.c",
        "pflow_owner_receives(sk);",
        "(void)sk;",
        "vm/test_table.py::test_a_socket_is_learnt_when_it_receives",
    ),
    Mutant(
        "a burst taken for a queue that stands",
        "common/load/signals.c",
        "now - load->chain_start > STANDING_NS",
        "true",
        "vm/test_quiet.py::test_a_burst_is_no_overload",
    ),
    Mutant(
        "a function that is needed is done without",
        "common/probes/probes.c",
        "if (!probe->required) {",
        "if (1) {",
        "vm/test_lifetime.py::test_a_function_that_is_needed_refuses_to_load_and_leaves_nothing",
    ),
    Mutant(
        "a function that is done without is not told of",
        "common/probes/probes.c",
        'probe->present ? "" : probe->without',
        '""',
        "vm/test_lifetime.py::test_a_function_that_can_be_done_without_is_told_of",
    ),
    Mutant(
        "the last receiver counts, not the most important",
        "common/sockets/owner.c",
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
        "common/sockets/table.c",
        ">= READ_ONCE(pflow_knobs[PFLOW_KNOB_MAX_SOCKETS].value)",
        "== -1",
        "vm/test_table.py::test_the_table_is_bounded",
    ),
    Mutant(
        "anybody may write an open file",
        "common/proc/knobs.c",
        "if (!knob_may_write(knob, file))",
        "if (0)",
        "vm/test_proc.py::test_only_the_administrator_writes",
    ),
    Mutant(
        "junk after a number",
        "common/proc/knobs.c",
        "|| strchr(text, '\\n'))",
        ")",
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
        "what is lent counts as rank",
        "common/sockets/priority.c",
        "if (smp_load_acquire(&pins[i].task) == task)",
        "if (0)",
        SCHED_RAISED + "test_whoever_starves_is_raised_for_a_while_and_restored",
    ),
    Mutant(
        "stamps are believed again when half of all jiffies have passed",
        "common/stamp.h",
        "return (u32)jiffies - at + PFLOW_AHEAD < how_long + PFLOW_AHEAD;",
        "return time_before32((u32)jiffies, at + how_long);",
        "unit/test_stamp.py::test_what_was_is_not_believed_again",
    ),
]
