"""What a `generate` call asks for, read from its configuration and from the columns of its batch."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from roll_strategies.errors import BatchError, StrategyConfigError

_KEYS = (
    "max_new_tokens",
    "temperature",
    "top_p",
    "top_k",
    "num_return_sequences",
    "eos_token_id",
    "pad_token_id",
    "stop_strings",
    "seed",
    "do_sample",
    "num_beams",
    "repetition_penalty",
    "include_stop_str_in_output",
    "logprobs",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How each row draws; every field is [N]."""

    temperature: Tensor
    """float64; 0 takes the most likely token."""
    top_p: Tensor
    """float64; 1 keeps everything."""
    top_k: Tensor
    """int64; 0 keeps everything."""
    max_new_tokens: Tensor
    """int64."""
    seeds: Tensor
    """int64."""
    samples: Tensor
    """int64; which of a prompt's answers this row is."""

    def rows(self, index: Tensor) -> "Sampling":
        """Returns the same for some rows."""
        return Sampling(
            temperature=self.temperature[index],
            top_p=self.top_p[index],
            top_k=self.top_k[index],
            max_new_tokens=self.max_new_tokens[index],
            seeds=self.seeds[index],
            samples=self.samples[index],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One `generate` call over B prompts with n answers each."""

    sampling: Sampling
    """One entry per answer, sample-major: answer i belongs to prompt i // n."""
    num_return_sequences: int
    width: int
    """R: how wide the answers are returned, whatever their lengths."""
    stop_ids: frozenset[int]
    stop_strings: tuple[str, ...]
    pad_token_id: int
    repetition_penalty: float


def read_request(
    config: Mapping[str, object],
    columns: Mapping[str, Tensor],
    *,
    rows: int,
    default_seed: int,
    default_stop: Sequence[int],
    default_pad: int,
) -> Request:
    """Returns what a call asks for; a column of the batch overrides the configuration row by row.

    Args:
        config: keys as in `docs/architecture.md`, Generation.
        columns: the batch's tensor columns; `seeds`, `temperature`, `top_p`, `top_k`, `max_new_tokens` [B]
            are read.
        rows: number of prompts.
        default_seed: seed when the configuration has none.
        default_stop: stop ids when the configuration has none.
        default_pad: pad id when the configuration has none.

    Raises:
        StrategyConfigError: an unknown key, or a value out of range.
        BatchError: a column has another length than the batch.
    """
    for key in config:
        if key not in _KEYS:
            near = difflib.get_close_matches(str(key), _KEYS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {list(_KEYS)}"
            raise StrategyConfigError(f"generation_config has no key {key!r}; {hint}")
    count = _integer(config, "num_return_sequences", 1, least=1)
    if _integer(config, "num_beams", 1, least=1) != 1:
        raise StrategyConfigError(
            "generation_config.num_beams must be 1: this engine samples and has no beam search"
        )
    stop_strings = _strings(config.get("stop_strings"))
    if stop_strings and config.get("include_stop_str_in_output") is False:
        raise StrategyConfigError(
            "generation_config.include_stop_str_in_output must be true: responses are token ids and keep "
            "their end"
        )
    penalty = _number(config, "repetition_penalty", 1.0)
    if penalty <= 0:
        raise StrategyConfigError(f"generation_config.repetition_penalty must be above 0, got {penalty}")
    eos = config.get("eos_token_id")
    pad = config.get("pad_token_id")
    sampling = _sampling(config, columns, rows=rows, count=count, default_seed=default_seed)
    longest = int(sampling.max_new_tokens.max()) if rows else 0
    width = _integer(config, "max_new_tokens", longest, least=1)
    if longest > width:
        raise BatchError(
            f"column 'max_new_tokens' asks for {longest} tokens, more than generation_config.max_new_tokens "
            f"= {width}, "
            f"which sets the width of the answers on every rank"
        )
    return Request(
        sampling=sampling,
        width=width,
        num_return_sequences=count,
        stop_ids=frozenset(_stop_ids(eos, default_stop)),
        stop_strings=stop_strings,
        pad_token_id=default_pad if pad is None else _ids(pad)[0],
        repetition_penalty=penalty,
    )


def _sampling(
    config: Mapping[str, object], columns: Mapping[str, Tensor], *, rows: int, count: int, default_seed: int
) -> Sampling:
    if config.get("max_new_tokens") is None and "max_new_tokens" not in columns:
        raise StrategyConfigError(
            "generation_config.max_new_tokens is not set; say how long an answer may be"
        )

    def column(name: str, default: float, dtype: torch.dtype, least: float, most: float) -> Tensor:
        given = columns.get(name)
        if given is None:
            given = torch.full((rows,), default, dtype=dtype)
        elif given.shape != (rows,):
            raise BatchError(
                f"column {name!r} must have shape ({rows},), one value a prompt, got {tuple(given.shape)}"
            )
        given = given.to(dtype=dtype, device="cpu")
        wrong = (given < least) | (given > most)
        if bool(wrong.any()):
            raise StrategyConfigError(
                f"{name} must lie between {least} and {most}, got {given[wrong][0].item()}"
            )
        return given.repeat_interleave(count)

    greedy = config.get("do_sample") is False
    temperature = 0.0 if greedy else _number(config, "temperature", 1.0)
    top_k = max(0, _integer(config, "top_k", 0, least=-1))  # -1 means "all" to other engines
    infinite = float("inf")
    return Sampling(
        temperature=column("temperature", temperature, torch.float64, 0, infinite),
        top_p=column("top_p", _number(config, "top_p", 1.0), torch.float64, 0, 1),
        top_k=column("top_k", top_k, torch.int64, 0, infinite),
        max_new_tokens=column(
            "max_new_tokens", _integer(config, "max_new_tokens", 1, least=1), torch.int64, 1, infinite
        ),
        seeds=_seeds(config, columns, rows=rows, default_seed=default_seed).repeat_interleave(count),
        samples=torch.arange(count).repeat(rows),
    )


def _seeds(
    config: Mapping[str, object], columns: Mapping[str, Tensor], *, rows: int, default_seed: int
) -> Tensor:
    """Returns one seed a prompt: the column's, or the call's seed and the prompt's place in the call."""
    given = columns.get("seeds")
    if given is not None:
        if given.shape != (rows,):
            raise BatchError(
                f"column 'seeds' must have shape ({rows},), one value a prompt, got {tuple(given.shape)}"
            )
        return given.to(dtype=torch.int64, device="cpu")
    seed = config.get("seed")
    start = default_seed if seed is None else _integer(config, "seed", 0, least=0)
    return start * 1_000_003 + torch.arange(rows)


def _integer(config: Mapping[str, object], key: str, default: int, *, least: int) -> int:
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise StrategyConfigError(
            f"generation_config.{key} must be an integer of at least {least}, got {value!r}"
        )
    return value


def _number(config: Mapping[str, object], key: str, default: float) -> float:
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise StrategyConfigError(f"generation_config.{key} must be a number, got {value!r}")
    return float(value)


def _strings(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list | tuple) and all(isinstance(part, str) and part for part in value):
        return tuple(value)
    raise StrategyConfigError(
        f"generation_config.stop_strings must be a list of non-empty strings, got {value!r}"
    )


def _stop_ids(value: object, default: Sequence[int]) -> Sequence[int]:
    if value is None:
        return default
    return () if value in ([], ()) else _ids(value)  # nothing ends an answer but its length


def _ids(value: object) -> list[int]:
    values: list[object] = list(value) if isinstance(value, list | tuple) else [value]
    numbers = [part for part in values if isinstance(part, int)]
    if not values or len(numbers) < len(values):
        raise StrategyConfigError(f"generation_config: token ids must be integers, got {value!r}")
    return numbers
