# SPDX-License-Identifier: GPL-2.0-only
"""A measure on trial: it answers harm, gives back, and is taken back where it is vain."""

from collections.abc import Callable, Iterable
from itertools import count, pairwise

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from unit.policy import ONE, Tick, Trial, most_of, trial_pause, trial_step

BEARABLE = ONE // 200
SECOND = 1_000_000
TICK_US = 12_000
HOLD_US = 100_000
HOLD_MOST_US = 1_600_000
ASKING_US = 80_000
RISE_US, SEEN_US = 24_000, 50_000
BACKOFF_MOST = 60.0

words = st.integers(0, 2**32 - 1)
harms = st.integers(0, ONE)
shares = st.integers(0, ONE)
mosts = st.integers(0, 4).map(most_of)
apart = st.integers(1, 2 * HOLD_US)  # a late tick counts as 100 ms
ticks = st.builds(Tick, harms, st.just(BEARABLE), shares, mosts, apart)
# Long enough at a time for a question to be asked.
histories = st.lists(st.tuples(ticks, st.integers(1, 60)), max_size=8)
anything = st.builds(
    lambda values, anew: Trial(*values, anew),
    st.lists(words, min_size=14, max_size=14),
    st.booleans(),
)


def after(history: Iterable[tuple[Tick, int]]) -> Trial:
    trial = Trial()
    for tick, times in history:
        for _ in range(times):
            trial_step(trial, tick)
    return trial


states = histories.map(after)


def needed(harm: int) -> float:
    """Steps that so much harm takes."""
    excess = (harm - BEARABLE) / ONE
    return ONE * excess * (1 + 8 * excess)


def stepped(trial: Trial, tick: Tick) -> Trial:
    new = trial.copy()
    trial_step(new, tick)
    return new


def reached(seconds: float, seen: Callable[[float, Trial], tuple[float, int]]) -> float:
    """Share of time for which it reached at all; harm and level by the time and the trial."""
    trial, ticks = Trial(), round(seconds * SECOND / TICK_US)
    reaches = 0
    for tick in range(ticks):
        harm, level = seen(tick * TICK_US / SECOND, trial)
        reaches += trial.reach > 0
        trial_step(trial, Tick(round(harm * ONE), BEARABLE, 0, most_of(1), TICK_US, level))
    return reaches / ticks


def run(
    seconds: float,
    harm: Callable[[int], float],
    levels: int = 2,
    spare: float = 0,
    trial: Trial | None = None,
    level: int = 0,
) -> list[Trial]:
    """The trial by tick; harm as a share of one, by how far it reaches."""
    trial, seen = trial or Trial(), []
    for _ in range(round(seconds * SECOND / TICK_US)):
        seen.append(trial.copy())
        lost = round(harm(trial.reach) * ONE)
        tick = Tick(lost, BEARABLE, round(spare * ONE), most_of(levels), TICK_US, level)
        trial_step(trial, tick)
    return seen


def spells(seen: list[Trial], of: Callable[[Trial], bool]) -> list[tuple[bool, float]]:
    """What holds in turn, and for how many seconds."""
    found: list[tuple[bool, float]] = []
    for trial in seen:
        now = of(trial)
        if found and found[-1][0] == now:
            found[-1] = (now, found[-1][1] + TICK_US / SECOND)
        else:
            found.append((now, TICK_US / SECOND))
    return found


@given(anything, st.builds(Tick, words, words, words, words, words))
def test_any_words_keep_it_within_bounds(trial: Trial, tick: Tick) -> None:
    """The undefined behaviour sanitizer looks on; see policy.library()."""
    for _ in range(3):
        trial_step(trial, tick)
        assert trial.reach <= tick.most


@given(st.lists(st.builds(Tick, words, words, words, words, words), max_size=60))
def test_any_course_keeps_it_within_bounds(course: list[Tick]) -> None:
    trial = Trial()
    for tick in course:
        trial_step(trial, tick)
        assert trial.reach <= tick.most
        assert trial.limit_us <= BACKOFF_MOST * SECOND
        assert trial.hold_us <= HOLD_MOST_US


