"""A caller that reads outputs through operations only lets the engine leave padding out."""

from pathlib import Path

import torch
from torch import Tensor

from roll_protocol import DataProto
from roll_strategies import BatchSettings, ModelSettings, StrategyContext, build_strategy


def test_padding_that_all_rows_of_a_micro_batch_have_is_not_computed_and_changes_nothing(tiny: Path) -> None:
    context = StrategyContext(
        strategy_name="fsdp2_infer",
        model_args=ModelSettings(model_name_or_path=str(tiny)),
        batching=BatchSettings(infer_rows=2),
    )
    strategy = build_strategy(context)
    strategy.initialize()
    lengths = torch.tensor([3, 5, 9, 4])
    mask = (torch.arange(9) < lengths[:, None]).long()
    ids = torch.randint(1, 48, (4, 9), generator=torch.Generator().manual_seed(0)) * mask
    widths: list[int] = []

    def score(data: DataProto, output: Tensor) -> tuple[Tensor, dict[str, object]]:
        assert data.batch is not None
        widths.append(output.shape[1])
        found = strategy.op_compute_log_probs(output, data.batch["input_ids"], data.batch["attention_mask"])
        return found.sum(), {"log_probs": found}

    whole, cut = (
        strategy.forward_step(
            DataProto.from_single_dict({"input_ids": ids, "attention_mask": mask}, meta_info=meta), score
        )
        for meta in ({}, {"any_layout": True})
    )
    assert whole is not None
    assert cut is not None
    assert widths == [9, 9, 5, 9]
    real = mask[:, 1:].bool()
    first, second = (torch.as_tensor(found["log_probs"])[real] for found in (whole, cut))
    torch.testing.assert_close(second, first, atol=1e-6, rtol=0.0)
