"""A run that starts says what it waits for."""

import threading

from roll_pipelines.progress import Waiting


def test_what_is_missing_is_said_until_it_is_there() -> None:
    heard: list[str] = []
    reminded = threading.Event()

    def tell(text: str) -> None:
        heard.append(text)
        if "waiting for" in text:
            reminded.set()

    with Waiting("load models", ["actor", "reward"], every_s=0.01, tell=tell) as waiting:
        waiting.done("actor")
        reminded.clear()
        assert reminded.wait(30)
        assert heard[-1].startswith("load models: waiting for reward, ")
        waiting.done("reward")

    assert heard[0] == "load models: actor, reward"
    assert any(text.startswith("load models: actor ready after ") for text in heard)
    assert waiting.missing == []