@given(states, ticks)
def test_it_reaches_no_further_than_it_may(trial: Trial, tick: Tick) -> None:
    new = stepped(trial, tick)
    assert new.reach <= tick.most
    limited = trial.limit_us > min(tick.elapsed_us, HOLD_US)
    if limited and trial.reach <= trial.limit and not trial.asking_us:
        assert new.reach <= trial.limit


@given(states, ticks)
def test_only_harm_makes_it_reach_further(trial: Trial, tick: Tick) -> None:
    new = stepped(trial, tick)
    if new.reach > trial.reach:
        assert tick.harm > tick.bearable
        part = min(tick.elapsed_us, RISE_US) / RISE_US
        most = max(trial.reach, trial.enough) + needed(tick.harm) * part + 1
        assert trial.asking_us or new.reach <= most


@given(states, ticks, harms)
def test_more_harm_reaches_no_less(trial: Trial, tick: Tick, other: int) -> None:
    """Save where it is the greater harm that is asked about."""
    less, more = sorted((tick.harm, other))
    one = stepped(trial, Tick(less, BEARABLE, tick.spare, tick.most, tick.elapsed_us))
    two = stepped(trial, Tick(more, BEARABLE, tick.spare, tick.most, tick.elapsed_us))
    assume(trial.asking_us or not two.asking_us)
    assert two.reach >= one.reach


@given(states, ticks, shares)
def test_more_time_to_spare_reaches_no_further(trial: Trial, tick: Tick, other: int) -> None:
    less, more = sorted((tick.spare, other))
    one = stepped(trial, Tick(tick.harm, BEARABLE, less, tick.most, tick.elapsed_us))
    two = stepped(trial, Tick(tick.harm, BEARABLE, more, tick.most, tick.elapsed_us))
    assert two.reach <= one.reach


