"""Accuracy and what a step's answers were like, against hand-computed numbers."""

import torch

from roll_pipelines.data import character_tokenizer
from roll_pipelines.rlvr.evaluation import evaluation, rollout_metrics, share_right
from roll_protocol import DataProto, object_array

TOKENIZER = character_tokenizer("ab=")


def judged(rewards: list[float]) -> DataProto:
    count = len(rewards)
    return DataProto.from_single_dict(
        {
            "responses": torch.tensor([[3, 4, 1]] * count),
            "response_lengths": torch.tensor([3, 2] * count)[:count],
            "rewards": torch.tensor(rewards),
            "prompt": object_array([f"p{i}" for i in range(count)]),
            "expected": object_array(["ab"] * count),
            "finish_reasons": object_array((["stop", "length"] * count)[:count]),
        }
    )


def test_only_a_reward_of_one_or_more_is_a_right_answer() -> None:
    assert share_right(torch.tensor([1.0, 0.99, 0.0, 2.0])) == 0.5


def test_accuracy_counts_all_answers_and_samples_show_the_first_problems() -> None:
    found = evaluation(judged([1.0, 0.0, 0.0, 0.0]), judged([1.0, 0.0]), TOKENIZER, shown=1)
    assert (found.accuracy, found.greedy_accuracy) == (0.25, 0.5)
    assert found.samples == [{"prompt": "p0", "response": "ab", "expected": "ab", "correct": True}]


def test_more_samples_than_there_are_answers_shows_all() -> None:
    assert len(evaluation(judged([1.0]), judged([1.0, 0.0]), TOKENIZER, shown=9).samples) == 2


def test_metrics_of_a_step_have_the_values_computed_by_hand() -> None:
    rows = judged([1.0, 0.0, 0.0, 0.0])
    rows["infer_logprobs"] = torch.tensor([[0.0, -1.0]] * 4)
    rows["old_log_probs"] = torch.tensor([[0.0, -1.0]] * 3 + [[0.0, -1.5]])
    found = rollout_metrics(rows, group_size=2)
    assert found == {
        "rollout/reward": 0.25,
        "rollout/reward_std": (3 / 16) ** 0.5,
        "rollout/response_length": 2.5,
        "rollout/finished": 0.5,
        "rollout/train_infer_difference": 0.5,
        "rollout/groups_with_signal": 0.5,
    }
