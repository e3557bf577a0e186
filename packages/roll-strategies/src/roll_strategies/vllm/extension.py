"""What our strategy asks of vLLM's own workers; vLLM mixes the class into each of them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from vllm.config import set_current_vllm_config
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)


class BeforeTheCut(nn.Module):
    """vLLM's drawing of tokens, with the log-probabilities from before top-k and top-p cut the distribution.

    A trainer computes those for the same token; what is left after the cut it cannot know.

    Args:
        inner: draws the tokens.
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(
        self, logits: Tensor, generators: object, k: Tensor | None, p: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Returns tokens [N] and log-probabilities [N, V] of logits [N, V] that have their temperature."""
        # First: the inner one writes to its input.
        log_probs = logits.log_softmax(dim=-1, dtype=torch.float32)
        tokens, _ = self.inner(logits, generators, k, p)
        return tokens, log_probs


class EngineExtension:
    """Methods that `collective_rpc` calls on every worker of an engine."""

    model_runner: Any  # Any: vLLM's own class, another one on each platform
    vllm_config: Any  # Any: vLLM gives its configuration no stable type

    def roll_report_log_probs_before_the_cut(self) -> None:
        """Makes the sampler report log-probabilities from before top-k and top-p."""
        sampler = getattr(self.model_runner, "sampler", None)
        inner = getattr(sampler, "topk_topp_sampler", None)
        if sampler is None or not isinstance(inner, nn.Module):
            raise RuntimeError(
                f"this vLLM draws tokens in another place than that of 0.32 ({type(self.model_runner)}); "
                "install vllm 0.32, and unset VLLM_USE_V2_MODEL_RUNNER"
            )
        sampler.topk_topp_sampler = BeforeTheCut(inner)

    def roll_begin_update(self) -> None:
        """Makes the model ready to take parameters by their names in a checkpoint."""
        with set_current_vllm_config(self.vllm_config):
            initialize_layerwise_reload(self.model_runner.get_model())

    def roll_load(self, tensors: Sequence[tuple[str, Tensor]]) -> int:
        """Takes some parameters, whole; the model keeps its part of each. Returns how many came."""
        with set_current_vllm_config(self.vllm_config), torch.device(self.model_runner.device):
            self.model_runner.get_model().load_weights(iter(tensors))
        return len(tensors)

    def roll_end_update(self) -> None:
        """Repacks what has arrived; a layer for which nothing came keeps what it had."""
        model = self.model_runner.get_model()
        with set_current_vllm_config(self.vllm_config), torch.device(self.model_runner.device):
            finalize_layerwise_reload(model, self.vllm_config.model_config)
            # vLLM repacks only the layer under whose name a tied tensor came: on a CPU the head would go on
            # with a packed copy of the old one.
            for layer in sharing_layers(model):
                layer.quant_method.process_weights_after_loading(layer)


def sharing_layers(model: nn.Module) -> list[Any]:  # Any: layers of vLLM's own
    """Returns the layers that can be repacked and hold a parameter that an earlier layer holds, too."""
    seen: set[int] = set()
    found = []
    for layer in model.modules():
        held = {id(parameter) for parameter in layer.parameters(recurse=False)}
        if held & seen and hasattr(layer, "quant_method"):
            found.append(layer)
        seen |= held
    return found
