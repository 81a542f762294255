"""The keys of changed rows: each once, in memory or in a file.

Belongs here: the collection by itself. Does not belong: where the keys come from (``test_capture``).
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from incremental_assets.databases.postgres.capture import changed_keys
from incremental_assets.databases.postgres.capture.changed_keys import ChangedKeys

KEYS = st.lists(
    st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), st.sampled_from(["", "a", '"', "\\"])), max_size=40
)


@pytest.mark.parametrize("held", [3, 1000])
@given(given=KEYS, size=st.integers(1, 9))
def test_each_key_comes_once_whether_it_was_held_in_memory_or_not(held: int, given: list[tuple[str, str]], size: int) -> None:
    """A key that is left out is a change that is lost; more keys in a piece than asked for are a commit that is too large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changed_keys, "_MOST_HELD", held)
        keys = ChangedKeys()
        for key in given:
            keys.add(key)
        assert len(keys) == len(set(given))
        pieces = list(keys.pieces(size))
        assert sorted(key for piece in pieces for key in piece) == sorted(set(given))
        assert all(0 < len(piece) <= size for piece in pieces)
        keys.close()
