# SPDX-License-Identifier: GPL-2.0-only
"""The table of any result."""

from __future__ import annotations

from experiments import (
    cost,
    cost_driver,
    election,
    isolation,
    mixed,
    onset,
    profile,
    real,
    receive,
    result,
    router,
    s1,
    services,
    shares,
    sweep,
    t1,
    t1b,
    trace_table,
    web,
)

TABLES = {
    "cost": cost.table,
    "cost-driver": cost_driver.table,
    "election": election.table,
    "receive": receive.table,
    "profile": profile.table,
    "B1": result.buffer_table,
    "S1": s1.table,
    "T1b": t1b.table,
    "N2": isolation.table,
    "V1": shares.table,
    "onset": onset.table,
    "trace": trace_table.table,
    "U1-drops": result.drop_table,
    **dict.fromkeys(mixed.EXPERIMENTS, mixed.table),
    **dict.fromkeys(real.EXPERIMENTS, real.table),
    **dict.fromkeys(router.EXPERIMENTS, router.table),
    **dict.fromkeys(sweep.EXPERIMENTS, sweep.table),
    **dict.fromkeys(t1.EXPERIMENTS, t1.table),
    **dict.fromkeys(services.SERVICES, web.table),
}


def table(found: result.Json) -> str:
    return TABLES.get(found["experiment"], result.table)(found)
