"""From problems to prompts and from answers to training rows: masks come from lengths only."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_pipelines.columns import MissingColumnError, objects, tensor
from roll_pipelines.data import Problem, character_tokenizer
from roll_pipelines.rollouts import answer_texts, pad_id, prompt_batch, row_seeds, training_rows
from roll_protocol import DataProto, object_array

TOKENIZER = character_tokenizer("ab=")
PAD, EOS, A, B, EQ = 0, 1, 3, 4, 5


def problems(*prompts: str) -> list[Problem]:
    return [Problem(prompt=prompt, answer=prompt[::-1], entry={"q": prompt}) for prompt in prompts]


def generated(rows: list[list[int]], *, width: int, pad: int = PAD, reason: str = "stop") -> DataProto:
    """What `generate` returns for answers of these tokens."""
    responses = torch.full((len(rows), width), pad)
    log_probs = torch.zeros(len(rows), width)
    for number, row in enumerate(rows):
        responses[number, : len(row)] = torch.tensor(row, dtype=torch.int64)
        log_probs[number, : len(row)] = -0.5 - torch.arange(len(row)).float()
    return DataProto.from_single_dict(
        {
            "responses": responses,
            "response_lengths": torch.tensor([len(row) for row in rows]),
            "infer_logprobs": log_probs,
            "finish_reasons": object_array([reason] * len(rows)),
        }
    )


def prompts_of(*texts: str) -> DataProto:
    return prompt_batch(problems(*texts), TOKENIZER, prompt_length=4, seed=0, step=0)


def test_prompts_are_padded_on_the_left() -> None:
    batch = prompts_of("ab=", "a=")
    assert tensor(batch, "input_ids").tolist() == [[PAD, A, B, EQ], [PAD, PAD, A, EQ]]
    assert tensor(batch, "attention_mask").tolist() == [[0, 1, 1, 1], [0, 0, 1, 1]]
    assert objects(batch, "expected").tolist() == ["=ba", "=a"]


@pytest.mark.parametrize("text", ["abab=", ""])
def test_a_prompt_that_does_not_fit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="prompt_length allows 1 to 4; raise prompt_length"):
        prompts_of(text)


def test_seeds_depend_on_run_step_and_row_and_on_nothing_else() -> None:
    first = row_seeds(0, 3, 4)
    assert torch.equal(first, row_seeds(0, 3, 6)[:4])
    seen = torch.cat([row_seeds(seed, step, 50) for seed in (0, 1) for step in (-1, 0, 1)])
    assert len(set(seen.tolist())) == 300


def test_rows_hold_prompt_and_answer_without_a_gap() -> None:
    rows = training_rows(
        prompts_of("ab=", "a="), generated([[B, A, EOS], [A, EOS]], width=3), group_size=1, pad_token_id=PAD
    )
    assert tensor(rows, "input_ids").tolist() == [[A, B, EQ, B, A, EOS, PAD], [A, EQ, A, EOS, PAD, PAD, PAD]]
    assert tensor(rows, "attention_mask").tolist() == [[1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 0, 0, 0]]
    assert tensor(rows, "response_mask").tolist() == [[0, 0, 0, 1, 1, 1, 0], [0, 0, 1, 1, 0, 0, 0]]
    assert tensor(rows, "position_ids").tolist() == [[0, 1, 2, 3, 4, 5, 0], [0, 1, 2, 3, 0, 0, 0]]


def test_log_probs_of_the_engine_stand_where_their_tokens_are_predicted() -> None:
    rows = training_rows(prompts_of("a="), generated([[B, EOS]], width=3), group_size=1, pad_token_id=PAD)
    assert tensor(rows, "infer_logprobs").tolist() == [[0.0, -0.5, -1.5, 0.0, 0.0, 0.0]]


def test_padding_ids_inside_an_answer_are_part_of_it() -> None:
    rows = training_rows(
        prompts_of("a="), generated([[PAD, A, PAD, EOS]], width=5), group_size=1, pad_token_id=PAD
    )
    assert tensor(rows, "response_mask").tolist() == [[0, 0, 1, 1, 1, 1, 0, 0, 0]]
    assert tensor(rows, "input_ids").tolist() == [[A, EQ, PAD, A, PAD, EOS, PAD, PAD, PAD]]


def test_the_end_token_is_learnt_when_it_is_also_the_padding_token() -> None:
    prompts = prompts_of("a=", "a=")
    answers = generated([[B, EOS], [EOS]], width=3, pad=EOS)
    rows = training_rows(prompts, answers, group_size=1, pad_token_id=EOS)
    assert tensor(rows, "response_mask").tolist() == [[0, 0, 1, 1, 0, 0, 0], [0, 0, 1, 0, 0, 0, 0]]


def test_an_answer_without_a_token_has_no_mask_and_changes_nothing_else() -> None:
    rows = training_rows(
        prompts_of("a="), generated([[]], width=2, reason="abort"), group_size=1, pad_token_id=PAD
    )
    assert tensor(rows, "response_mask").sum() == 0
    assert tensor(rows, "input_ids").tolist() == [[A, EQ, PAD, PAD, PAD, PAD]]


def test_answers_to_one_prompt_stand_together_with_its_objects() -> None:
    answers = generated([[A, EOS], [B, EOS], [A, EOS], [EOS]], width=2)
    rows = training_rows(prompts_of("a=", "b="), answers, group_size=2, pad_token_id=PAD)
    assert objects(rows, "prompt").tolist() == ["a=", "a=", "b=", "b="]
    assert [entry["q"] for entry in objects(rows, "entry")] == ["a=", "a=", "b=", "b="]


def test_another_number_of_answers_than_asked_for_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"2 prompts with 2 answers each make 4 rows, but generate returned 2"
    ):
        training_rows(prompts_of("a=", "b="), generated([[A], [B]], width=1), group_size=2, pad_token_id=PAD)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text("ab", min_size=1, max_size=4), st.lists(st.sampled_from([PAD, EOS, A, B]), max_size=5)
        ),
        min_size=1,
        max_size=5,
    )
)
def test_the_masked_tokens_are_exactly_the_answer_whatever_they_are(
    rows: list[tuple[str, list[int]]],
) -> None:
    prompts = prompts_of(*[text for text, _ in rows])
    batch = training_rows(
        prompts, generated([tokens for _, tokens in rows], width=5), group_size=1, pad_token_id=PAD
    )
    ids, answered, real = (tensor(batch, name) for name in ("input_ids", "response_mask", "attention_mask"))
    for number, (text, tokens) in enumerate(rows):
        assert ids[number][answered[number] != 0].tolist() == tokens
        assert ids[number][real[number] != 0].tolist() == [*TOKENIZER(text).input_ids, *tokens]


def test_texts_are_cut_at_their_length_and_leave_special_tokens_out() -> None:
    rows = generated([[A, B, EOS], [A, PAD, B]], width=4, pad=A)
    assert answer_texts(rows, TOKENIZER) == ["ab", "ab"]


def test_a_tokenizer_without_padding_pads_with_its_end_token() -> None:
    tokenizer = character_tokenizer("ab")
    tokenizer.pad_token = None
    assert pad_id(tokenizer) == EOS
    tokenizer.eos_token = None
    with pytest.raises(ValueError, match="neither a padding nor an end token"):
        pad_id(tokenizer)


def test_a_missing_column_is_named_with_those_that_are_there() -> None:
    with pytest.raises(MissingColumnError, match="no tensor column 'rewards'; it has responses"):
        tensor(generated([[A]], width=1), "rewards")
    with pytest.raises(MissingColumnError, match="no array column 'responses'"):
        objects(generated([[A]], width=1), "responses")
