# SPDX-License-Identifier: GPL-2.0-only
"""The bench, and the page of its results."""

import csv
import json
import re
from pathlib import Path

import pytest
from experiments import bench, report, result, runner, show
from experiments.main import parser
from rig.kernels import REPO

KEPT = sorted((REPO / "docs" / "results").glob("*.json"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_every_kept_result_has_a_picture_and_its_table(path: Path) -> None:
    """Few numbers need none."""
    found = json.loads(path.read_text())
    made = report.section(found)
    pictures = int(found["experiment"] not in ("election", "receive", "cost-driver"))
    assert made.count("<svg") == made.count("</svg>") == pictures
    for line in show.table(found).splitlines():
        assert report.html.escape(line) in made


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    for path in KEPT:
        (tmp_path / path.name).write_text(path.read_text())
    page = report.write(tmp_path).read_text()
    assert page.count("<section") == len(KEPT)
    assert not re.findall(r'(?:src|href)="(?!#)', page)
    links = re.findall(r'<a href="#([^"]+)"', page)
    assert sorted(links) == sorted(re.findall(r'<section id="([^"]+)"', page))


def test_every_number_of_an_arm_is_in_a_list(tmp_path: Path) -> None:
    kept = REPO / "docs" / "results" / "S1-6.12.json"
    (tmp_path / "S1.json").write_text(kept.read_text())
    report.write(tmp_path)
    with (tmp_path / "S1.csv").open() as file:
        lines = list(csv.DictReader(file))
    found = {(one["figure"], one["repeat"], one["receiver"]): float(one["value"]) for one in lines}
    assert len(found) == len(lines)
    for step in json.loads(kept.read_text())["steps"]:
        for name, arm in step["arms"].items():
            figure = f"demand {step['demand']:g}.{name}"
            for i, (got,) in enumerate(arm["received_pps"]):
                assert found[f"{figure}.received_pps", str(i), "0"] == pytest.approx(got, rel=1e-5)
            assert found[f"{figure}.accounts.sent", "0", ""] == arm["accounts"][0]["sent"]


def test_what_fails_is_told_and_the_next_is_run(tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def one(arguments: list[str]) -> None:
        asked.append(arguments)
        if arguments[0] == "U1":
            raise RuntimeError("the guest <died>")
        found = {**json.loads(KEPT[0].read_text()), "experiment": "H1"}
        result.write(Path(arguments[-1]), {**found, "command": result.command(arguments)})

    with pytest.raises(SystemExit, match=r"failed: U1$"):
        bench.run(["U1", "H1"], "6.1", 2, tmp_path, one, lambda _: None)
    page = (tmp_path / report.NAME).read_text()
    assert [arguments[0] for arguments in asked] == ["U1", "H1"]
    assert "the guest &lt;died&gt;" in page
    again = re.findall(r"^<pre>(tests/experiments/run .*)</pre>$", page, re.M)
    assert [line.split()[1] for line in again] == ["U1", "H1"]
    assert not [line for line in again if "--json" in line]


def test_an_arm_that_fails_is_told_and_the_others_are_run(tmp_path: Path) -> None:
    asked: list[str] = []

    def one(arguments: list[str]) -> None:
        arms = arguments[arguments.index("--arms") + 1]
        asked.append(arms)
        if "nice-by-hand" in arms:
            try:
                raise RuntimeError("no <such> thread")
            except RuntimeError as error:
                raise runner.ArmError("nice-by-hand") from error
        found = {**json.loads(KEPT[0].read_text()), "experiment": "H1"}
        result.write(Path(arguments[-1]), {**found, "command": result.command(arguments)})

    with pytest.raises(SystemExit, match=r"failed: H1 nice-by-hand$"):
        bench.run(["H1"], "6.1", 2, tmp_path, one, lambda _: None)
    assert asked == [bench.ARMS["H1"], bench.ARMS["H1"].replace("nice-by-hand,", "")]
    page = (tmp_path / report.NAME).read_text()
    assert "nice-by-hand: failed" in page and "no &lt;such&gt; thread" in page
    assert page.count("<svg") == 1


def test_every_experiment_of_the_bench_is_one_of_the_command_line() -> None:
    for name, arms in bench.ARMS.items():
        options = parser().parse_args([name, "--arms", arms, "--repeat", "1"])
        assert options.arms == arms
