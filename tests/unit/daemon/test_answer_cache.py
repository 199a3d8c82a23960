"""The answer cache keeps what is used and never more than it may."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.daemon.cache import AnswerCache


def test_the_entry_used_longest_ago_goes_first() -> None:
    cache: AnswerCache[str, int] = AnswerCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)


def test_a_cache_of_no_entries_keeps_none() -> None:
    cache: AnswerCache[str, int] = AnswerCache(0)
    cache.put("a", 1)
    assert cache.get("a") is None


def test_what_is_cleared_is_forgotten() -> None:
    cache: AnswerCache[str, int] = AnswerCache(2)
    cache.put("a", 1)
    cache.clear()
    assert cache.get("a") is None


@given(st.integers(0, 5), st.lists(st.tuples(st.integers(0, 9), st.integers()), max_size=40))
def test_it_holds_the_last_values_within_its_capacity(
    capacity: int, puts: list[tuple[int, int]]
) -> None:
    cache: AnswerCache[int, int] = AnswerCache(capacity)
    for key, value in puts:
        cache.put(key, value)
    assert len(cache) <= capacity
    last_first = dict(reversed(dict.fromkeys(key for key, _ in reversed(puts)).items()))
    for key in list(last_first)[-capacity:] if capacity else []:
        assert cache.get(key) == dict(puts)[key]
