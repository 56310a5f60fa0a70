# SPDX-License-Identifier: GPL-2.0-only
"""Ways to break the modules on purpose, and the test that must notice each.

A test that cannot fail is a defect. `tests/mutate` builds every mutant and
expects the named test to fail; the text that is replaced must occur exactly
once, so that a mutant that no longer applies is noticed too.
"""

from mutants import classify, common, containers, pf_filter, pf_flow, pf_mm, pf_sched, trial
from mutants.mutant import Mutant

__all__ = ["MUTANTS", "Mutant"]

MUTANTS = [
    *common.MUTANTS,
    *trial.MUTANTS,
    *pf_filter.MUTANTS,
    *classify.MUTANTS,
    *containers.MUTANTS,
    *pf_sched.MUTANTS,
    *pf_mm.MUTANTS,
    *pf_flow.MUTANTS,
]
