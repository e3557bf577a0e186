"""The configuration of distillation."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from roll_pipelines.config import BaseConfig, WorkerConfig
from roll_pipelines.config.problems import Problem
from roll_pipelines.data.model_source import model_problems
from roll_pipelines.data.problems import TaskConfig
from roll_pipelines.data.row_problems import row_problems
from roll_pipelines.data.tiny_model import TinyModelConfig
from roll_pipelines.losses.distillation import DistillOptions, Kind, Tail


@dataclass
class TeacherWarmUp(WorkerConfig):
    """A role that teaches a tiny teacher the right answers before it teaches."""

    steps: int = 0
    """Optimizer steps; 0 leaves the warm-up out."""


@dataclass
class DistillConfig(BaseConfig):
    """A student learns a teacher's distribution over every answer token."""

    student: WorkerConfig = field(default_factory=WorkerConfig)
    """The role that learns; `data_args.file_name` names its rows, and `pretrain` its first weights."""
    teacher: WorkerConfig = field(default_factory=WorkerConfig)
    """The role that is learnt from; it may have another number of workers than the student."""
    teacher_pretrain: str | None = None
    """The teacher's model directory."""
    logits_topk: int = 64
    """Entries that the teacher sends for each token; 0 sends the whole vocabulary."""
    tail: Tail = "bucket"
    """Mass outside the sent entries: `bucket` compares it as one entry, `renormalise` leaves it out."""
    kd_objective: Kind = "forward_kl"
    """`forward_kl`, `reverse_kl`, `skewed_forward_kl`, `skewed_reverse_kl` or `js`."""
    kd_temperature: float = 1.0
    """Both distributions are compared at this temperature; the divergence is multiplied by its square."""
    skew_lambda: float = 0.1
    """Share of the first distribution in the mixture of the skewed divergences."""
    js_weight: float = 0.5
    """Weight of the teacher in `js`."""
    distill_loss_weight: float = 0.5
    """Weight of the divergence; the cross-entropy of the row's own answer has the rest."""
    validation_files: list[str] = field(default_factory=list)
    """Rows that are scored and never learnt."""
    tiny_model: TinyModelConfig | None = None
    """Build a small student in code, instead of `pretrain`."""
    tiny_teacher: TinyModelConfig | None = None
    """Build a small teacher in code, instead of `teacher_pretrain`; `warm_up` teaches it first."""
    warm_up: TeacherWarmUp = field(default_factory=TeacherWarmUp)
    """How a tiny teacher learns."""
    task: TaskConfig | None = None
    """Learn from generated problems instead of rows in files."""
    num_problems: int = 4096
    """Generated problems to learn from."""

    def __post_init__(self) -> None:
        """Fills the workers' classes and the teacher's model."""
        if self.teacher.model_args.model_name_or_path is None:
            self.teacher.model_args.model_name_or_path = self.teacher_pretrain
        super().__post_init__()
        classes = {"student": "StudentWorker", "teacher": "TeacherWorker"}
        for name, worker in classes.items():
            role: WorkerConfig = getattr(self, name)
            if role.worker_cls is None:
                role.worker_cls = f"roll_pipelines.distill.{worker}"
        if self.warm_up.worker_cls is None:
            self.warm_up.worker_cls = "roll_pipelines.workers.SFTWorker"

    def idle_roles(self) -> set[str]:
        """Returns the warm-up where it has no steps."""
        return {"warm_up"} if self.warm_up.steps == 0 else set()

    def options(self) -> DistillOptions:
        """Returns the numbers of the divergence."""
        return DistillOptions(
            kind=self.kd_objective,
            temperature=self.kd_temperature,
            skew=self.skew_lambda,
            js_weight=self.js_weight,
            tail=self.tail,
        )

    def problems(self) -> Iterator[Problem]:
        """Yields what is wrong beyond the types of the fields."""
        yield from super().problems()
        yield from model_problems(self)
        yield from self.teacher_problems()
        if self.logits_topk < 0:
            yield Problem(
                path="logits_topk", rule="must be at least 0, which means all", value=self.logits_topk
            )
        if not self.kd_temperature > 0:
            yield Problem(
                path="kd_temperature", rule="must be above 0", value=self.kd_temperature, hint="1.0"
            )
        for name in ("skew_lambda", "js_weight", "distill_loss_weight"):
            if not 0 <= getattr(self, name) <= 1:
                yield Problem(path=name, rule="must be in [0, 1]", value=getattr(self, name))
        if self.sequence_length is None:
            rule = "must be given: it bounds prompt and answer together"
            yield Problem(path="sequence_length", rule=rule, value=None, hint="sequence_length: 1024")
        yield from row_problems(
            self.student.data_args, role="student", task=self.task, validation_files=self.validation_files
        )

    def teacher_problems(self) -> Iterator[Problem]:
        """Yields what is wrong with the teacher's model."""
        named = self.teacher_pretrain is not None
        if named == (self.tiny_teacher is not None):
            rule = (
                "must be left out when teacher_pretrain is given"
                if named
                else "or tiny_teacher must be given"
            )
            path = "tiny_teacher" if named else "teacher_pretrain"
            yield Problem(path=path, rule=rule, value=None, hint="name exactly one teacher")
        if self.warm_up.steps and (self.tiny_teacher is None or self.task is None):
            rule = "needs a tiny_teacher and a task; train another teacher with the pipeline sft"
            yield Problem(path="warm_up.steps", rule=rule, value=self.warm_up.steps, hint="0")
