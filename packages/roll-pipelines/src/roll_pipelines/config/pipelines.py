"""Which pipeline a YAML starts, and which configuration class belongs to it."""

import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from typing import get_type_hints

from roll_pipelines.config.base_config import BaseConfig
from roll_pipelines.config.problems import Problem, one_of

BUILT_IN = {
    "sft": "roll_pipelines.sft.SFTPipeline",
    "dpo": "roll_pipelines.dpo.DPOPipeline",
    "distill": "roll_pipelines.distill.DistillPipeline",
    "rlvr": "roll_pipelines.rlvr.RLVRPipeline",
}
"""Short names of our own pipelines."""


@dataclass(frozen=True)
class PipelineType:
    """A pipeline class with the configuration class that belongs to it."""

    pipeline_cls: type
    config_cls: type[BaseConfig]


class PipelineClassError(ValueError):
    """A pipeline or configuration class cannot be used; `problem` says where it was named."""

    def __init__(self, problem: Problem) -> None:
        """Wraps one problem."""
        self.problem = problem
        super().__init__(problem.render())

    def __reduce__(self) -> tuple[type["PipelineClassError"], tuple[Problem]]:
        """Pickles the problem."""
        return type(self), (self.problem,)


def find_pipeline(pipeline_cls: object, config_cls: object = None) -> PipelineType:
    """Returns the classes that a YAML's `pipeline_cls:` and `config_cls:` name.

    The configuration class is `config_cls` as written, else the attribute `config_cls` of the pipeline class,
    else the annotation of the first parameter of its `__init__`.

    Args:
        pipeline_cls: a short name such as `rlvr`, or the dotted path of a class.
        config_cls: the dotted path of a configuration class, or None.

    Raises:
        PipelineClassError: a name leads to nothing, or no configuration class can be found.
    """
    if not isinstance(pipeline_cls, str):
        hint = f"one of {', '.join(BUILT_IN)}, or the dotted path of your own class"
        raise PipelineClassError(
            Problem(path="pipeline_cls", rule="must name a pipeline", value=pipeline_cls, hint=hint)
        )
    found = import_class(BUILT_IN.get(pipeline_cls, pipeline_cls), path="pipeline_cls")
    if config_cls is not None:
        return PipelineType(
            found, _config(import_class(config_cls, path="config_cls"), "config_cls", config_cls)
        )
    declared = getattr(found, "config_cls", None) or _annotated(found)
    if declared is None:
        rule = "must belong to a configuration class"
        hint = f"set {found.__name__}.config_cls, annotate its __init__, or write `config_cls: module.Class`"
        raise PipelineClassError(Problem(path="pipeline_cls", rule=rule, value=pipeline_cls, hint=hint))
    return PipelineType(found, _config(declared, "pipeline_cls", pipeline_cls))


def import_class(dotted: object, *, path: str) -> type:
    """Returns the class at a dotted path.

    Args:
        dotted: `package.module.Class`.
        path: the YAML path that named it, for the error.

    Raises:
        PipelineClassError: it is no dotted path, or leads to nothing, or not to a class.
    """
    if not isinstance(dotted, str) or "." not in dotted:
        hint = one_of(sorted(BUILT_IN), str(dotted)) if path == "pipeline_cls" else "package.module.Class"
        raise PipelineClassError(
            Problem(path=path, rule="must be the dotted path of a class", value=dotted, hint=hint)
        )
    module_name, _, name = dotted.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{module_name}.".startswith(f"{missing.name}."):
            raise
        rule = f"must be importable, but there is no module {missing.name!r}"
        hint = "run `roll` in the directory of your module, or put the YAML beside it"
        raise PipelineClassError(Problem(path=path, rule=rule, value=dotted, hint=hint)) from missing
    found = getattr(module, name, None)
    if not isinstance(found, type):
        classes = [n for n, v in vars(module).items() if isinstance(v, type)]
        raise PipelineClassError(
            Problem(
                path=path, rule=f"must be a class of {module_name}", value=dotted, hint=one_of(classes, name)
            )
        )
    return found


def worker_problems(config: BaseConfig) -> Iterator[Problem]:
    """Yields the roles whose worker class cannot be found; imports the modules of all of them.

    Args:
        config: the configuration.
    """
    for path, role in config.roles().items():
        where = f"{path}.worker_cls"
        if role.worker_cls is None:
            hint = "the dotted path of a class that extends Worker"
            yield Problem(path=where, rule="must be given: nothing fills it in", hint=hint)
        elif isinstance(role.worker_cls, str):
            try:
                import_class(role.worker_cls, path=where)
            except PipelineClassError as refused:
                yield refused.problem


def _annotated(pipeline_cls: type) -> object:
    parameters = list(inspect.signature(pipeline_cls).parameters)
    hints = get_type_hints(pipeline_cls.__init__)  # type: ignore[misc]  # the signature of the class that we were given
    return hints.get(parameters[0]) if parameters else None


def _config(found: object, path: str, value: object) -> type[BaseConfig]:
    if isinstance(found, type) and is_dataclass(found) and issubclass(found, BaseConfig):
        return found
    rule = f"must lead to a dataclass that extends BaseConfig, not to {getattr(found, '__name__', found)}"
    raise PipelineClassError(
        Problem(path=path, rule=rule, value=value, hint="add @dataclass and extend BaseConfig")
    )
