"""The base of every pipeline: what a run needs besides its algorithm."""

import copy
import logging
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from roll_executor import Cluster
from roll_pipelines.checkpoints import CheckpointStore, Uploader, resume_step
from roll_pipelines.config.base_config import BaseConfig
from roll_pipelines.config.container import to_container
from roll_pipelines.config.load import check_config, check_engines
from roll_pipelines.config.machine import devices_of
from roll_pipelines.config.worker_config import WorkerConfig
from roll_pipelines.model_files import prepare_models
from roll_pipelines.model_update import ModelUpdatePair
from roll_pipelines.progress import Waiting
from roll_pipelines.random_state import load_random_state, save_random_state, seed_everything
from roll_pipelines.run_directory import TIMELINE_FILE, RunDirectory
from roll_pipelines.runtime_watch import RuntimeWatch, keeping_handler
from roll_pipelines.telemetry import Telemetry
from roll_pipelines.timeline import Timeline
from roll_pipelines.tracking import as_number, create_tracker
from roll_pipelines.transfer import open_transfer
from roll_pipelines.turns import Turns
from roll_pipelines.worker_state import WorkerState
from roll_protocol import DataSchema, field_uses
from roll_resources import ResourceManager

logger = logging.getLogger(__name__)

PIPELINE_ROLE = "pipeline"


