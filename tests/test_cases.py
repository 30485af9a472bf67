"""The public reports: every case gives what it should, whole, byte by byte, and cut anywhere."""

from __future__ import annotations

import pytest

from tests.cases import Case, all_cases, complaints, cut_complaints, cut_places

CASES = all_cases()
ASKED_FOR = [case for case in CASES if not case.later]

#: What the seven cases that are not asked for give instead: kinds of the items, verdict.
LATER = {
    "E26": (["reasoning", "message"], "match"),  # leaked markup is shown as the server sent it
    "E27": (["message"], "match"),
    "E50": (["reasoning", "mcp_call", "web_search_call", "message"], "mismatch"),  # one call under two kinds
    "E53": (["reasoning", "message"], "match"),  # usage is not compared
    "E59": (["message"], "mismatch"),  # deltas are not put in order
    "E75": (["mcp_call"], "match"),  # kinds are not changed
    "E76": (["reasoning", "message"], "match"),  # an empty message stays
}


@pytest.mark.parametrize("case", ASKED_FOR, ids=str)
def test_a_case_gives_what_it_should(case: Case) -> None:
    assert complaints(case, case.play()) == []


@pytest.mark.parametrize("case", ASKED_FOR, ids=str)
def test_a_case_gives_the_same_byte_by_byte(case: Case) -> None:
    step = 1 if len(case.body) < 100_000 else 997
    chunks = [case.body[at : at + step] for at in range(0, len(case.body), step)]
    whole, split = case.play(), case.play(chunks)
    assert split.events == whole.events
    assert split.report.as_dict() == whole.report.as_dict()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_case_cut_anywhere_ends_well_formed(case: Case) -> None:
    places = cut_places(case, 12 if len(case.body) < 100_000 else 4, seed=1)
    assert [complaint for place in places for complaint in cut_complaints(case, place)] == []


@pytest.mark.parametrize("case", [case for case in CASES if case.later], ids=str)
def test_a_case_not_asked_for_gives_what_the_documentation_says(case: Case) -> None:
    played = case.play()
    kinds, verdict = LATER[case.id]
    assert [item.kind for item in played.items] == kinds
    assert played.report.verdict == verdict
    assert played.violations() == []
