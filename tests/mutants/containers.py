# SPDX-License-Identifier: GPL-2.0-only
"""Mutants of pf_filter: receivers in containers."""

from mutants.mutant import Mutant

MOVED = "vm/test_containers.py::test_who_has_moved_gets_every_packet"
STRANGERS = "vm/test_containers_strangers.py::"

MUTANTS = [
    Mutant(
        "trails outlive a change of routes",
        "pf_filter/follow.c",
        "if (trail->routes != routes) {",
        "if (false) {",
        MOVED,
    ),
    Mutant(
        "trails outlive a neighbour's move",
        "pf_filter/moves.c",
        "	filter_trails_moved(dev_net(neighbour->dev), &local, hardware);\n",
        "",
        MOVED,
    ),
    Mutant(
        "trails outlive a move to another port",
        "pf_filter/moves.c",
        "		filter_trails_moved(dev_net(fdb->info.dev), NULL, fdb->addr);",
        "		return NOTIFY_OK;",
        MOVED,
    ),
    Mutant(
        "sources arrive as they are where the host first sees them",
        "pf_filter/follow.c",
        "packet->unsourced = !tracked_keeps_source(skb);",
        "packet->unsourced = !skb;",
        "vm/test_containers_rules.py"
        "::test_whose_source_the_host_translates_gets_to_who_waits_for_that_source",
    ),
    Mutant(
        "a trail leads to whoever sends himself the same",
        "pf_filter/meet.c",
        "if (packet->loopback)",
        "if (0)",
        STRANGERS + "test_who_sends_himself_the_same_takes_nothing_over",
    ),
    Mutant(
        "a trail leads to whom nobody has sent it",
        "pf_filter/meet.c",
        "return packet->net->user_ns == trail->outer->user_ns;",
        "return true;",
        STRANGERS + "test_who_sends_himself_the_same_takes_nothing_over",
    ),
    Mutant(
        "a trail leads to some port of a bridge",
        "pf_filter/meet.c",
        "if (!netif_is_bridge_port(peer))",
        "if (true)",
        STRANGERS + "test_who_gets_what_a_bridge_sends_to_all_takes_nothing_over",
    ),
    Mutant(
        "what a bridge hands on is judged by the host, too",
        "pf_filter/follow.c",
        "return !way || way == skb->dev->ifindex;",
        "return false;",
        "vm/test_bridge.py::test_what_comes_from_the_bridge_and_goes_back_to_it_is_judged_once",
    ),
    Mutant(
        "what IP routes back to the bridge is judged nowhere",
        "pf_filter/follow.c",
        "if (packet->v4 ? bridge->ipv4_daddr == ip_hdr(skb)->daddr :",
        "if (packet->v4 ? false :",
        "vm/test_bridge.py::test_what_comes_from_the_bridge_and_goes_back_to_it_is_judged_once",
    ),
    Mutant(
        "a neighbour's packets taken for the host's",
        "pf_filter/meet.c",
        "ether_addr_equal(trail->sender, eth_hdr(skb)->h_source)",
        "true",
        STRANGERS + "test_what_does_not_come_by_the_host_is_judged_in_the_container",
    ),
    Mutant(
        "what comes by another device taken for the host's",
        "pf_filter/meet.c",
        "if (trail->iif != packet->iif || trail->ethernet != packet_has_ethernet(skb))\n"
        "\t\treturn false;\n\treturn !trail->ethernet ||",
        "return !packet_has_ethernet(skb) || packet->loopback ||",
        STRANGERS + "test_what_does_not_come_by_the_host_is_judged_in_the_container",
    ),
    Mutant(
        "what a stranger sees takes every lock",
        "pf_filter/trail.c",
        "if (!trail_may_be_moved(trail, net, local, hardware))",
        "if (0)",
        STRANGERS + "test_what_others_see_costs_next_to_nothing",
    ),
    Mutant(
        "who moves is looked for in the wrong namespace",
        "pf_filter/trail.c",
        "return data_race(trail->outer == net &&",
        "return data_race(trail->outer != net &&",
        MOVED,
    ),
]
