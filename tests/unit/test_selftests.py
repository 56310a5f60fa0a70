# SPDX-License-Identifier: GPL-2.0-only
"""What the runner of the kernel's own tests makes of what they say."""

from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
from rig.kernels import Kernel
from selftests.arm import Outcome, share
from selftests.main import main
from selftests.report import Pair, line, report
from selftests.store import Store
from selftests.tree import Program, Tree

KERNEL = Kernel("6.12", "6.12.118+deb13-amd64", Path(), Path())


def pair(without: str, loaded: str | None, heeds_taint: bool = False) -> Pair:
    return Pair("net/one.sh", Outcome(without), Outcome(loaded) if loaded else None, heeds_taint)


@pytest.mark.parametrize("loaded", ["fail", "skip", "late", "died"])
def test_what_passes_without_only_is_named(loaded: str) -> None:
    assert pair("pass", loaded).spoiled
    assert "passes without the modules only" in report("6.12", [pair("pass", loaded)])
    assert "<--" in line(pair("pass", loaded))
    for without in ("fail", "skip", "late", "died", "absent"):
        assert not pair(without, loaded).spoiled
        assert not pair(without, None).spoiled
    assert not pair("pass", "pass").spoiled
    assert "modules only" not in report("6.12", [pair("pass", "pass")])


def test_who_skips_on_a_tainted_kernel_is_named_and_no_failure() -> None:
    assert not pair("pass", "skip", heeds_taint=True).spoiled
    assert pair("pass", "fail", heeds_taint=True).spoiled
    text = report("6.12", [pair("pass", "skip", heeds_taint=True)])
    assert "tainted:\n  net/one.sh\n" in text


def test_a_complaint_with_the_modules_only_is_a_failure() -> None:
    said = ["WARNING: at somewhere"]
    assert Pair("one", Outcome("pass"), Outcome("pass", complaints=said)).spoiled
    assert not Pair(
        "one", Outcome("pass", complaints=said), Outcome("pass", complaints=said)
    ).spoiled


def test_rates_and_skipped_checks_are_told() -> None:
    before = "udp tx:     45 MB/s      765 calls/s\nudp tx: 47 MB/s 765 calls/s\n"
    after = "udp tx:     20 MB/s      764 calls/s\nSKIP: kernel was tainted before\n"
    one = Pair("one", Outcome("pass", log=before), Outcome("pass", log=after))
    assert one.rates() == [("MB/s", 46, 20), ("calls/s", 765, 764)]
    assert one.skips_more == ["SKIP: kernel was tainted before"]
    text = report("6.12", [one])
    assert "one: 46 and 20 MB/s !\n" in text
    assert "one: 765 and 764 calls/s\n" in text


def test_what_was_found_is_kept_while_it_holds(tmp_path: Path) -> None:
    test = Program("net/netfilter", "one.sh")
    Store(tmp_path, ["6.12", 120.0]).put(test, Outcome("pass", 2.0, log="all is well"))
    known = Store(tmp_path, ["6.12", 120.0])
    assert known.get(test) == Outcome("pass", 2.0, log="all is well")
    assert known.get(Program("net", "one.sh")) is None
    assert Store(tmp_path, ["6.12", 60.0]).get(test) is None
    known.forget(test)
    assert known.get(test) is None


def test_tests_are_found_by_a_part_of_their_name(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match=r"tools/kernel-tests 6\.12"):
        Tree(KERNEL, tmp_path)
    top = tmp_path / "6.12"
    netfilter = top / "tools/testing/selftests/net/netfilter"
    netfilter.mkdir(parents=True)
    (top / "list").write_text("net:one\nnet/netfilter:one.sh\nnet/netfilter:two.sh\n")
    (top / "key").write_text("key\n")
    (netfilter / "one.sh").write_text("read t < /proc/sys/kernel/tainted\n")
    tree = Tree(KERNEL, tmp_path)
    assert [str(test) for test in tree.tests(["netf"])] == [
        "net/netfilter/one.sh",
        "net/netfilter/two.sh",
    ]
    one, first, second = tree.tests([])
    assert not tree.built(one)
    assert tree.built(first) and tree.heeds_taint(first)
    assert not tree.built(second)


def test_the_share_of_the_time_under_pressure_is_that_of_the_worse_processor() -> None:
    assert share([(10, 10), (10, 0)], [(20, 20), (20, 5)]) == 0.5
    assert share([], []) == 0.0


class Scripted:
    """An arm whose tests end as told: by arm and name, one after another."""

    ends: ClassVar[dict[tuple[bool, str], list[str]]] = {}
    ran: ClassVar[list[tuple[bool, str]]] = []

    def __init__(self, kernel: Kernel, tree: Tree, loaded: bool, seconds: float) -> None:
        self._loaded = loaded

    def __enter__(self) -> "Scripted":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, test: Program) -> Outcome:
        self.ran.append((self._loaded, test.name))
        ends = self.ends[self._loaded, test.name]
        return Outcome(ends.pop(0) if len(ends) > 1 else ends[0])


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    names = ("good", "bad", "unlucky", "spoiled")
    top = tmp_path / "trees" / "6.12"
    (top / "tools/testing/selftests/net").mkdir(parents=True)
    (top / "list").write_text("".join(f"net:{name}\n" for name in names))
    (top / "key").write_text("key\n")
    monkeypatch.setattr("selftests.main.Tree", partial(Tree, top=top.parent))
    monkeypatch.setattr("selftests.main.Arm", Scripted)
    monkeypatch.setattr("selftests.main.DIRECTORY", tmp_path / "kept")
    monkeypatch.setattr("selftests.main.kernel", lambda name: KERNEL)
    monkeypatch.setattr("selftests.main.modules_of", lambda on: {})
    monkeypatch.setattr("sys.argv", ["run", "--kernel", "6.12"])
    Scripted.ran.clear()
    Scripted.ends = {(loaded, name): ["pass"] for name in names for loaded in (False, True)}
    Scripted.ends[False, "bad"] = ["fail"]
    return tmp_path / "kept"


def test_what_fails_with_the_modules_twice_fails_the_run(
    scripted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Scripted.ends[True, "unlucky"] = ["fail", "pass"]
    Scripted.ends[True, "spoiled"] = ["fail"]
    assert main() == 1
    assert capsys.readouterr().out.splitlines()[-1].endswith("only: 6.12: net/spoiled")
    assert Scripted.ran.count((True, "unlucky")) == Scripted.ran.count((True, "spoiled")) == 2
    # Who does not pass on a stock kernel is not run with the modules.
    assert Scripted.ran.count((False, "bad")) == 1
    assert (True, "bad") not in Scripted.ran
    assert (
        "passes without the modules only:\n  net/spoiled\n"
        in (scripted / "6.12" / "report.txt").read_text()
    )


def test_what_is_known_is_not_run_again(scripted: Path) -> None:
    Scripted.ends[True, "good"] = ["died", "died", "pass"]  # its guest did, which is no answer
    assert main() == 1
    Scripted.ran.clear()
    assert main() == 0
    assert Scripted.ran == [(True, "good")]
