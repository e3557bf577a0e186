"""Scoring and sampling with a Hugging Face model in one process."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

from roll_protocol import DataProto, object_array
from roll_strategies import (
    BatchError,
    BatchSettings,
    ModelNotFound,
    ModelSettings,
    StrategyConfigError,
    StrategyContext,
    build_strategy,
)
from roll_strategies.hf import HfInferStrategy
from roll_strategies.running import RunningRequests


def strategy_for(directory: Path, *, rows: int = 8, seed: int = 5) -> HfInferStrategy:
    context = StrategyContext(
        strategy_name="hf_infer",
        model_args=ModelSettings(model_name_or_path=str(directory)),
        batching=BatchSettings(infer_rows=rows),
        seed=seed,
    )
    strategy = build_strategy(context)
    assert isinstance(strategy, HfInferStrategy)
    strategy.initialize()
    return strategy


@pytest.fixture(scope="module")
def strategy(tiny: Path) -> HfInferStrategy:
    return strategy_for(tiny)


def prompts(lengths: list[int], *, width: int = 6, seed: int = 1, **columns: Tensor) -> DataProto:
    draws = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, 48, (len(lengths), width), generator=draws)
    mask = (torch.arange(width)[None] >= width - torch.tensor(lengths)[:, None]).long()
    return DataProto.from_single_dict({"input_ids": ids * mask, "attention_mask": mask, **columns})


def column(batch: DataProto, name: str) -> Tensor:
    assert batch.batch is not None
    value = batch.batch[name]
    assert isinstance(value, Tensor)
    return value


def test_greedy_answers_equal_those_of_transformers(strategy: HfInferStrategy) -> None:
    batch = prompts([6, 2, 4, 1, 5])
    ours = strategy.generate(batch, {"max_new_tokens": 7, "temperature": 0})
    model = strategy.unwrap_model()
    theirs = model.generate(  # type: ignore[operator]  # a transformers model
        input_ids=column(batch, "input_ids"),
        attention_mask=column(batch, "attention_mask"),
        do_sample=False,
        max_new_tokens=7,
        pad_token_id=0,
    )
    assert torch.equal(column(ours, "responses"), theirs[:, 6:])
    assert column(ours, "response_lengths").tolist() == [7] * 5
    assert list(ours.non_tensor_batch["finish_reasons"]) == ["length"] * 5


def test_a_row_draws_the_same_tokens_in_whatever_batch_it_stands(
    strategy: HfInferStrategy, tiny: Path
) -> None:
    seeds = torch.arange(100, 106)
    batch = prompts([6, 2, 4, 1, 5, 3], seeds=seeds)
    config = {"max_new_tokens": 8, "temperature": 1.3, "num_return_sequences": 2}
    together = strategy.generate(batch, config)
    for row in (0, 3, 5):
        alone = strategy.generate(batch.select_idxs([row]), config)
        assert torch.equal(column(alone, "responses"), column(together, "responses")[2 * row : 2 * row + 2])
    backwards = strategy_for(tiny, rows=2, seed=77).generate(batch.select_idxs([5, 4, 3, 2, 1, 0]), config)
    turned = column(together, "responses").reshape(6, 2, 8).flip(0).reshape(12, 8)
    assert torch.equal(column(backwards, "responses"), turned)


def test_answers_to_one_prompt_differ_and_stand_beside_each_other(strategy: HfInferStrategy) -> None:
    batch = prompts([6, 6], seeds=torch.tensor([1, 2]))
    answers = column(strategy.generate(batch, {"max_new_tokens": 8, "num_return_sequences": 3}), "responses")
    single = column(strategy.generate(batch, {"max_new_tokens": 8}), "responses")
    assert answers.shape == (6, 8)
    assert torch.equal(answers[[0, 3]], single)
    assert not torch.equal(answers[0], answers[1])


def test_reported_log_probs_are_those_of_scoring_at_the_same_temperature(strategy: HfInferStrategy) -> None:
    batch = prompts([6, 2, 4], seeds=torch.tensor([7, 8, 9]))
    answers = strategy.generate(batch, {"max_new_tokens": 5, "temperature": 0.7, "top_k": 4, "top_p": 0.9})
    ids = torch.cat([column(batch, "input_ids"), column(answers, "responses")], 1)
    mask = torch.cat([column(batch, "attention_mask"), torch.ones(3, 5, dtype=torch.int64)], 1)
    scored = strategy.forward_step(
        DataProto.from_single_dict({"input_ids": ids, "attention_mask": mask}),
        lambda data, out: (
            out,
            {
                "lp": strategy.op_compute_log_probs(
                    out, column(data, "input_ids"), column(data, "attention_mask"), temperature=0.7
                )
            },
        ),
    )
    assert scored is not None
    torch.testing.assert_close(scored["lp"][:, 5:], column(answers, "infer_logprobs"), atol=2e-6, rtol=0)  # type: ignore[index]  # a tensor


def test_draws_follow_the_model_distribution(strategy: HfInferStrategy) -> None:
    count = 3000
    batch = prompts([6])
    answers = strategy.generate(
        batch, {"max_new_tokens": 1, "num_return_sequences": count, "temperature": 1.0}
    )
    model = strategy.unwrap_model()
    with torch.no_grad():
        probs = model(input_ids=column(batch, "input_ids")).logits[0, -1].softmax(-1)
    seen = torch.bincount(column(answers, "responses")[:, 0], minlength=48)
    expected = probs * count
    likely = expected > 5
    chi = ((seen - expected)[likely] ** 2 / expected[likely]).sum()
    # 99.99 % of a chi-squared distribution lie below mean + 5 standard deviations.
    assert chi < likely.sum() + 5 * (2 * likely.sum()) ** 0.5


def test_top_k_and_top_p_leave_only_the_most_likely_tokens(strategy: HfInferStrategy) -> None:
    batch = prompts([6])
    model = strategy.unwrap_model()
    with torch.no_grad():
        probs = model(input_ids=column(batch, "input_ids")).logits[0, -1].softmax(-1)
    ranked = probs.argsort(descending=True)
    config = {"max_new_tokens": 1, "num_return_sequences": 400, "temperature": 1.0}
    three = set(column(strategy.generate(batch, {**config, "top_k": 3}), "responses")[:, 0].tolist())
    assert three == set(ranked[:3].tolist())
    mass = float(probs[ranked[0]] + 0.5 * probs[ranked[1]])
    two = set(column(strategy.generate(batch, {**config, "top_p": mass}), "responses")[:, 0].tolist())
    assert two == set(ranked[:2].tolist())


def test_columns_of_the_batch_override_the_configuration_row_by_row(strategy: HfInferStrategy) -> None:
    batch = prompts(
        [6, 6, 6],
        temperature=torch.tensor([0.0, 1.0, 0.0]),
        max_new_tokens=torch.tensor([2, 4, 3]),
        seeds=torch.tensor([1, 1, 1]),
    )
    answers = strategy.generate(batch, {"max_new_tokens": 4})
    greedy = column(
        strategy.generate(prompts([6, 6, 6]), {"max_new_tokens": 4, "temperature": 0}), "responses"
    )
    assert column(answers, "response_lengths").tolist() == [2, 4, 3]
    assert torch.equal(column(answers, "responses")[0, :2], greedy[0, :2])
    assert torch.equal(column(answers, "responses")[2, :3], greedy[2, :3])
    assert column(answers, "responses")[0, 2:].tolist() == [0, 0]
    assert column(answers, "infer_logprobs")[0, 2:].tolist() == [0.0, 0.0]


def test_an_answer_ends_with_its_stop_token_and_says_so(strategy: HfInferStrategy) -> None:
    batch = prompts([6, 3])
    free = column(strategy.generate(batch, {"max_new_tokens": 6, "temperature": 0}), "responses")
    stop = int(free[0, 2])
    answers = strategy.generate(batch, {"max_new_tokens": 6, "temperature": 0, "eos_token_id": [stop]})
    length = free[0].tolist().index(stop) + 1
    assert column(answers, "response_lengths")[0] == length
    assert column(answers, "responses")[0, length - 1] == stop
    assert answers.non_tensor_batch["finish_reasons"][0] == "stop"


def test_a_repetition_penalty_equals_that_of_transformers(strategy: HfInferStrategy) -> None:
    batch = prompts([6, 2])
    ours = strategy.generate(batch, {"max_new_tokens": 6, "temperature": 0, "repetition_penalty": 1.8})
    theirs = strategy.unwrap_model().generate(  # type: ignore[operator]  # a transformers model
        input_ids=column(batch, "input_ids")[:1],
        attention_mask=column(batch, "attention_mask")[:1],
        do_sample=False,
        max_new_tokens=6,
        repetition_penalty=1.8,
        pad_token_id=0,
    )
    assert torch.equal(column(ours, "responses")[:1], theirs[:, 6:])


def test_a_stream_yields_the_tokens_of_generate_while_they_are_sampled(strategy: HfInferStrategy) -> None:
    batch = prompts([6, 3], seeds=torch.tensor([1, 2]))
    config = {"max_new_tokens": 6, "temperature": 1.0, "num_return_sequences": 2}
    whole = strategy.generate(batch, config)
    streamed: dict[int, list[int]] = {}
    order = []
    for answer, token in strategy.stream(batch, config):
        streamed.setdefault(answer, []).append(token)
        order.append(answer)
    for answer, row in enumerate(column(whole, "responses")):
        assert streamed[answer] == row[: int(column(whole, "response_lengths")[answer])].tolist()
    assert set(order[:4]) == {0, 1, 2, 3}, "every answer grows from the first step on"


def test_aborted_answers_keep_the_tokens_that_they_have(strategy: HfInferStrategy) -> None:
    batch = prompts([6, 3], seeds=torch.tensor([1, 2]))
    batch.non_tensor_batch["request_ids"] = object_array(["first", "second"])
    config = {"max_new_tokens": 6, "temperature": 1.0}
    whole = column(strategy.generate(batch, config), "responses")
    into: list[object] = []
    for index, _ in enumerate(strategy.stream(batch, config, into)):  # type: ignore[arg-type]  # filled with a Generation
        if index == 3:
            strategy.abort_requests(["first"])
    answers = into[0].result()  # type: ignore[attr-defined]  # a Generation
    assert column(answers, "response_lengths").tolist() == [2, 6]
    assert list(answers.non_tensor_batch["finish_reasons"]) == ["abort", "length"]
    assert torch.equal(column(answers, "responses")[0, :2], whole[0, :2])
    assert torch.equal(column(answers, "responses")[1], whole[1])
    again = strategy.generate(batch, config)
    assert list(again.non_tensor_batch["finish_reasons"]) == ["length", "length"]


def test_only_requests_that_run_are_aborted_and_no_name_is_kept_after_its_call(
    strategy: HfInferStrategy,
) -> None:
    batch = prompts([6, 3], seeds=torch.tensor([1, 2]))
    batch.non_tensor_batch["request_ids"] = object_array(["first", "second"])
    config = {"max_new_tokens": 4, "temperature": 1.0}
    strategy.abort_requests(["first", *(f"unknown {number}" for number in range(100))])
    assert len(strategy.requests) == 0
    answers = strategy.generate(batch, config)
    assert list(answers.non_tensor_batch["finish_reasons"]) == ["length", "length"]
    stream = strategy.stream(batch, config)
    next(stream)
    strategy.abort_requests(["second", "unknown"])
    assert len(strategy.requests) == 2
    assert strategy.requests.is_aborted("second")
    stream.close()  # type: ignore[attr-defined]  # a generator
    assert len(strategy.requests) == 0


def test_a_name_that_two_calls_share_can_be_aborted_until_both_have_ended() -> None:
    requests = RunningRequests()
    with requests.working_on(["a", "b"]):
        with requests.working_on(["b"]):
            requests.abort(["b", "c"])
        assert requests.is_aborted("b")
        assert not requests.is_aborted("a")
        assert not requests.is_aborted("c")
    assert len(requests) == 0
    with requests.working_on(["b"]):
        assert not requests.is_aborted("b")


def test_an_empty_batch_gives_no_answers_of_the_usual_width(strategy: HfInferStrategy) -> None:
    answers = strategy.generate(prompts([3]).slice(0, 0), {"max_new_tokens": 4})
    assert column(answers, "responses").shape == (0, 4)


def test_prompts_padded_on_the_right_are_refused(strategy: HfInferStrategy) -> None:
    batch = DataProto.from_single_dict(
        {"input_ids": torch.ones(1, 3, dtype=torch.int64), "attention_mask": torch.tensor([[1, 1, 0]])}
    )
    with pytest.raises(BatchError, match="padded on the left, but the last position of row 0"):
        strategy.generate(batch, {"max_new_tokens": 2})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"max_new_token": 3}, "did you mean 'max_new_tokens'"),
        ({}, "max_new_tokens is not set"),
        ({"max_new_tokens": 0}, "at least 1, got 0"),
        ({"max_new_tokens": 2, "top_p": 1.5}, "top_p must lie between 0 and 1"),
        ({"max_new_tokens": 2, "num_beams": 4}, "no beam search"),
        ({"max_new_tokens": 2, "stop_strings": ["x"]}, "needs a tokenizer"),
    ],
)
def test_a_wrong_generation_config_is_refused(
    strategy: HfInferStrategy, config: dict[str, object], message: str
) -> None:
    with pytest.raises(StrategyConfigError, match=message):
        strategy.generate(prompts([3]), config)


def test_scores_come_back_in_input_order_whatever_the_token_budget(tiny: Path) -> None:
    lengths = [3, 9, 1, 7, 9, 2, 5]
    ids = torch.randint(1, 48, (7, 9), generator=torch.Generator().manual_seed(2))
    mask = (torch.arange(9)[None] < torch.tensor(lengths)[:, None]).long()
    batch = DataProto.from_single_dict({"input_ids": ids * mask, "attention_mask": mask})
    batch.non_tensor_batch["name"] = object_array([f"row {n}" for n in range(7)])
    results = []
    for batching in (
        BatchSettings(infer_rows=7),
        BatchSettings(infer_rows=2),
        BatchSettings(infer_tokens=18),
    ):
        context = StrategyContext(
            strategy_name="hf_infer",
            model_args=ModelSettings(model_name_or_path=str(tiny)),
            batching=batching,
        )
        engine = build_strategy(context)
        engine.initialize()

        def score(data: DataProto, out: Tensor) -> tuple[Tensor, dict[str, object]]:
            lp = engine.op_compute_log_probs(out, column(data, "input_ids"), column(data, "attention_mask"))  # noqa: B023  # called at once
            return out.sum(), {"lp": lp, "names": list(data.non_tensor_batch["name"])}

        scored = engine.forward_step(batch, score)
        assert scored is not None
        assert list(scored["names"]) == [f"row {n}" for n in range(7)]  # type: ignore[call-overload]  # an array
        results.append(scored["lp"])
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], atol=2e-6, rtol=0)


def test_a_missing_model_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"model_name_or_path: no directory '/no/such/place'"):
        strategy_for(Path("/no/such/place"))
    with pytest.raises(ModelNotFound, match=r"has no config\.json"):
        strategy_for(tmp_path)


def test_stop_strings_end_an_answer_at_the_token_that_completes_them(tiny: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = {
        "<pad>": 0,
        **{chr(ord("A") + n): n + 1 for n in range(26)},
        **{chr(ord("a") + n): n + 27 for n in range(21)},
    }
    raw = Tokenizer(models.WordLevel(letters, unk_token="<pad>"))
    raw.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    raw.decoder = decoders.Fuse()
    transformers.AutoModelForCausalLM.from_pretrained(tiny).save_pretrained(tmp_path)
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>")  # type: ignore[no-untyped-call]  # transformers
    wrapped.save_pretrained(tmp_path)
    engine = strategy_for(tmp_path)
    free = column(engine.generate(prompts([6]), {"max_new_tokens": 8, "temperature": 0}), "responses")[
        0
    ].tolist()
    names = {number: letter for letter, number in letters.items()}
    text = names[free[3]] + names[free[4]]
    answers = engine.generate(prompts([6]), {"max_new_tokens": 8, "temperature": 0, "stop_strings": [text]})
    whole = "".join(names[token] for token in free)
    assert int(column(answers, "response_lengths")[0]) == whole.index(text) + 2
    assert list(answers.non_tensor_batch["finish_reasons"]) == ["stop"]


def test_offloaded_parameters_come_back_unchanged_and_by_themselves(tiny: Path) -> None:
    engine = strategy_for(tiny)
    before = {name: value.clone() for name, value in engine.unwrap_model().state_dict().items()}
    engine.offload_states()
    assert all(p.untyped_storage().nbytes() == 0 for p in engine.unwrap_model().parameters())
    engine.load_states(include=["model_params"])
    for name, value in engine.unwrap_model().state_dict().items():
        assert torch.equal(value, before[name])
    engine.offload_states(include=["model_params"])
    answers = engine.generate(prompts([3]), {"max_new_tokens": 2, "temperature": 0})
    assert len(answers) == 1
    with pytest.raises(StrategyConfigError, match="no state is called 'model_parameters'"):
        engine.offload_states(include=["model_parameters"])


def test_draws_of_neighbouring_steps_are_even_and_unrelated() -> None:
    from roll_strategies.hf.sampling import uniforms

    steps = torch.arange(1000)
    draws = uniforms(torch.full((1000,), 3), torch.zeros(1000, dtype=torch.int64), steps).numpy()
    assert 0.0 <= draws.min() < 0.01
    assert 0.99 < draws.max() < 1.0
    assert abs(float(np.corrcoef(draws[:-1], draws[1:])[0, 1])) < 0.1
