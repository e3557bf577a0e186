"""What the answers of a real vLLM engine are."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_vllm import (
    ENDLESS,
    PAD_ID,
    STOP_IDS,
    VOCAB_SIZE,
    Engine,
    column,
    expected_log_probs,
    make_engine,
    prompts,
)
from transformers import AutoModelForCausalLM

from roll_protocol import DataProto
from roll_strategies import BatchError, StrategyConfigError, UnsupportedOperation, build_strategy
from roll_strategies.testing import check_generation


def test_log_probs_are_those_of_the_whole_distribution_at_the_rows_temperature(
    engine: Engine, model: Path
) -> None:
    batch = prompts()
    temperature = torch.tensor([0.3, 0.7, 1.0, 1.5, 1.0], dtype=torch.float64)
    batch = batch.union(DataProto.from_single_dict({"temperature": temperature}))
    config = {"max_new_tokens": 12, "num_return_sequences": 2, "top_p": 0.8, "top_k": 20, **ENDLESS}
    answers = engine.generate(batch, config)
    reference = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    wanted = expected_log_probs(reference, batch, answers, temperature)
    torch.testing.assert_close(column(answers, "infer_logprobs"), wanted, atol=2e-5, rtol=1e-5)
    assert set(answers.non_tensor_batch["finish_reasons"]) == {"length"}


def test_the_contract_of_generation_holds(engine: Engine) -> None:
    check_generation(lambda batching: engine, vocab_size=VOCAB_SIZE)


def test_a_row_draws_the_same_tokens_in_whatever_batch_it_stands(engine: Engine) -> None:
    batch = prompts().union(DataProto.from_single_dict({"seeds": torch.arange(5) + 100}))
    config = {"max_new_tokens": 10, "num_return_sequences": 2, **ENDLESS}
    together = column(engine.generate(batch, config), "responses").view(5, 2, 10)
    order = [3, 0, 4]
    apart = column(engine.generate(batch.select_idxs(order), config), "responses").view(3, 2, 10)
    assert torch.equal(apart, together[order])
    assert not torch.equal(together[:, 0], together[:, 1]), "two answers to a prompt must be two draws"


def test_a_stop_token_ends_an_answer_and_belongs_to_it(engine: Engine) -> None:
    batch = prompts()
    free = column(engine.generate(batch, {"max_new_tokens": 8, "do_sample": False, **ENDLESS}), "responses")
    stop = int(free[0, 3])
    answers = engine.generate(
        batch, {"max_new_tokens": 8, "do_sample": False, "eos_token_id": stop, "pad_token_id": 1}
    )
    first = int((free[0] == stop).nonzero()[0])
    assert int(column(answers, "response_lengths")[0]) == first + 1
    assert column(answers, "responses")[0].tolist() == [*free[0, : first + 1].tolist(), *[1] * (7 - first)]
    assert answers.non_tensor_batch["finish_reasons"][0] == "stop"


def test_answers_end_with_the_tokens_that_the_generation_settings_of_the_model_name(engine: Engine) -> None:
    batch = prompts(rows=6)
    config = {"max_new_tokens": 60, "num_return_sequences": 4, "temperature": 2.0}
    answers = engine.generate(batch, config)
    responses, lengths = column(answers, "responses"), column(answers, "response_lengths")
    ends = responses[torch.arange(24), lengths - 1].tolist()
    reasons = answers.non_tensor_batch["finish_reasons"]
    assert [reason == "stop" for reason in reasons] == [end in STOP_IDS for end in ends]
    assert set(STOP_IDS) <= set(ends), "each of the two ends some answer"
    past = torch.arange(60)[None] >= lengths[:, None]
    assert bool((responses[past] == PAD_ID).all())


def test_a_stream_gives_the_same_tokens_and_an_aborted_prompt_keeps_what_it_has(
    engine: Engine,
) -> None:
    batch = prompts().union(
        DataProto.from_single_dict({"request_ids": np.array(list("abcde"), dtype=object)})
    )
    config = {"max_new_tokens": 6, "num_return_sequences": 2, **ENDLESS}
    whole = engine.generate(batch, config)
    streamed: dict[int, list[int]] = {}
    for answer, token in engine.stream(batch, config):
        streamed.setdefault(answer, []).append(token)
    assert [streamed[row] for row in range(10)] == column(whole, "responses").tolist()
    names = list("abcde")
    with engine.requests.working_on(names):
        running = engine._requests(batch, config)
        for taken, _ in enumerate(running.tokens(lambda: engine._aborted(names))):
            if taken == 20:
                engine.abort_requests(["b"])
    assert len(engine.requests) == 0
    reasons = list(running.answers.batch().non_tensor_batch["finish_reasons"])
    lengths = column(running.answers.batch(), "response_lengths").tolist()
    assert reasons == ["abort" if row in (2, 3) else "length" for row in range(10)]
    assert all(lengths[row] < 6 for row in (2, 3))
    assert all(lengths[row] == 6 for row in range(10) if row not in (2, 3))
    assert engine.engine.get_num_unfinished_requests() == 0


def test_a_prompt_that_is_too_long_is_refused_and_leaves_nothing_running(engine: Engine) -> None:
    with pytest.raises(BatchError, match=r"row 0: .* needs 130 .* max_model_len = 128"):
        engine.generate(prompts(rows=3, width=126), {"max_new_tokens": 4})
    assert engine.engine.get_num_unfinished_requests() == 0


def test_what_vllm_refuses_is_told_by_row_and_leaves_nothing_running(engine: Engine) -> None:
    with pytest.raises(BatchError, match=r"row 0: vLLM refuses the request: .*out-of-vocab"):
        engine.generate(prompts(), {"max_new_tokens": 4, "eos_token_id": VOCAB_SIZE})
    assert engine.engine.get_num_unfinished_requests() == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gpu_memory_utilisation": 0.5}, "did you mean 'gpu_memory_utilization'"),
        ({"dtype": "bfloat16"}, "takes this from model_args.dtype"),
        ({"logprobs_mode": "raw_logprobs"}, "before top-k and top-p"),
        ({"digest": "half"}, "must be 'sampled' or 'full', got 'half'"),
    ],
)
def test_an_option_that_vllm_or_we_do_not_take_is_refused(
    model: Path, options: dict[str, object], words: str
) -> None:
    with pytest.raises(StrategyConfigError, match=words):
        make_engine(model, **options)


def test_what_the_engine_cannot_do_is_refused(engine: Engine, model: Path) -> None:
    settings = replace(engine.context, batching=replace(engine.context.batching, packing=True))
    with pytest.raises(StrategyConfigError, match="cannot do packing"):
        build_strategy(settings)
    with pytest.raises(UnsupportedOperation, match="forward_step"):
        engine.forward_step(prompts(), lambda data, out: (out.sum(), {}))
    with pytest.raises(UnsupportedOperation, match="cannot sleep"):
        engine.offload_states()
