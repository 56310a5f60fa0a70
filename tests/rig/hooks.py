# SPDX-License-Identifier: GPL-2.0-only
"""Where the modules hook into a kernel: what their sources say, and what a kernel has.

A probe is a row of a table in the sources. What it reads arguments by is the comment in front
of its handler, "NAME(struct socket *sock, ...)". A tracepoint that is found by name calls its
handler by an address, so no compiler compares the two; here it is done, by what the built
module and the kernel's image themselves tell of their types.
"""

import functools
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rig import image
from rig.guest import Guest
from rig.kernels import OPTIONAL, REPO, Kernel

DIRECTORIES = ("common", *OPTIONAL)

ROW = re.compile(r'\{ "(\w+)", \w+, PFLOW_PROBE_')
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
PROTOTYPE = re.compile(r"\b(\w+)\((struct [^()]+)\)")
BY_NAME = re.compile(r'struct pflow_trace \w+ = \{\s*"(\w+)", (\w+)(,?)')
EXPORTED = re.compile(r"\bregister_trace_(\w+)\((\w+)")

Types = tuple[str, ...]


@dataclass(frozen=True)
class Probe:
    """A function and the types of the arguments that are read; it may have more after "..."."""

    symbol: str
    types: Types


@dataclass(frozen=True)
class Trace:
    """A tracepoint and the types of its handler; some are needed only where they exist."""

    name: str
    types: Types
    needed: bool


@dataclass(frozen=True)
class Facts:
    """What a kernel has of the functions and tracepoints asked for."""

    symbols: tuple[str, ...]  # once for each function of that name
    sites: frozenset[str]  # where ftrace can call
    functions: dict[str, Types]
    traces: dict[str, Types]


def types(arguments: str, named: bool = True) -> Types:
    """Of a list of arguments, as C has it."""
    found = []
    for argument in arguments.split(","):
        tight = re.sub(r"\s*\*\s*", "*", argument.strip())
        found.append(re.sub(r"\s*\b\w+$", "", tight) if named else tight)
    return tuple(found)


def probes() -> list[Probe]:
    """Of the sources; a row without its comment is an error."""
    known: dict[str, Types] = {}
    rows: list[str] = []
    for _, text in _sources():
        rows += ROW.findall(text)
        for comment in COMMENT.findall(text):
            known |= {name: types(found) for name, found in PROTOTYPE.findall(comment)}
    return [Probe(symbol, known[symbol]) for symbol in rows]


def traces(kernel: Kernel) -> list[Trace]:
    """Of the sources, and of the modules as built for this kernel."""
    found = []
    for directory, text in _sources():
        for name, handler, without in BY_NAME.findall(text):
            found.append(Trace(name, _handler(kernel, directory, handler), bool(without)))
        for name, handler in EXPORTED.findall(text):
            found.append(Trace(name, _handler(kernel, directory, handler), True))
    return found


def _sources() -> Iterator[tuple[str, str]]:
    for directory in DIRECTORIES:
        for path in sorted((REPO / directory).rglob("*.c")):
            yield directory, path.read_text()


def _handler(kernel: Kernel, directory: str, name: str) -> Types:
    module = "pf_common" if directory == "common" else directory
    path = Path(directory, f"{module}.ko")
    prototype = _ask("pfunct", "-F", "dwarf", "-f", name, str(path), cwd=kernel.build)
    assert name in prototype, f"{path} does not tell of {name}"
    return types(prototype.partition("(")[2].partition(")")[0])


def _ask(*command: str, cwd: Path | None = None) -> str:
    """Of pahole and its like. Exit codes say nothing: some fail when they found all."""
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False).stdout


def told(kernel: Kernel) -> bool:
    """Are its types in its image?"""
    return bool(_ask("pahole", "-F", "btf", "-C", "sock", str(image.bootable(kernel))))


@functools.cache
def facts(guest: Guest, symbols: Types, names: Types) -> Facts:
    """Asked of the running kernel, and of types in the image that it was booted from."""
    any_symbol = "|".join(symbols)
    listed = guest.run(f"grep -E ' [tT] ({any_symbol})$' /proc/kallsyms", check=False).out
    sites = guest.run(
        f"grep -xE '{any_symbol}' /sys/kernel/tracing/available_filter_functions", check=False
    ).out
    booted = str(image.bootable(guest.kernel))
    prototypes = _ask("pfunct", "-F", "btf", "-P", booted)
    # One at a time, as what is not there ends it.
    points = "".join(_ask("pahole", "-F", "btf", "-C", f"btf_trace_{n}", booted) for n in names)
    return Facts(
        symbols=tuple(line.split()[2] for line in listed.splitlines()),
        sites=frozenset(sites.split()),
        functions={
            name: types(arguments)
            for name, arguments in re.findall(r"\b(\w+)\((.*)\);$", prototypes, re.MULTILINE)
            if name in symbols
        },
        traces={
            name: types(arguments, named=False)
            for name, arguments in re.findall(r"\(\*btf_trace_(\w+)\)\((.*)\);", points)
        },
    )


def unfit(probe: Probe, found: Facts) -> str:
    """What is wrong with a probe, or nothing."""
    number = found.symbols.count(probe.symbol)
    if number != 1:
        return f"{probe.symbol}: {number} functions of that name"
    if probe.symbol not in found.sites:
        return f"{probe.symbol}: no ftrace site"
    has = found.functions.get(probe.symbol, ())
    read = probe.types
    if read[-1] == "...":
        read, has = read[:-1], has[: len(read) - 1]
    return "" if read == has else f"{probe.symbol}: takes {has}, is read by {read}"


def unfit_trace(trace: Trace, found: Facts) -> str:
    """What is wrong with a tracepoint, or nothing."""
    if trace.name not in found.traces:
        return f"{trace.name}: no such tracepoint" if trace.needed else ""
    has = found.traces[trace.name]
    return "" if trace.types == has else f"{trace.name}: calls {has}, handler takes {trace.types}"
