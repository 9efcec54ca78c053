"""Words nearly alike: inflection, and scripts that write no spaces."""

import pytest

from omniroute_litellm.sqlite_store import SqliteMemoryStore
from omniroute_litellm.trigrams import MAX_TRIGRAMS, holding_alike, pieces_of
from tests.fakes import FakeClock
from tests.unit.fakes import ANN, BOB, alive_at, draft, put, scope_of


def test_pieces_are_three_letters() -> None:
    """A word is cut into its windows, each once; what is shorter has none."""
    assert pieces_of(["kotem", "my"]) == [["kot", "ote", "tem"]]


def test_unspaced_scripts_have_a_word_a_window() -> None:
    """A run of such a script is no word: each window stands for itself."""
    assert pieces_of(["喜欢喝茶"]) == [["喜欢喝"], ["欢喝茶"]]


def test_pieces_are_bounded() -> None:
    """A huge query looks up a bounded number of windows."""
    huge = "".join(chr(0x4E00 + at) for at in range(3_000))
    assert len(pieces_of([huge, "word"])) == MAX_TRIGRAMS


def test_alike_is_half_of_the_windows() -> None:
    """Half of the windows is enough, less is not."""
    assert holding_alike([[3, 1], [3], [2], [2, 1]]) == [3, 2, 1]
    assert holding_alike([[1], [2], [2]]) == [2]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Fakturuję w złotówkach", "jakie faktury w złotych wystawiam"),
        ("我喜欢喝绿茶", "你喜欢喝什么"),
    ],
)
def test_inflected_words_are_found(
    store: SqliteMemoryStore, clock: FakeClock, text: str, query: str
) -> None:
    """What no word index finds is found by its letters, for its owner alone."""
    put(store, draft("preference:it", text, owner=ANN))
    put(store, draft("preference:other", text, owner=BOB))
    hits = store.keyword(scope_of(ANN), alive_at(clock()), query=query, limit=5)
    assert [hit.memory.owner for hit in hits] == [ANN]
    assert 0 < hits[0].coverage <= 1


def test_an_exact_word_wants_nothing_alike(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """A word that a memory holds as it is does not find its neighbours in spelling."""
    for number in range(3):
        put(store, draft(f"decision:n{number}", f"I chose number{number}"))
    hits = store.keyword(scope_of(ANN), alive_at(clock()), query="number2", limit=5)
    assert [hit.memory.content for hit in hits] == ["I chose number2"]


def test_an_edit_reaches_the_letters(store: SqliteMemoryStore, clock: FakeClock) -> None:
    """What was replaced is no longer found."""
    put(store, draft("preference:it", "Fakturuję w złotówkach"))
    put(store, draft("preference:it", "Piję herbatę"))
    assert not store.keyword(scope_of(ANN), alive_at(clock()), query="złotych faktury", limit=5)
