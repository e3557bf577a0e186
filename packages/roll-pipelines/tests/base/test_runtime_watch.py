"""A run whose runtime has ended does not wait for it."""

import threading

import pytest

from roll_pipelines.runtime_watch import RuntimeWatch


def test_the_main_thread_stops_waiting_when_the_runtime_has_ended() -> None:
    ended = threading.Event()
    watch = RuntimeWatch(lambda: ["raylet (pid 7)"] if ended.is_set() else [], every_s=0.01)

    def wait_in_vain() -> None:
        ended.set()
        threading.Event().wait(60)
        raise AssertionError("nobody came")

    with pytest.raises(KeyboardInterrupt):
        wait_in_vain()
    watch.close()

    assert str(watch.error()).startswith("raylet (pid 7) of Ray has ended")


def test_nothing_is_said_of_a_runtime_that_stands() -> None:
    asked = threading.Event()

    def ended() -> list[str]:
        asked.set()
        return []

    watch = RuntimeWatch(ended, every_s=0.01)
    assert asked.wait(60)
    watch.close()
    assert watch.error() is None


def test_a_failure_that_comes_before_the_question_is_still_explained() -> None:
    asked = threading.Event()
    watch = RuntimeWatch(lambda: ["raylet"] if asked.is_set() else [], every_s=3600.0)
    asked.set()
    watch.close()
    watch.close()
    assert str(watch.error()).startswith("raylet of Ray has ended")
