# SPDX-License-Identifier: GPL-2.0-only
"""Mutants of pf_flow."""

from mutants.mutant import Mutant

FLOW = "vm/test_flow.py::"
SERVER = "vm/test_flow_server.py::"
LIFETIME = "vm/test_flow_lifetime.py::"
TABLE = "vm/test_flow_table.py::"
DRIVER = "vm/test_flow_driver.py::"
POLICY = "unit/test_flow_policy.py::"

MUTANTS = [
    Mutant(
        "every packet that waits has a timer of its own",
        "pf_flow/flow.c",
        "if (!wait || now <= how->since)",
        "if (true)",
        FLOW + "test_what_has_waited_long_is_continued_in_batches",
    ),
    Mutant(
        "the driver drops frames of other flows, too",
        "pf_flow/driver.c",
        "	key->dport = ports->destination;",
        "	key->dport = htons(4000);",
        DRIVER + "test_another_flow_is_not_dropped_in_the_driver_for_one_whose_queue_is_full",
    ),
    Mutant(
        "who is dropped in the driver is not counted",
        "pf_flow/driver.c",
        "	atomic64_inc(&flow->early);\n",
        "",
        DRIVER + "test_what_a_full_queue_drops_is_dropped_in_the_driver",
    ),
    Mutant(
        "a batch waits until tokens are lost",
        "pf_flow/policy.c",
        "if (late > (full - wait) / 2)",
        "if (0)",
        POLICY + "test_batches_cost_neither_tokens_nor_a_time_that_matters",
    ),
    Mutant(
        "of a tunnel's super-packet the outer headers are counted",
        "pf_flow/packet.c",
        "if (skb->encapsulation)",
        "if (0)",
        FLOW + "test_what_is_merged_inside_a_tunnel_counts_with_all_of_its_headers",
    ),
    Mutant(
        "packets are dropped for others that rules mark apart",
        "pf_flow/recall.c",
        "!table->marks && ",
        "",
        FLOW + "test_packets_that_rules_mark_apart_are_not_dropped_for_each_other",
    ),
    Mutant(
        "a packet overtakes those of its flow that wait",
        "pf_flow/admit.c",
        "passes = flow->state == FLOW_IDLE && !flow_must_split",
        "passes = !flow_must_split",
        LIFETIME + "test_order_is_kept_where_packets_begin_and_cease_to_wait",
    ),
    Mutant(
        "a flow that goes lets packets by those that wait",
        "pf_flow/admit.c",
        "asks = can ? flow->state == FLOW_IDLE : flow->door != FLOW_SHUT && !lost;",
        "asks = !can || flow->state == FLOW_IDLE || flow->door == FLOW_SHUT;",
        LIFETIME + "test_nothing_is_overtaken_when_a_flow_goes_under_a_flood",
    ),
    Mutant(
        "packets wait for a device that is down",
        "pf_flow/admit.c",
        "flow_skb_opens(skb, 2) ||\n\t\t     !netif_running(skb->dev)))",
        "flow_skb_opens(skb, 2)))",
        LIFETIME + "test_a_device_that_is_down_has_nothing_wait",
    ),
    Mutant(
        "packets wait on for a device that goes",
        "pf_flow/nets.c",
        "\t\tflow_forget_device(flow, dev);\n",
        "\t\t;\n",
        LIFETIME + "test_a_device_that_is_down_has_nothing_wait",
    ),
    Mutant(
        "a queue has no end",
        "pf_flow/admit.c",
        "\treturn flow->queue.qlen >= flow->queue_packets ||",
        "\treturn false &&",
        FLOW + "test_what_has_tokens_passes_and_what_has_none_waits",
    ),
    Mutant(
        "one flow may have all the memory",
        "pf_flow/serve.c",
        "if (left < (long)(held + skb->truesize)) {",
        "if (left < 0) {",
        TABLE + "test_who_fills_the_memory_leaves_some_to_others",
    ),
    Mutant(
        "real-time receivers wait, too",
        "pf_flow/admit.c",
        "if (unlikely(rank > PFLOW_RANK_RT_BASE) && !lost) {",
        "if (false) {",
        FLOW + "test_what_is_for_a_real_time_receiver_never_waits",
    ),
    Mutant(
        "nothing is dropped ahead of connection tracking",
        "pf_flow/packet.c",
        "\tif (unlikely(shown && full))\n",
        "\tif (false && shown && full)\n",
        FLOW + "test_what_exceeds_a_full_queue_is_dropped_first_and_the_rate_is_reached",
    ),
    Mutant(
        "the least exact flow has a packet",
        "pf_flow/table.c",
        "one->bits > other->bits;",
        "one->bits < other->bits;",
        TABLE + "test_the_most_exact_flow_has_the_packet",
    ),
    Mutant(
        "a flow that stays begins anew",
        "pf_flow/write.c",
        "if (change->replace && flow && match_same",
        "if (false && change->replace && flow && match_same",
        TABLE + "test_a_flow_that_stays_keeps_its_counters",
    ),
    Mutant(
        "a packet goes a moment before it has its tokens",
        "pf_flow/policy.h",
        "need - bucket->tokens + bucket->rate - 1,",
        "need - bucket->tokens,",
        POLICY + "test_it_waits_just_as_long_as_its_tokens_need",
    ),
    Mutant(
        "all flows have the same share",
        "pf_flow/eevdf.c",
        "return div_u64((u64)length << PFLOW_VIRTUAL_SHIFT, entity->weight);",
        "return div_u64((u64)length << PFLOW_VIRTUAL_SHIFT, 1);",
        POLICY + "test_shares_are_by_weight_where_both_sleep_now_and_then",
    ),
    Mutant(
        "by rank the least important is next",
        "pf_flow/byrank.c",
        "(u64)(U8_MAX - entity->rank) << TURN_BITS",
        "(u64)entity->rank << TURN_BITS",
        POLICY + "test_by_rank_the_most_important_is_next_and_equals_take_turns",
    ),
    Mutant(
        "the server knows no ranks",
        "pf_flow/receiver.c",
        "receiver.rank = FLOW_RANK_OF(READ_ONCE(entry->rank));",
        "receiver.rank = 0;",
        FLOW + "test_by_rank_the_more_important_receiver_has_its_packets_first",
    ),
    Mutant(
        "super-packets wait whole",
        "pf_flow/admit.c",
        "if (parts && flow_may_split(flow, bytes, packets) &&",
        "if (false && parts && flow_may_split(flow, bytes, packets) &&",
        FLOW + "test_a_super_packet_goes_packet_by_packet",
    ),
    Mutant(
        "the packets of a super-packet lose their Ethernet header",
        "pf_flow/parts.c",
        "return ETH_HLEN;",
        "return 0;",
        FLOW + "test_a_super_packet_goes_packet_by_packet",
    ),
    Mutant(
        "control groups are not nested",
        "pf_flow/receiver.c",
        "cgroup; cgroup = cgroup_parent(cgroup))",
        "cgroup; cgroup = NULL)",
        TABLE + "test_flows_by_the_control_group_of_the_receiver",
    ),
    Mutant(
        "a thread that is asked for serves nobody",
        "pf_flow/serve.c",
        "err = dev_set_threaded(server.device, threaded);",
        "err = 0;",
        SERVER + "test_a_thread_has_the_priority_that_it_is_given",
    ),
    Mutant(
        "a thread that was asked for while the suite was off is forgotten",
        "pf_flow/serve.c",
        "err = dev_set_threaded(server.device, server.threaded);",
        "err = 0;",
        SERVER + "test_what_is_asked_for_while_the_suite_is_off_counts_when_it_is_on",
    ),
]
