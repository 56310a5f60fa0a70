# SPDX-License-Identifier: GPL-2.0-only
"""Mutants of pf_sched."""

from mutants.mutant import Mutant

SCHED_BOUNDS = "vm/test_sched_bounds.py::"
SCHED_CHANGES = "vm/test_sched_changes.py::"
SCHED_CHILDREN = "vm/test_sched_children.py::"
SCHED_ENDS = "vm/test_sched_ends.py::"
SCHED_WHOM = "vm/test_sched_whom.py::"

MUTANTS = [
    Mutant(
        "sockets that nobody reads bar others for as long as there are new ones",
        "pf_sched/elect.c",
        "if (here->user == user && pflow_within(here->begun, UNSERVED_AGAIN)) {",
        "if (!here->begun && here->user == user) {",
        "vm/test_sched_users.py::test_sockets_that_nobody_reads_bar_others_for_a_second_in_ten",
    ),
    Mutant(
        "what is lent on by a lock is free",
        "pf_sched/share.c",
        "lent_us = lend_take(slot);",
        "lend_take(slot);",
        "vm/test_sched_charged.py::test_what_is_lent_on_by_a_lock_is_charged",
    ),
    Mutant(
        "nice is not restored",
        "pf_sched/lever.c",
        "set_user_nice(task, boost->before.nice);",
        "(void)task;",
        SCHED_ENDS + "test_it_ends_with_the_socket",
    ),
    Mutant(
        "another class than before is restored",
        "pf_sched/lever.c",
        ".sched_policy = SCHED_NORMAL,",
        ".sched_policy = SCHED_BATCH,",
        SCHED_ENDS + "test_it_ends_with_the_socket",
    ),
    Mutant(
        "reset-on-fork stays",
        "pf_sched/lever.c",
        "boost->before.reset_on_fork ? SCHED_FLAG_RESET_ON_FORK : 0",
        "SCHED_FLAG_RESET_ON_FORK",
        SCHED_ENDS + "test_it_ends_with_the_socket",
    ),
    Mutant(
        "what somebody else set is overwritten",
        "pf_sched/lever.c",
        "return policy == SCHED_NORMAL && task_nice(task) == boost->nice;",
        "return policy == SCHED_NORMAL;",
        SCHED_CHANGES + "test_a_renice_meanwhile_stays",
    ),
    Mutant(
        "a boost lasts for as long as anybody sends",
        "pf_sched/boost.c",
        "} else if (took_ns) {",
        "} else {",
        SCHED_ENDS + "test_a_socket_that_nobody_reads_keeps_no_boost",
    ),
    Mutant(
        "who may fall asleep is left with a reservation",
        "pf_sched/lever.c",
        "debt ? boost->runtime_ns : RUNTIME_LEAST_NS",
        "boost->runtime_ns",
        SCHED_ENDS + "test_reservations_are_given_back_by_who_may_fall_asleep_meanwhile",
    ),
    Mutant(
        "children keep the boost",
        "pf_sched/fork.c",
        "set_user_nice(child, reset && nice < 0 ? 0 : nice);",
        "(void)nice;",
        SCHED_CHILDREN + "test_a_child_is_born_without_the_boost",
    ),
    Mutant(
        "the share of the raised is not held",
        "pf_sched/boost.c",
        "else if (slot_budget_spent(slot, cpu) || slot_lent_budget_spent(slot))",
        "else if (0)",
        SCHED_BOUNDS + "test_a_flood_does_not_buy_the_cpu",
    ),
    Mutant(
        "the share of the raised is one of all time",
        "pf_sched/share.c",
        "if (stock->idle < NEVER_IDLE)",
        "if (0)",
        "vm/test_sched_softirqs.py::test_who_computes_keeps_running_beside_those_who_are_raised",
    ),
    Mutant(
        "who receives is not looked at while somebody is raised",
        "pf_sched/boost.c",
        "if (raised)",
        "if (0)",
        SCHED_WHOM + "test_who_begins_to_receive_beside_the_raised_counts_at_once",
    ),
    # No mutant spends the half of a budget or purse that is kept for the more important (share.c).
    # While they are raised, or ask, who is outranked is not raised at all (elect.c). So the half
    # shows at the beginning of their boost alone, which no test has told from chance.
    Mutant(
        "a ghost is charged to all",
        "pf_sched/share.c",
        "bool raised = slot->state == SLOT_RAISED || slot->state == SLOT_OVER;",
        "bool raised = true;",
        SCHED_BOUNDS + "test_who_was_raised_once_spends_nothing_of_the_share",
    ),
    Mutant(
        "observe raises",
        "pf_sched/elect.c",
        "if (sched_knob(SCHED_KNOB_MODE) == SCHED_MODE_OBSERVE) {",
        "if (0) {",
        SCHED_WHOM + "test_observe_touches_nobody_and_counts",
    ),
    Mutant(
        "whoever is raised in vain stays raised",
        "pf_sched/boost.c",
        "else if (slot->asking)",
        "else if (0)",
        "vm/test_sched_trial.py::test_a_boost_that_lowers_no_loss_ends_and_backs_off",
    ),
    Mutant(
        "whoever lost no less without its boost is raised again at once",
        "pf_sched/trial.c",
        "if (!slot->trial.reach)",
        "if (0)",
        "vm/test_sched_trial.py::test_a_boost_that_lowers_no_loss_ends_and_backs_off",
    ),
    Mutant(
        "whatever is left of loss makes a boost vain",
        "pf_sched/trial.c",
        "tick.harm = full ? slot_harm(slot) : 0;",
        "tick.harm = full ? PFLOW_ONE : 0;",
        "vm/test_sched_trial.py::test_a_boost_that_lowers_loss_stays_though_some_is_left",
    ),
    Mutant(
        "a new program inherits the boost",
        "pf_sched/boost.c",
        "READ_ONCE(task->self_exec_id) != slot->exec_id",
        "false",
        SCHED_ENDS + "test_it_ends_with_the_program",
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
    Mutant(
        "who waits longer lacks no more",
        "pf_sched/policy.c",
        "harm *= PFLOW_ONE + 4 *",
        "harm *= PFLOW_ONE + 0 *",
        "unit/test_service.py::test_an_eighth_is_an_eighth",
    ),
    Mutant(
        "who does not run lacks the CPU",
        "pf_sched/policy.c",
        "if (service->share <= IDLE)",
        "if (0)",
        "unit/test_service.py::test_who_stops_running_waits_for_something_else",
    ),
    Mutant(
        "how much a receiver lacks is taken for a share",
        "common/policy/trial.c",
        "return !tick->unbounded &&",
        "return",
        "unit/test_service.py::test_the_trial_tells_by_it_whether_a_boost_helps",
    ),
    Mutant(
        "who is raised is told to anybody",
        "pf_sched/status.c",
        "if (!shown || !named)",
        "if (!shown)",
        "vm/test_sched_raised.py::test_who_is_raised_is_told_to_administrators_only",
    ),
]
