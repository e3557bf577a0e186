"""From a directory in the Hugging Face format to a model and a tokenizer."""

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from roll_strategies.errors import ModelNotFound, StrategyConfigError
from roll_strategies.settings import ModelSettings

_DTYPES = {
    "fp32": torch.float32,
    "float32": torch.float32,
    "bf16": torch.bfloat16,
    "bfloat16": torch.bfloat16,
    "fp16": torch.float16,
    "float16": torch.float16,
    "fp64": torch.float64,
    "float64": torch.float64,
}


def torch_dtype(name: str, *, path: str = "model_args.dtype") -> torch.dtype:
    """Returns the dtype of that name.

    Raises:
        StrategyConfigError: no such dtype.
    """
    if name not in _DTYPES:
        raise StrategyConfigError(f"{path} must be one of {sorted(_DTYPES)}, got {name!r}")
    return _DTYPES[name]


def model_directory(settings: ModelSettings) -> Path:
    """Returns the directory of the model.

    Raises:
        ModelNotFound: no directory is given, it does not exist, or it holds no `config.json`.
    """
    given = settings.model_name_or_path
    if not given:
        raise ModelNotFound(
            "model_args.model_name_or_path is not set; give a directory in the Hugging Face format"
        )
    path = Path(given).expanduser()
    if not path.is_dir():
        raise ModelNotFound(
            f"model_args.model_name_or_path: no directory {str(given)!r}; give a directory in the Hugging "
            "Face format "
            f"(a model of the hub has to be downloaded first)"
        )
    if not (path / "config.json").is_file():
        raise ModelNotFound(
            f"model_args.model_name_or_path: {str(given)!r} has no config.json, so it is not a model in the "
            "Hugging "
            f"Face format"
        )
    return path


def auto_class(settings: ModelSettings) -> Any:  # Any: transformers gives its factories no types
    """Returns the transformers class that loads a model with the wanted head."""
    classes = {
        "causal_lm": transformers.AutoModelForCausalLM,
        "token_classification": transformers.AutoModelForTokenClassification,
        "sequence_classification": transformers.AutoModelForSequenceClassification,
    }
    if settings.model_type not in classes:
        raise StrategyConfigError(
            f"model_args.model_type must be one of {sorted(classes)}, got {settings.model_type!r}"
        )
    return classes[settings.model_type]


def load_model(settings: ModelSettings, *, is_trainable: bool, dtype: torch.dtype | None = None) -> nn.Module:
    """Returns the model on the CPU.

    Args:
        settings: which model and head.
        is_trainable: whether parameters need gradients.
        dtype: dtype of the parameters; None takes that of the settings.

    Raises:
        ModelNotFound: no model there.
    """
    path = model_directory(settings)
    options: dict[str, Any] = {
        "dtype": dtype or torch_dtype(settings.dtype)
    }  # Any: keyword arguments of from_pretrained
    options.update(settings.model_config_kwargs)
    if settings.trust_remote_code:
        options["trust_remote_code"] = True
    if settings.attn_implementation:
        options["attn_implementation"] = settings.attn_implementation
    if settings.model_type != "causal_lm":
        options["num_labels"] = settings.num_labels
    model = auto_class(settings).from_pretrained(str(path), local_files_only=True, **options)
    assert isinstance(model, nn.Module)
    prepare(model, settings, is_trainable=is_trainable)
    return model


def skeleton(settings: ModelSettings) -> nn.Module:
    """Returns the model without memory: names, shapes and ties of its tensors.

    Raises:
        ModelNotFound: no model there.
    """
    options: dict[str, Any] = dict(settings.model_config_kwargs)  # Any: keyword arguments of transformers
    if settings.trust_remote_code:
        options["trust_remote_code"] = True
    if settings.model_type != "causal_lm":
        options["num_labels"] = settings.num_labels
    directory = str(model_directory(settings))
    config = transformers.AutoConfig.from_pretrained(directory, local_files_only=True, **options)
    with torch.device("meta"):
        model: nn.Module = auto_class(settings).from_config(config)
    read_generation_settings(model, Path(directory))
    return model


def read_generation_settings(model: nn.Module, directory: Path) -> None:
    """Gives a model the generation settings that are saved beside it, if there are any."""
    if (directory / "generation_config.json").is_file():
        written: Any = model  # Any: nn.Module declares no generation_config
        written.generation_config = transformers.GenerationConfig.from_pretrained(str(directory))


def prepare(model: nn.Module, settings: ModelSettings, *, is_trainable: bool) -> None:
    """Sets modes and which parameters need gradients."""
    model.train(is_trainable)
    for name, parameter in model.named_parameters():
        frozen = any(name.startswith(prefix) for prefix in settings.freeze_module_prefix)
        parameter.requires_grad_(is_trainable and not frozen)
    if is_trainable and settings.gradient_checkpointing:
        enable: Any = model.gradient_checkpointing_enable  # Any: nn.Module does not declare it
        enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def load_tokenizer(settings: ModelSettings) -> object | None:
    """Returns the tokenizer saved beside the model; None when there is none."""
    path = model_directory(settings)
    if not (path / "tokenizer_config.json").is_file():
        return None
    tokenizer: object = transformers.AutoTokenizer.from_pretrained(str(path), local_files_only=True)
    return tokenizer