@given(st.integers(BEARABLE + ONE // 1000, ONE), st.integers(1, 4))
def test_harm_is_answered_the_faster_the_greater_it_is(harm: int, levels: int) -> None:
    """Half of what it needs in each tick, until it shows that this helps."""
    ticks = ONE / needed(harm) + 1
    seen = run(ticks * TICK_US / SECOND * 1.1 + 0.03, lambda _: harm / ONE, levels)
    assert next(t for t, trial in enumerate(seen) if trial.reach >= ONE // 2) <= ticks * 1.03


@given(st.integers(2 * BEARABLE, ONE))
def test_what_helps_nothing_yet_is_no_reason_to_wait(harm: int) -> None:
    """At an onset, until harm falls by an eighth, each tick takes half of what it needs."""
    need = needed(harm)
    for trial, now in pairwise(run(0.2, lambda _: harm / ONE, 4)):
        if now.reach < most_of(4):
            assert 0.5 * need - 2 <= now.reach - trial.reach <= 0.5 * need


@given(st.integers(8 * BEARABLE, ONE), st.integers(60, 85))
def test_what_was_reached_lately_counts_until_harm_shows_it(harm: int, percent: int) -> None:
    """Once harm has fallen it is answered only by what it takes more than was done lately."""
    trial, most, left = Trial(), most_of(16), harm * percent // 100
    trial_step(trial, Tick(harm, BEARABLE, 0, most, TICK_US))
    unseen = float(trial.reach)
    for _ in range(3):
        unseen -= unseen * TICK_US / SEEN_US
        more = max(needed(left) - unseen, 0) * TICK_US / RISE_US
        unseen += more
        before = trial.reach
        trial_step(trial, Tick(left, BEARABLE, 0, most, TICK_US))
        assert trial.reach - before == pytest.approx(more, abs=4)


@given(words, st.integers(ONE, 2**32 - 1))
def test_where_all_is_bearable_nothing_is_done(harm: int, bearable: int) -> None:
    trial = Trial()
    trial_step(trial, Tick(harm, bearable, 0, most_of(4), TICK_US))
    assert trial.reach == 0


@given(states)
def test_with_time_to_spare_all_is_given_back_at_once(trial: Trial) -> None:
    """An eighth of a second a step, after it has held what it has."""
    assume(not trial.asking_us)
    hold = max(trial.hold_us, HOLD_US)
    given_back = hold / SECOND + 0.131 * trial.reach / ONE + 2 * TICK_US / SECOND
    seen = run(given_back, lambda _: 0, 4, spare=1, trial=trial.copy())
    assert seen[-1].reach == 0


@given(shares)
def test_what_is_given_back_goes_with_the_time_to_spare(spare: int) -> None:
    """Eight steps a second of what is beyond a twenty-fifth, and always a step in 20 s."""
    trial = Trial(reach=3 * ONE, calm_us=HOLD_US)
    trial_step(trial, Tick(0, BEARABLE, spare, most_of(4), TICK_US))
    rate = 8 * max(spare - ONE // 25, 0) + ONE / 20
    assert 3 * ONE - trial.reach == pytest.approx(rate * TICK_US / SECOND, abs=2)


@given(states)
@example(Trial(reach=2 * ONE))
def test_without_time_to_spare_a_step_takes_twenty_seconds(trial: Trial) -> None:
    assume(not trial.asking_us)
    for before, now in pairwise(run(1, lambda _: 0, 4, trial=trial.copy())):
        assert before.reach - now.reach == min(before.reach, ONE * TICK_US // (20 * SECOND))


@pytest.mark.parametrize("busy", [True, False])
def test_what_is_enough_is_learnt_anew_while_the_cpu_is_busy(busy: bool) -> None:
    """Most of the way to where the receiver is well, in a third of a second; else it only fades."""
    trial = Trial(reach=ONE, enough=3 * ONE, hold_us=HOLD_MOST_US, calm_us=HOLD_US)
    spare = 0.24 if busy else 0.26
    trial = run(1 / 3, lambda _: 0, 4, spare=spare, trial=trial)[-1]
    away = (trial.enough - trial.reach) / ONE
    assert 0.6 <= away <= 0.75 if busy else 1.9 <= away <= 2.0


@given(states)
def test_in_peace_everything_is_forgotten(trial: Trial) -> None:
    last = run(130, lambda _: 0, 4, spare=1, trial=trial.copy())[-1]
    assert (last.reach, last.enough, last.hold_us, last.ask_us) == (0, 0, 0, 0)
    assert (last.limit_us, last.futile_us, last.asking_us, last.worst) == (0, 0, 0, 0)
    assert last.unseen * TICK_US < SEEN_US  # next to nothing


def test_who_is_harmed_again_gets_back_at_once_what_was_enough() -> None:
    trial = run(2, lambda reach: 0.3 if reach < 1.5 * ONE else 0)[-1]
    enough = trial.reach
    assert enough >= 1.4 * ONE
    trial = run(1, lambda _: 0, spare=1, trial=trial)[-1]
    assert trial.reach == 0
    little = trial.copy()
    trial_step(little, Tick(2 * BEARABLE, BEARABLE, 0, most_of(2), TICK_US))
    assert little.reach < 0.1 * ONE, "a little harm asks for a little"
    trial_step(trial, Tick(ONE // 10, BEARABLE, 0, most_of(2), TICK_US))
    assert trial.reach >= 0.9 * enough
    assert trial.hold_us == 2 * HOLD_US
    assert trial.unseen >= trial.reach, "no more is done until harm shows what that does"


def test_enough_for_one_receiver_is_too_much_for_another() -> None:
    """Harm to a receiver of a lower place takes no more back than it may have."""
    trial = run(2, lambda reach: 0.3 if reach < 1.9 * ONE else 0)[-1]
    trial = run(1, lambda _: 0, spare=1, trial=trial)[-1]
    assert trial.reach == 0 and trial.enough > most_of(1)
    trial_step(trial, Tick(ONE // 10, BEARABLE, 0, most_of(1), TICK_US))
    assert 0 < trial.reach <= most_of(1)


@given(st.integers(4 * BEARABLE, ONE), st.integers(1, 4))
def test_a_vain_measure_is_taken_back(harm: int, levels: int) -> None:
    """What does not depend on how far it reaches: 2, 4, 8 s and so on apart, at last a minute."""
    seen = run(600, lambda _: harm / ONE, levels)
    taken = spells(seen, lambda trial: trial.reach > 0)
    back = [seconds for on, seconds in taken if not on][1:-1]
    assert back == sorted(back)
    assert back[0] >= 1.9
    assert max(back) <= BACKOFF_MOST + 0.1
    if len(back) > 5:
        assert back[-1] >= BACKOFF_MOST - 0.1
    # Fifteen times, each as long as it takes to answer so much harm, and to ask of each step.
    climb = levels * ONE / needed(harm) * RISE_US / SECOND
    shed = sum(seconds for on, seconds in taken if on)
    assert shed <= 15 * (climb + 0.6 + 0.1 * levels)


def test_the_step_before_is_asked_about_too() -> None:
    """Only the first step helps, so that one is kept, and the other is not."""
    seen = run(120, lambda reach: 0.3 if reach >= ONE // 2 else 0.6)
    late = seen[round(10 * SECOND / TICK_US) :]
    assert sum(trial.reach >= ONE // 2 for trial in late) / len(late) >= 0.97
    assert sum(trial.reach > 1.1 * ONE for trial in late) / len(late) <= 0.06


def test_a_moment_without_harm_does_not_hide_that_it_is_vain() -> None:
    ticks = count()
    seen = run(20, lambda _: 0 if next(ticks) % 10 == 9 else 0.8, levels=1)
    late = seen[round(5 * SECOND / TICK_US) :]
    assert sum(trial.reach > 0 for trial in late) / len(late) <= 0.3


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_a_measure_that_helps_is_kept(levels: int) -> None:
    """It is asked rarer and rarer, and each time for hardly more than 80 ms."""
    most = most_of(levels)
    seen = run(300, lambda reach: 0.1 if reach >= most - ONE // 8 else 0.4, levels)
    asked = spells(seen[200:], lambda trial: trial.asking_us > 0)
    questions = [seconds for on, seconds in asked if on]
    between = [seconds for on, seconds in asked if not on]
    assert 4 <= len(questions) <= 9
    assert max(questions) <= ASKING_US / SECOND + 2 * TICK_US / SECOND
    assert between[1:-1] == sorted(between[1:-1])
    assert between[-2] >= 59
    missed = sum(trial.reach < most - ONE // 8 for trial in seen[200:]) / len(seen[200:])
    assert missed <= 0.005


def test_a_little_more_for_who_has_little_is_a_help() -> None:
    """A quarter of its packets in place of a fifth, though it loses nearly as many."""
    seen = run(60, lambda reach: 0.75 if reach >= ONE // 2 else 0.8, levels=1)
    late = seen[100:]
    assert sum(trial.reach < ONE // 2 for trial in late) / len(late) <= 0.01


def test_what_does_about_enough_is_not_asked_about() -> None:
    seen = run(60, lambda reach: 0.3 if reach < ONE - 1 else 1.9 * BEARABLE / ONE, levels=1)
    assert not any(trial.asking_us for trial in seen)


def test_what_was_vain_for_one_is_tried_for_a_more_important_one() -> None:
    vain = run(1.5, lambda _: 0.6, level=30)[-1]
    assert vain.reach == 0 < vain.limit_us
    # For the same one, and for a less important one, it stays back.
    for level in (20, 30):
        assert not any(one.reach for one in run(0.4, lambda _: 0.6, trial=vain.copy(), level=level))
    helped = run(0.4, lambda reach: 0.6 * (1 - reach / most_of(2)), trial=vain.copy(), level=40)
    assert max(one.reach for one in helped) > ONE


def test_a_more_important_one_that_is_harmed_meanwhile_answers_the_question() -> None:
    """Its harm is not to be compared with that of the one for whom it was asked."""
    asking = next(one for one in run(2, lambda _: 0.6, levels=1, level=30) if one.asking_us)
    trial_step(asking, Tick(ONE // 10, BEARABLE, 0, most_of(1), TICK_US, 40))
    assert (asking.asking_us, asking.limit_us, asking.reach) == (0, 0, most_of(1))
    assert (asking.futile_us, asking.asked_anew) == (0, False)


def test_an_election_answers_no_question() -> None:
    """Who is elected meanwhile is the same receiver, or its equal."""
    assert reached(600, lambda _, trial: (0.1, 41 if trial.asking_us else 40)) <= 0.02


def test_what_a_boost_gives_back_meanwhile_is_no_answer() -> None:
    """It was away for a moment as the question was asked, and cost more than the step."""
    since: list[float] = []

    def seen(now: float, trial: Trial) -> tuple[float, int]:
        if not since and trial.futile_us >= 0.46 * SECOND:
            since.append(now)
        raised = not since or now >= since[0] + 0.08
        missed = trial.reach < 7 * ONE // 8
        return 0.2 + 0.1 * missed + 0.4 * (not raised), 40 + raised

    assert reached(5, seen) >= 0.94
    assert since


@pytest.mark.parametrize(("apart", "share"), [(5, 0.13), (10, 0.07), (30, 0.03)])
def test_what_was_vain_is_tried_for_another_and_is_still_known(apart: float, share: float) -> None:
    """Tried for it at once; but once it is well it is the other's question, asked before."""
    assert reached(600, lambda now, _: (0.1, 42 if now % apart < 0.012 else 40)) <= share


@pytest.mark.parametrize(("harm", "missed"), [(0.6, 0.3), (0.3, 0.3), (0.3, 0.6)])
def test_whose_harm_is_vain_takes_nothing_from_a_more_important_one(
    harm: float, missed: float
) -> None:
    """The first is well with the step, and only with it; the other is harmed in any case."""

    def seen(_: float, trial: Trial) -> tuple[float, int]:
        return (missed, 42) if trial.reach < 7 * ONE // 8 else (harm, 40)

    assert reached(300, seen) >= 0.995


@pytest.mark.parametrize("pause", [11, 20, 70])
def test_who_pauses_is_not_believed_anew(pause: int) -> None:
    """Harmed by his own doing until it is found vain, and well while nobody looks."""
    trial, shed, all_us = Trial(), 0, 0
    while all_us < 1200 * SECOND:
        for _ in range(SECOND // TICK_US):
            trial_step(trial, Tick(ONE // 10, BEARABLE, 0, most_of(1), TICK_US, 40))
            shed += TICK_US * (trial.reach > 0)
        trial_pause(trial, pause * SECOND)
        all_us += (1 + pause) * SECOND
    assert shed / all_us <= 0.015


@given(states, st.integers(0, 2**32 - 1))
def test_a_pause_takes_everything_back(trial: Trial, pause_us: int) -> None:
    before = trial.copy()
    trial_pause(trial, pause_us)
    assert (trial.reach, trial.enough, trial.hold_us, trial.asking_us, trial.worst) == (0,) * 5
    assert trial.limit_us == max(before.limit_us - pause_us, 0)
    if pause_us >= before.limit_us + 64 * (before.backoff_us + 1):
        assert trial.backoff_us == 0


def test_who_was_never_harmed_in_vain_is_answered_at_once_after_a_pause() -> None:
    trial = run(5, lambda reach: 0.3 if reach < ONE // 2 else 0)[-1]
    trial_pause(trial, 11 * SECOND)
    assert run(0.3, lambda _: 0.3, trial=trial)[-1].reach >= ONE // 2
