# SPDX-License-Identifier: GPL-2.0-only
"""Mutants of pf_filter/classify.c: which packets are one process's, and whose."""

from mutants.mutant import Mutant

B2_ACCOUNT = "vm/test_b2_account.py::"
B2_ONE_OF_SEVERAL = "vm/test_b2_one_of_several.py::"
BRIDGE = "vm/test_bridge.py::"
UNTOUCHED_FOR_OTHERS = "vm/test_untouched_for_others.py::"
UNTOUCHED_ODD = "vm/test_untouched_odd.py::"

MUTANTS = [
    Mutant(
        "IPv4 destination not checked to be local",
        "pf_filter/classify.c",
        "if (!address_is_local(packet->net, skb->dev, iph->daddr))",
        "if (0)",
        UNTOUCHED_FOR_OTHERS + "test_forwarded_packets",
    ),
    Mutant(
        "IPv6 destination not checked to be local",
        "pf_filter/classify.c",
        "if (!ipv6_chk_addr(packet->net, &ip6h->daddr, skb->dev, 0))",
        "if (0)",
        UNTOUCHED_FOR_OTHERS + "test_forwarded_packets",
    ),
    Mutant(
        "fragments taken for datagrams",
        "pf_filter/classify.c",
        " || ip_is_fragment(iph)",
        "",
        UNTOUCHED_ODD + "test_fragments",
    ),
    Mutant(
        "IP options taken for a UDP header",
        "pf_filter/classify.c",
        "iph->ihl != sizeof(*iph) / 4 || ",
        "",
        UNTOUCHED_ODD + "test_ip_options",
    ),
    Mutant(
        "extension headers taken for a UDP header",
        "pf_filter/classify.c",
        "if (ip6h->nexthdr != IPPROTO_UDP)",
        "if (0)",
        UNTOUCHED_ODD + "test_extension_headers",
    ),
    Mutant(
        "what is sent to all taken for one receiver's",
        "pf_filter/classify.c",
        "if (skb->pkt_type != PACKET_HOST)",
        "if (0)",
        UNTOUCHED_FOR_OTHERS + "test_several_receivers",
    ),
    Mutant(
        "lengths not checked",
        "pf_filter/classify.c",
        "if (length < sizeof(*uh) || length > skb->len - offset)",
        "if (0)",
        UNTOUCHED_ODD + "test_malformed_packets_are_left_to_stock",
    ),
    Mutant(
        "tunnels taken for processes",
        "pf_filter/classify.c",
        "if (READ_ONCE(udp_sk(packet->sk)->encap_type) ||"
        " READ_ONCE(udp_sk(packet->sk)->encap_rcv))",
        "if (0)",
        UNTOUCHED_FOR_OTHERS + "test_a_socket_with_a_tunnel_protocol_of_its_own_is_the_kernels",
    ),
    Mutant(
        "bridged frames looked up",
        "pf_filter/classify.c",
        " || packet_may_be_bridged(skb)",
        "",
        UNTOUCHED_FOR_OTHERS + "test_bridged_frames",
    ),
    Mutant(
        "what a bridge hands to IP not judged",
        "pf_filter/classify.c",
        "packet_may_be_bridged(skb)",
        "nf_bridge_info_exists(skb)",
        BRIDGE + "test_what_is_for_the_host_is_judged",
    ),
    Mutant(
        "a bridge's port taken for the bridge",
        "common/socket.h",
        "unlikely(nf_bridge_info_exists(skb)) ? skb->dev->ifindex : skb->skb_iif",
        "skb->skb_iif",
        BRIDGE + "test_it_comes_by_the_bridge_and_not_by_its_port",
    ),
    Mutant(
        "a bridge in a VRF judged by its first pass alone",
        "pf_filter/classify.c",
        "bridge && bridge->in_prerouting &&\n\t       (",
        "bridge && (!bridge->in_prerouting ||\n\t\t",
        BRIDGE + "test_a_bridge_in_a_vrf",
    ),
    Mutant(
        "a VRF's packets looked up in the default VRF",
        "pf_filter/classify.c",
        " ||\n\t    netif_is_l3_slave(state->in)",
        "",
        UNTOUCHED_FOR_OTHERS + "test_a_receiver_in_a_vrf",
    ),
    Mutant(
        "proxied packets looked up anew",
        "pf_filter/classify.c",
        "skb->sk || ",
        "",
        UNTOUCHED_FOR_OTHERS + "test_a_transparent_proxy_keeps_its_packets",
    ),
    Mutant(
        "packets of virtual services taken for the host's",
        "pf_filter/classify.c",
        "if (ipvs_serves(state))",
        "if (0)",
        UNTOUCHED_FOR_OTHERS + "test_virtual_services",
    ),
    Mutant(
        "a group's program not heeded",
        "pf_filter/classify.c",
        "(packet->unsourced || rcu_access_pointer(group->prog))",
        "packet->unsourced",
        B2_ONE_OF_SEVERAL + "test_a_group_with_a_program_is_dropped_for_only_if_all_are_full",
    ),
    Mutant(
        "one of a group taken for all, whatever source it is given",
        "pf_filter/classify.c",
        "(packet->unsourced || rcu_access_pointer(group->prog))",
        "rcu_access_pointer(group->prog)",
        "vm/test_containers_rules.py"
        "::test_a_new_connection_is_not_judged_by_one_of_several_that_share_the_port",
    ),
    Mutant(
        "a super-packet counted as one",
        "pf_filter/classify.c",
        "return shinfo->gso_segs ?: DIV_ROUND_UP(size, shinfo->gso_size);",
        "return 1;",
        B2_ACCOUNT + "test_a_super_packet_counts_as_the_packets_it_carries",
    ),
    Mutant(
        "judged in the host and in the container",
        "pf_filter/classify.c",
        "if (met == MET_AGAIN)",
        "if (false)",
        "vm/test_containers.py::test_who_is_not_full_is_let_through_and_judged_once",
    ),
    Mutant(
        "all members of a group are looked at for each packet",
        "pf_filter/classify.c",
        "looks = min(n, GROUP_LOOKS)",
        "looks = n",
        B2_ONE_OF_SEVERAL + "test_a_packet_costs_as_much_however_large_its_group_is",
    ),
    Mutant(
        "packets from a queue of user space are judged",
        "pf_filter/classify.c",
        "if (!softirq_count() || skb->sk",
        "if (skb->sk",
        "vm/test_untouched_neighbours.py::test_a_queue_of_user_space",
    ),
]
