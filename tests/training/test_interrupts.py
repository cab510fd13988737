import os
import signal
import threading

import pytest

from everlong.errors import RunInterrupted
from everlong.training.interrupts import Interrupts
from tests.training.arms import CONFIG, Arm, Tokens, assert_same_to_the_bit


def signals_at(step: int, *numbers: signal.Signals) -> Tokens:
    def send(now: int) -> None:
        if now == step:
            for number in numbers:
                os.kill(os.getpid(), number)

    return Tokens(send)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_step_is_finished_and_saved_and_the_message_says_how_to_go_on(tmp_path, number):
    whole = Arm(tmp_path / "whole")
    whole.train()
    arm = Arm(tmp_path / "parts")
    with pytest.raises(RunInterrupted) as interrupted:
        arm.train(signals_at(6, number))
    assert interrupted.value.exit_code == 130
    assert str(interrupted.value) == (
        f"arm was interrupted and saved after 7 of 10 steps; go on with `everlong repair --resume {arm.folder}`"
    )
    assert [line["step"] for line in arm.lines()] == list(range(7))
    assert arm.checkpoints() == ["step-000005", "step-000007"]
    again = Arm(tmp_path / "parts", model_seed=99)
    again.train()
    assert_same_to_the_bit(again, whole)


@pytest.mark.parametrize("at", [0, 1])
def test_reading_ahead_is_interrupted_between_its_batches(tmp_path, at):
    whole = Arm(tmp_path / "whole", prefill_steps=3)
    whole.train()
    arm, read = Arm(tmp_path / "parts", prefill_steps=3), []

    def interrupt(step: int) -> None:
        read.append(step)
        if step == at:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(
        RunInterrupted, match="arm was interrupted while it read ahead, before its first step; go on with"
    ):
        arm.train(arm.tokens(interrupt))
    assert read == list(range(at + 1))
    again = Arm(tmp_path / "parts", prefill_steps=3)
    again.train()
    assert_same_to_the_bit(again, whole)


def test_an_interrupt_in_the_last_step_is_not_lost(tmp_path):
    arm = Arm(tmp_path / "run")
    with pytest.raises(RunInterrupted, match="after 10 of 10 steps"):
        arm.train(signals_at(9, signal.SIGINT))


def test_a_second_interrupt_stops_at_once(tmp_path):
    arm = Arm(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        arm.train(signals_at(6, signal.SIGINT, signal.SIGINT))
    assert [line["step"] for line in arm.lines()] == list(range(6))
    assert arm.checkpoints() == ["step-000005"]


def test_a_signal_that_comes_twice_by_two_ways_still_finishes_the_step(tmp_path):
    """A scheduler signals every process, and torchrun passes its own signal on to them."""
    arm = Arm(tmp_path / "run")
    with pytest.raises(RunInterrupted, match="after 7 of 10 steps"):
        arm.train(signals_at(6, signal.SIGTERM, signal.SIGTERM, signal.SIGINT))
    with Interrupts(alone=False) as interrupts:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.asked


@pytest.mark.parametrize("ends", ["well", "interrupted", "crashed"])
def test_the_handlers_found_are_put_back(tmp_path, ends):
    found = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    arm = Arm(tmp_path / "run")
    if ends == "well":
        arm.train()
    elif ends == "interrupted":
        with pytest.raises(RunInterrupted):
            arm.train(signals_at(2, signal.SIGTERM))
    else:
        arm.crash_before(2)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == found


def test_outside_the_main_thread_no_handler_is_set(tmp_path):
    arm, done = Arm(tmp_path / "run"), []
    thread = threading.Thread(target=lambda: done.append(arm.train()))
    thread.start()
    thread.join()
    assert done[0].steps == CONFIG.steps
