"""A peer in a process beside ours waits as is best for it, and says why it stopped."""

import pytest

from benchmarks.measure import NotAvailable
from benchmarks.peers.beside import Beside, fastest
from tests.benchmarks import toy_peer


def toy(best: str, wait: str | None) -> Beside:
    return Beside("the toy", toy_peer.__name__, (best,), wait)


@pytest.mark.parametrize("best", ["PASSIVE", "none"])
def test_the_way_of_waiting_that_is_faster_for_a_peer_is_taken(best, monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")  # ours is not handed on
    peer = fastest(lambda wait: toy(best, wait), lambda peer: peer.ask("work"))
    assert peer.ask("work") == 1.0
    peer.close()


def test_a_peer_that_stops_says_why():
    peer = toy("none", None)
    assert peer.ask("work") == 1.0
    with pytest.raises(NotAvailable, match="the toy stopped: it has had enough"):
        peer.ask("end")
    peer.close()
