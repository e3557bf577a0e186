"""From problems to prompts, and from answers to training rows."""

from roll_pipelines.rollouts.batches import answer_texts, pad_id, prompt_batch, row_seeds, training_rows

__all__ = ["answer_texts", "pad_id", "prompt_batch", "row_seeds", "training_rows"]