class BasePipeline:
    """Seeds, resources, clusters, weight updates, checkpoints and tracking; a subclass writes `run`.

    It is a context manager: leaving it closes trackers, clusters and placement groups, whatever happened.

    Example:
        >>> config = BaseConfig(runtime="local", output_dir="output/doc", track_with=[])
        >>> with BasePipeline(config) as pipeline:
        ...     pipeline.state.step
        -1
    """

    config_cls: ClassVar[type[BaseConfig] | None] = None
    """What `roll run` builds for this pipeline; the annotation of `__init__` when None."""

    schemas: ClassVar[tuple[DataSchema, ...]] = ()
    """The columns that each step needs and produces, in their order: `roll check --fields`."""

    _closed = True
    """Nothing is open before the constructor has come to its end."""

    def __init__(self, pipeline_config: BaseConfig) -> None:
        """Seeds the driver, finds the checkpoint to resume from, opens the run directory and the trackers.

        Args:
            pipeline_config: the configuration.

        Raises:
            ConfigError: the configuration breaks rules, or an engine's library is missing.
            CheckpointNotFoundError: there is nothing to resume from.
            SchemaError: a step needs a column that no earlier step produces.
        """
        check_config(pipeline_config)
        check_engines(pipeline_config)
        field_uses(self.schemas)
        self.pipeline_config = pipeline_config
        self.run_directory = RunDirectory(pipeline_config.run_dir.absolute())
        classes = {"pipeline_cls": type(self), "config_cls": type(pipeline_config)}
        self.run_directory.launcher = {key: to_container(cls) for key, cls in classes.items()}
        self.checkpoint_store = CheckpointStore(
            self.run_directory.checkpoints, keep=pipeline_config.max_ckpt_to_keep
        )
        self.resume_dir: Path | None = self.checkpoint_store.find(pipeline_config.resume_from_checkpoint)
        seed_everything(pipeline_config.seed)
        self.state = WorkerState()
        self.summary: dict[str, object] = {}
        self._clusters: list[Cluster] = []
        self.turns = Turns(enabled=pipeline_config.is_offload_states)
        self._model_update_pairs: list[ModelUpdatePair] = []
        self._checkpoint_clusters: list[Cluster] = []
        self._seconds: dict[str, float] = {}
        self._started = time.perf_counter()
        self.timeline = Timeline(self.run_directory.root / TIMELINE_FILE)
        moved = self.run_directory.open(pipeline_config, resumed=self.resume_dir is not None)
        if moved is not None:
            logger.warning("an earlier run was moved from %s to %s", self.run_directory.root, moved)
        self._resume()
        resumed_at = self.state.step if self.resume_dir is not None else None
        self.tracker = create_tracker(pipeline_config, after_step=resumed_at)
        upload_to = pipeline_config.checkpoint_config.output_dir
        in_background = pipeline_config.checkpoint_config.async_upload
        self._uploader = Uploader(upload_to, in_background=in_background) if upload_to else None
        self.telemetry = Telemetry(pipeline_config.telemetry, self.run_directory.root, who="driver")
        self.resource_manager = ResourceManager(
            num_nodes=pipeline_config.num_nodes,
            num_gpus_per_node=devices_of(pipeline_config),
            runtime=pipeline_config.runtime,
        )
        self.transfer = open_transfer(pipeline_config.transfer_backend, self.run_directory.root)
        self._watch = RuntimeWatch(self.resource_manager.ended_daemons)
        self._closed = False

    def run(self) -> None:
        """Runs the application's loop; a subclass writes it.

        Raises:
            NotImplementedError: the subclass has no `run`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no run(); write the loop there")

    def create_clusters_parallel(
        self, specs: Sequence[tuple[str, str | None, str | type | None, WorkerConfig]]
    ) -> dict[str, Cluster]:
        """Creates several roles at once and returns their clusters by key.

        The models that their strategies load are fetched before, once on every node.

        Args:
            specs: for each role its key in the result, its name, its worker class (or the dotted path) and
                its configuration.

        Raises:
            ModelFilesError: a node lacks a model.
            Exception: what the first role that failed raised, with the role's key as a note.
        """
        # Here and not in the pool: the daemons of a Ray that is started end with the thread that started it.
        with keeping_handler(signal.SIGTERM):  # Ray puts its own in place when it starts
            self.resource_manager.start()
        prepare_models(
            self.resource_manager,
            (role.model_args.model_name_or_path for *_, role in specs if role.strategy_args.strategy_name),
        )
        with (
            ThreadPoolExecutor(max_workers=max(1, len(specs)), thread_name_prefix="create-cluster") as pool,
            Waiting("start workers", [spec[0] for spec in specs]) as waiting,
        ):
            futures = {spec[0]: pool.submit(self._create_cluster, *spec) for spec in specs}
            keys = {future: key for key, future in futures.items()}
            for future in as_completed(keys):
                if future.exception() is None:
                    waiting.done(keys[future])
        failures = {
            key: future.exception() for key, future in futures.items() if future.exception() is not None
        }
        created = {key: future.result() for key, future in futures.items() if key not in failures}
        self._clusters += created.values()
        for key, failure in failures.items():
            assert failure is not None, "only failures are kept"
            failure.add_note(f"while creating the cluster of role {key!r}")
            raise failure
        return created

    def start_roles(self, roles: Mapping[str, WorkerConfig]) -> dict[str, Cluster]:
        """Creates several roles at once, initialises them all, and returns their clusters by key.

        Args:
            roles: the configuration of each role by its key.
        """
        clusters = self.create_clusters_parallel(
            [(key, role.name, role.worker_cls, role) for key, role in roles.items()]
        )
        with Waiting("load models", clusters) as waiting:
            pending = {
                key: cluster.initialize(pipeline_config=self.pipeline_config, blocking=False)
                for key, cluster in clusters.items()
            }
            for key, answers in pending.items():
                answers.result()
                waiting.done(key)
                if roles[key].strategy_args.strategy_name:
                    self.turns.join(clusters[key])
        return clusters

    def _create_cluster(
        self, key: str, name: str | None, worker_cls: str | type | None, worker_config: WorkerConfig
    ) -> Cluster:
        if worker_cls is None:
            raise ValueError(f"role {key!r} has no worker class; set {key}.worker_cls in the configuration")
        told = copy.copy(worker_config)
        told.system_envs = {**self.telemetry.environment(), **worker_config.system_envs}
        return Cluster(
            name=name or key,
            worker_cls=worker_cls,
            resource_manager=self.resource_manager,
            worker_config=told,
            transfer=self.transfer,
        )

    def set_model_update_pair(self, src_cluster: Cluster, tgt_cluster: Cluster, frequency: int = 1) -> None:
        """Declares that one role's weights go to another role; both must be initialised.

        Args:
            src_cluster: the role that learns.
            tgt_cluster: the role that generates.
            frequency: steps between two updates.
        """
        if frequency < 1:
            raise ValueError(f"frequency must be at least 1 step, not {frequency}")
        pair = ModelUpdatePair(src_cluster=src_cluster, tgt_cluster=tgt_cluster, frequency=frequency)
        pair.setup()
        self._model_update_pairs.append(pair)

    def model_update(self, global_step: int) -> dict[str, float]:
        """Sends weights over every pair that is due, and returns how long it took and how much it was.

        Args:
            global_step: the step, which is also the version of the weights.
        """
        metrics: dict[str, float] = {}
        for pair in self._model_update_pairs:
            if pair.is_due(global_step):
                self.turns.give(pair.src_cluster, pair.tgt_cluster, include=["model_params"])
                metrics.update(pair.send(version=global_step))
        return metrics

    def steps(self) -> Iterator[int]:
        """Yields the steps that are still to be done; in a resumed run, those after the checkpoint."""
        for step in range(self.state.step + 1, self.pipeline_config.max_steps):
            self.timeline.begin()
            self.telemetry.begin_step(step)
            yield step
        self.telemetry.end_step()

    def end_step(self, global_step: int, metrics: Mapping[str, float]) -> None:
        """Ends a step: validates when it is due, logs once, moves the state on, saves when it is due.

        Args:
            global_step: the step.
            metrics: reduced metrics, plain numbers by name.
        """
        measured = self.validate() if self.should_validate(global_step) else {}
        seconds = {f"time/{name}": value for name, value in self._seconds.items()}
        self._seconds.clear()
        seconds |= self.timeline.end(global_step, self._known_clusters())
        row = {name: as_number(name, value) for name, value in {**metrics, **measured, **seconds}.items()}
        self.state.step = global_step
        self.state.log_history.append({**row, "system/step": global_step})
        if global_step % self.pipeline_config.logging_steps == 0 or self.is_last_step(global_step):
            self.tracker.log(row, step=global_step)
        self.do_checkpoint(global_step)

    def _known_clusters(self) -> list[Cluster]:
        pairs = [
            cluster for pair in self._model_update_pairs for cluster in (pair.src_cluster, pair.tgt_cluster)
        ]
        known = dict.fromkeys([*self._clusters, *pairs, *self._checkpoint_clusters])
        return [cluster for cluster in known if not cluster.closed]

    def is_last_step(self, global_step: int) -> bool:
        """Returns whether a step is the run's last one."""
        return global_step >= self.pipeline_config.max_steps - 1

    def should_validate(self, global_step: int) -> bool:
        """Returns whether `eval_steps` asks for validation at a step: every so many, and the last one."""
        every = self.pipeline_config.eval_steps
        return every > 0 and (global_step % every == 0 or self.is_last_step(global_step))

    def validate(self) -> Mapping[str, float]:
        """Returns what a subclass measures on held-out rows; `end_step` calls it when it is due."""
        return {}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Adds the seconds of a block to this step's metrics as `time/<name>`.

        Args:
            name: what is timed.
        """
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - started

    def set_checkpoint_clusters(self, *clusters: Cluster) -> None:
        """Declares the roles that are part of a checkpoint; call it once they are initialised.

        Each needs the registered methods `do_checkpoint(global_step, checkpoint_dir)`, which writes into that
        directory, and `load_checkpoint(checkpoint_dir)`. In a resumed run they are loaded here.

        Args:
            clusters: the roles.
        """
        self._checkpoint_clusters += clusters
        if self.resume_dir is not None:
            for cluster in clusters:
                cluster.load_checkpoint(checkpoint_dir=str(self.resume_dir / cluster.name))

    def do_checkpoint(self, global_step: int, is_last_step: bool | None = None) -> Path | None:
        """Writes a checkpoint when it is due: every `save_steps` steps and after the last one.

        Args:
            global_step: the step that has just ended.
            is_last_step: write it in any case; worked out from `max_steps` when None.

        Returns:
            The checkpoint's directory, or None when none was due.
        """
        every = self.pipeline_config.save_steps
        last = self.is_last_step(global_step) if is_last_step is None else is_last_step
        if not last and (every == 0 or (global_step + 1) % every != 0):
            return None
        staging = self.checkpoint_store.stage(global_step)
        self.turns.give(*self._checkpoint_clusters)
        pending = [
            cluster.do_checkpoint(
                global_step=global_step, checkpoint_dir=str(staging / cluster.name), blocking=False
            )
            for cluster in self._checkpoint_clusters
        ]
        for answers in pending:
            answers.result()
        self.state.step = global_step
        folder = staging / PIPELINE_ROLE
        self.state.save_to_json(folder / "worker_state.json")
        save_random_state(folder / "random_state.pt")
        in_use = self._uploader.in_use() if self._uploader is not None else ()
        final = self.checkpoint_store.commit(global_step, in_use=in_use)
        logger.info("checkpoint of step %d: %s", global_step, final)
        if self._uploader is not None:
            self._uploader.upload(final)
        return final

    def _resume(self) -> None:
        if self.resume_dir is None:
            return
        folder = self.resume_dir / PIPELINE_ROLE
        self.state = WorkerState.load_from_json(folder / "worker_state.json")
        load_random_state(folder / "random_state.pt")
        logger.info("resuming after step %d from %s", resume_step(self.resume_dir), self.resume_dir)

    def add_samples(self, when: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Keeps a few sample answers for the report.

        Args:
            when: `before`, `after`, or any other name.
            rows: each with `prompt`, `response` and what else a reader wants to see.
        """
        self.run_directory.add_samples(when, rows)

    def write_summary(self, *, status: str = "done") -> dict[str, object]:
        """Writes `summary.json`, steps, seconds and what is in `self.summary`, and returns its contents."""
        seconds = round(time.perf_counter() - self._started, 3)
        summary: dict[str, object] = {"exp_name": self.pipeline_config.exp_name, "steps": self.state.step + 1}
        summary |= {"seconds": seconds, "status": status, **self.summary}
        self.run_directory.write_summary(summary)
        return summary

    def close(self) -> None:
        """Closes trackers, clusters and placement groups, in this order; twice does nothing.

        Raises:
            UploadError: a checkpoint could not be copied to where the configuration asks for it.
            RuntimeEndedError: the runtime has ended before.
        """
        if self._closed:
            return
        self._closed = True
        self._watch.close()
        actions: list[Callable[[], None]] = [self.tracker.close]
        if self._uploader is not None:
            actions += [self._uploader.close, self.checkpoint_store.prune]
        if not self._watch.ended:  # else there is nobody to talk to
            actions += [cluster.close for cluster in reversed(self._clusters)]
            actions.append(self.resource_manager.close)
        if self.transfer is not None:
            actions.append(self.transfer.close)
        actions.append(self.telemetry.close)
        failures: list[Exception] = []
        for action in actions:
            try:
                action()
            except Exception as failed:  # noqa: BLE001  # the rest must still be closed; the first one is raised below
                failures.append(failed)
        if ended := self._watch.error():
            raise ended
        if failures:
            raise failures[0]

    def __enter__(self) -> Self:
        """Returns the pipeline."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the pipeline."""
        self.close()
