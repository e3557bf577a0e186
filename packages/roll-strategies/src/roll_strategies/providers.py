"""The default way to a model and a tokenizer; transformers is imported only when one is asked for."""

from torch import nn


def default_model_provider(
    *,
    tokenizer: object = None,
    model_args: object = None,
    training_args: object = None,
    is_trainable: bool = False,
) -> nn.Module:
    """Returns the model in the Hugging Face directory that `model_args.model_name_or_path` names.

    Args:
        tokenizer: not used; providers of users may need it.
        model_args: see `ModelSettings`.
        training_args: not used.
        is_trainable: parameters of a model for scoring only need no gradients.

    Raises:
        ModelNotFound: no such directory, or no model in it.
    """
    from roll_strategies.hf.models import load_model
    from roll_strategies.settings import ModelSettings

    return load_model(ModelSettings.read(model_args), is_trainable=is_trainable)


def default_tokenizer(model_args: object) -> object | None:
    """Returns the tokenizer saved beside the model; None when there is none."""
    from roll_strategies.hf.models import load_tokenizer
    from roll_strategies.settings import ModelSettings

    return load_tokenizer(ModelSettings.read(model_args))
