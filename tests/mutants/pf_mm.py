# SPDX-License-Identifier: GPL-2.0-only
"""Mutants of pf_mm."""

from mutants.mutant import Mutant

MM_BUDGET = "vm/test_mm_budget.py::"
MM_GROWTH = "vm/test_mm_growth.py::"
MM_TCP = "vm/test_mm_tcp.py::"
MM_WISHES = "vm/test_mm_wishes.py::"

MUTANTS = [
    Mutant(
        "one user has as many grants as he likes",
        "pf_mm/grant.c",
        "READ_ONCE(grants_of[user]) < GRANTS_MOST - READ_ONCE(grant_counts.number)",
        "true",
        MM_BUDGET + "test_one_user_has_so_many_buffers_that_grow_and_no_more",
    ),
    Mutant(
        "only who waited for room is remembered",
        "pf_mm/grow.c",
        "\t\tgrant_note_relieved(grant);\n",
        "",
        MM_BUDGET + "test_who_waits_for_room_is_remembered_and_forgotten",
    ),
    Mutant(
        "all buffers may be equally large",
        "pf_mm/policy.c",
        "(levels ? levels : 1)",
        "LEVELS_NICE0",
        "unit/test_mm_policy.py::test_the_limit_is_the_papers",
    ),
    Mutant(
        "buffers grow when they are full",
        "pf_mm/policy.c",
        "(u64)size * 2 / 3",
        "(u64)size",
        "unit/test_mm_policy.py::test_the_threshold_is_the_papers_within_its_bounds",
    ),
    Mutant(
        "the most important gives back first",
        "pf_mm/room.c",
        "if (to_take[take][rank] && room_take_from(rank, take, wanted))",
        "if (room_take_from(below - 1 - rank, take, wanted))",
        MM_BUDGET + "test_a_budget_that_is_lowered_is_kept_soon",
    ),
    Mutant(
        "a buffer shrinks to what is used",
        "pf_mm/policy.c",
        "(u64)used * 2;",
        "used;",
        "unit/test_mm_policy.py::test_no_oscillation",
    ),
    Mutant(
        "no budget",
        "pf_mm/grow.c",
        "to - grant->size > grant_left(grant)",
        "false",
        MM_BUDGET + "test_the_budget_is_never_exceeded",
    ),
    Mutant(
        "a closed socket is held",
        "pf_mm/attend.c",
        "READ_ONCE(grant->closing) || pflow_sock_dead(sk)",
        "false",
        "vm/test_missed.py::test_what_probes_miss_is_found_out_all_the_same",
    ),
    Mutant(
        "what the program set is restored over",
        "pf_mm/size.c",
        "size_flagged(grant->sk) && !grant->locked",
        "false",
        MM_WISHES + "test_the_very_size_that_it_has_grown_to_is_the_programs_when_it_sets_it",
    ),
    Mutant(
        "a grown size can be kept by locking it",
        "pf_mm/attend.c",
        "grant->size <= size_settable() ? GIVEN_CHANGED : GIVEN_EXEMPT",
        "GIVEN_CHANGED",
        MM_WISHES + "test_a_size_is_not_kept_by_locking_it",
    ),
    Mutant(
        "B2 does not wait",
        "pf_mm/grow.c",
        "grant_tell_growable(grant, to < most);",
        "grant_tell_growable(grant, false);",
        MM_GROWTH + "test_the_table_says_who_can_grow",
    ),
    Mutant(
        "TCP is cut below what it promised",
        "pf_mm/size.c",
        "to = clamp_t(u32, size_used_tcp(sk), to, grant->size);",
        "to = max(to, grant->own);",
        MM_TCP + "test_a_stream_is_whole_when_everything_is_stopped",
    ),
]
