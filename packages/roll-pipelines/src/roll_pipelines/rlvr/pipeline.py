"""Reinforcement learning with verifiable rewards: answer problems, judge the answers, learn."""

import copy
import dataclasses
import logging
from typing import ClassVar

from transformers import AutoTokenizer

from roll_pipelines.advantages import token_advantages
from roll_pipelines.base import BasePipeline
from roll_pipelines.columns import tensor
from roll_pipelines.data.model_source import first_weights, give_model
from roll_pipelines.data.problems import ProblemSource, ProblemStream, held_out_problems
from roll_pipelines.rlvr.config import RLVRConfig
from roll_pipelines.rlvr.evaluation import Evaluation, evaluation, rollout_metrics
from roll_pipelines.rlvr.schemas import SCHEMAS, TRAIN
from roll_pipelines.rlvr.warm_up import is_warmed_up, warm_up, warm_up_directory
from roll_pipelines.rollouts import pad_id, prompt_batch, training_rows
from roll_protocol import DataProto, DataSchema, reduce_metrics

WARM_UP_OFFSET = 500_000_003
"""The problems of the warm-up come from other seeds than those of reinforcement learning."""
EVALUATION_STEP = -1

logger = logging.getLogger(__name__)


class RLVRPipeline(BasePipeline):
    """A policy that learns from the rewards of its own answers."""

    config_cls: ClassVar[type[RLVRConfig]] = RLVRConfig
    schemas: ClassVar[tuple[DataSchema, ...]] = SCHEMAS
    """The columns that each step needs and produces."""
    pipeline_config: RLVRConfig
    newest: Evaluation | None = None
    """What was measured last between steps, and so after the last one, unless `eval_steps` is 0."""

    def __init__(self, pipeline_config: RLVRConfig) -> None:
        """Warms the model up when it is asked to, and starts the roles.

        Args:
            pipeline_config: the configuration.
        """
        super().__init__(copy.deepcopy(pipeline_config))
        config = self.pipeline_config
        self.held_out = held_out_problems(config.task, seed=config.seed)
        self.prepare_model()
        self.stream = self.problem_stream(config.seed, position=int(str(self.state.kv.get("position", 0))))
        roles = config.started_roles()
        roles.pop("warm_up", None)  # it has come and gone
        clusters = self.start_roles(roles)
        self.actor_train, self.actor_infer = clusters["actor_train"], clusters["actor_infer"]
        self.reward, self.reference = clusters["reward"], clusters.get("reference")
        self.set_model_update_pair(self.actor_train, self.actor_infer)
        self.set_checkpoint_clusters(self.actor_train)

    def run(self) -> None:
        """Learns from one batch of problems a step; measures accuracy before, between and after."""
        config = self.pipeline_config
        self.model_update(self.state.step + 1)
        if self.state.step < 0:
            self.keep(self.evaluate(), "before")
        for step in self.steps():
            with self.timed("step_seconds"):
                prompts = self.prompts(step)
                rows = self.answer(prompts, config.group_size)
                rows.meta_info |= {"global_step": step, "mini_batches": config.mini_batches()}
                rows.meta_info["temperature"] = config.actor_infer.generating_args.temperature
                with self.timed("log_probs"):
                    self.score(rows)
                rows["advantages"] = token_advantages(
                    tensor(rows, "rewards"),
                    tensor(rows, "response_mask"),
                    group_size=config.group_size,
                    estimator=config.adv_estimator,
                    reward_clip=config.reward_clip,
                    advantage_clip=config.advantage_clip,
                )
                TRAIN.validate(rows)
                self.turns.give(self.actor_train)
                with self.timed("train"):
                    learnt = self.actor_train.train_step(rows)
                metrics = reduce_metrics(learnt.meta_info["metrics"])
                metrics |= rollout_metrics(rows, group_size=config.group_size)
                metrics |= self.model_update(step + 1)
            self.end_step(step, metrics | self.throughput(rows))
        self.keep(self.newest or self.evaluate(), "after")
        self.summary |= {name: value for name, value in self.state.kv.items() if name.startswith("eval_")}
        self.write_summary()

    # -- the parts of a step

    def prompts(self, step: int) -> DataProto:
        """Returns the problems of a step; the position after them is part of the next checkpoint."""
        config = self.pipeline_config
        problems = self.stream.take(config.rollout_batch_size)
        self.state.kv["position"] = self.stream.position
        assert config.prompt_length is not None, "a rule of the configuration demands it"
        return prompt_batch(
            problems, self.tokenizer, prompt_length=config.prompt_length, seed=config.seed, step=step
        )

    def answer(self, prompts: DataProto, count: int, **changes: object) -> DataProto:
        """Returns judged answers as training rows, those of a prompt together.

        Args:
            prompts: what `prompt_batch` returned.
            count: answers to each prompt.
            changes: settings of generation that differ from those of `actor_infer`.
        """
        config = self.pipeline_config
        wanted = dataclasses.asdict(config.actor_infer.generating_args) | {
            "max_new_tokens": config.response_length
        }
        prompts.meta_info["generation_config"] = wanted | {"num_return_sequences": count} | changes
        self.turns.give(self.actor_infer)
        with self.timed("generate"):
            answers = self.actor_infer.generate(prompts)
        rows = training_rows(prompts, answers, group_size=count, pad_token_id=pad_id(self.tokenizer))
        with self.timed("judge"):
            return rows.union(self.reward.compute_rewards(rows))

    def score(self, rows: DataProto) -> None:
        """Adds the log-probabilities of the answers under the policy and, when there is one, the reference.

        Args:
            rows: training rows; they get `old_log_probs` and `ref_log_probs`.
        """
        self.turns.give(self.actor_train, *([self.reference] if self.reference else []))
        pending = self.reference.compute_log_probs(rows, blocking=False) if self.reference else None
        scored = {"old_log_probs": tensor(self.actor_train.compute_log_probs(rows), "log_probs")}
        if pending is not None:
            scored["ref_log_probs"] = tensor(pending.result(), "log_probs")
        elif self.pipeline_config.kl_loss_coef:
            plain = rows.select()
            plain.meta_info["disable_adapter"] = True
            scored["ref_log_probs"] = tensor(self.actor_train.compute_log_probs(plain), "log_probs")
        rows.update(scored)

    def validate(self) -> dict[str, float]:
        """Returns accuracy on the held-out problems; the last step's is what the summary says of the run."""
        found = self.newest = self.evaluate()
        return {"eval/accuracy": found.accuracy, "eval/greedy_accuracy": found.greedy_accuracy}

    def evaluate(self) -> Evaluation:
        """Measures accuracy on the held-out problems with the weights that `actor_infer` holds."""
        config, validation = self.pipeline_config, self.pipeline_config.validation
        assert config.prompt_length is not None, "a rule of the configuration demands it"
        prompts = prompt_batch(
            self.held_out,
            self.tokenizer,
            prompt_length=config.prompt_length,
            seed=config.seed,
            step=EVALUATION_STEP,
        )
        drawn = self.answer(prompts, validation.num_samples, temperature=validation.temperature)
        greedy = self.answer(prompts, 1, do_sample=False)
        return evaluation(drawn, greedy, self.tokenizer, shown=validation.num_shown)

    def keep(self, found: Evaluation, when: str) -> None:
        """Keeps an evaluation for the summary and the report.

        Args:
            found: the evaluation.
            when: `before` or `after`.
        """
        self.add_samples(when, found.samples)
        self.state.kv[f"eval_accuracy_{when}_rl"] = found.accuracy
        self.state.kv[f"eval_greedy_accuracy_{when}_rl"] = found.greedy_accuracy
        logger.info("accuracy on %d held-out problems %s: %.3f", len(self.held_out), when, found.accuracy)

    def throughput(self, rows: DataProto) -> dict[str, float]:
        """Returns the tokens of a step's rows per second of it; a time, so it differs from run to run."""
        tokens = int(tensor(rows, "attention_mask").sum())
        return {"time/tokens_per_second": tokens / self._seconds["step_seconds"]}

    # -- the start of a run

    def prepare_model(self) -> None:
        """Finds or builds the model that all roles start from, and loads its tokenizer."""
        config, run_dir = self.pipeline_config, self.run_directory.root
        model = first_weights(config, run_dir)
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        if config.warm_up.steps:
            give_model(config.warm_up, model, instead_of=config.pretrain)
            if not is_warmed_up(run_dir):
                self.warm_up()
            model = str(warm_up_directory(run_dir))
        for path, role in config.roles().items():
            if path != "warm_up":
                give_model(role, model, instead_of=config.pretrain)

    def warm_up(self) -> None:
        """Runs the supervised steps before reinforcement learning, on workers that end afterwards."""
        config = self.pipeline_config
        assert config.sequence_length is not None, "derived from prompt_length and response_length"
        cluster = self.start_roles({"warm_up": config.warm_up})["warm_up"]
        metrics = warm_up(
            cluster,
            config.warm_up,
            self.problem_stream(config.seed + WARM_UP_OFFSET),
            self.tokenizer,
            steps=config.warm_up.steps,
            max_length=config.sequence_length,
            run_dir=self.run_directory.root,
        )
        cluster.close()
        logger.info("warmed up for %d steps, loss %.3f", config.warm_up.steps, metrics["warm_up/loss"])

    def problem_stream(self, seed: int, *, position: int = 0) -> ProblemStream:
        """Returns the problems of a seed without those that are held out."""
        held_out = [problem.prompt for problem in self.held_out]
        return ProblemStream(
            ProblemSource(self.pipeline_config.task, seed=seed), held_out=held_out, position=position
        )
