# SPDX-License-Identifier: GPL-2.0-only
"""Every function and tracepoint that is hooked is what its handler takes it for."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from rig import hooks
from rig.guest import Guest
from rig.hooks import Facts, Probe, Trace
from rig.kernels import OPTIONAL

STATE = re.compile(r"^probe: (\w+) +(\w+) +missed \d+(, by ftrace)?", re.MULTILINE)


def found(guest: Guest) -> tuple[list[Probe], list[Trace], Facts]:
    if not hooks.told(guest.kernel):
        pytest.skip("this kernel does not tell of its types")
    probes, traces = hooks.probes(), hooks.traces(guest.kernel)
    symbols = tuple(dict.fromkeys(probe.symbol for probe in probes))
    names = tuple(dict.fromkeys(trace.name for trace in traces))
    return probes, traces, hooks.facts(guest, symbols, names)


@pytest.mark.timeout(900)
def test_hooks_are_what_their_handlers_take(
    guest: Guest, record_property: Callable[[str, object], None]
) -> None:
    probes, traces, facts = found(guest)
    guest.load(*OPTIONAL)
    guest.read("/proc/packetflow/sockets")  # receive calls are looked at from then on
    states = {
        symbol: at[:2] for symbol, *at in STATE.findall(guest.read("/proc/packetflow/status"))
    }
    assert {probe.symbol for probe in probes} >= set(states)
    # One that a tracepoint of this kernel stands in for is not in use, and need not be there.
    judged = [p for p in probes if p.symbol in states or p.symbol in facts.symbols]
    assert [why for probe in judged if (why := hooks.unfit(probe, facts))] == []
    assert [why for trace in traces if (why := hooks.unfit_trace(trace, facts))] == []
    assert {symbol: state for symbol, (state, _) in states.items() if state != "armed"} == {}
    by_ftrace = sum(bool(how) for _, how in states.values())
    attached = {trace.name for trace in traces} & set(facts.traces)
    summary = f"{len(attached)} tracepoints, {len(states) - by_ftrace} kprobes"
    record_property("hooks", summary + (f", {by_ftrace} calls by ftrace" if by_ftrace else ""))


@pytest.mark.timeout(900)
def test_a_hook_that_does_not_fit_is_found(guest: Guest) -> None:
    """What the test above would say of kernels that changed."""
    probes, traces, facts = found(guest)
    for probe in probes:
        if probe.symbol not in facts.symbols:
            continue
        assert not hooks.unfit(probe, facts)
        other = {probe.symbol: ("struct other*", *facts.functions[probe.symbol][1:])}
        for changed in (
            replace(facts, symbols=()),
            replace(facts, symbols=facts.symbols * 2),
            replace(facts, sites=facts.sites - {probe.symbol}),
            replace(facts, functions=facts.functions | other),
            replace(facts, functions={}),
        ):
            assert probe.symbol in hooks.unfit(probe, changed)
    for trace in traces:
        assert not hooks.unfit_trace(trace, facts)
        assert bool(hooks.unfit_trace(trace, replace(facts, traces={}))) == trace.needed
        if trace.name in facts.traces:
            more = {trace.name: (*facts.traces[trace.name], "int")}
            assert trace.name in hooks.unfit_trace(trace, replace(facts, traces=more))
