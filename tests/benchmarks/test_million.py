"""A block within the long row is timed at each place, whatever is read at once, and a row of its own after it."""

import pytest

from benchmarks import million


@pytest.mark.parametrize("piece", [512, 1000])
def test_every_place_is_timed_once_and_by_the_token(monkeypatch, piece):
    now = 0.0
    monkeypatch.setattr(million.time, "perf_counter", lambda: now)
    clock = million._Clock(lambda: 7.0)
    for _ in range(0, million.LENGTH, piece):
        now += piece * 1e-3  # a millisecond a token
        clock.advance(piece)
    assert len(clock.positions) == million.PLACES
    assert clock.positions == sorted(set(clock.positions))
    assert clock.positions[-1] > 0.9 * million.LENGTH
    assert clock.within == pytest.approx([million.BLOCK * 1e-3] * million.PLACES)
    assert clock.alone == [7.0] * million.PLACES


def test_the_peak_is_that_of_this_process():
    assert 2**24 < million.peak() < 2**40
