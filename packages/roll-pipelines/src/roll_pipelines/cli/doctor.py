"""`roll doctor`: what is installed, which engines and devices work, and what to install for the rest."""

import importlib.util
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from roll_executor import transfer_backends
from roll_pipelines.cli.exit_codes import ExitCode
from roll_pipelines.cli.output import say
from roll_pipelines.config.machine import count_devices
from roll_pipelines.config.tracker_names import PACKAGES
from roll_resources import current_platform

OURS = ("protocol", "dispatch", "resources", "executor", "strategies", "pipelines")
OTHERS = ("torch", "transformers", "ray", "tensordict", "numpy", "datasets", "hydra-core", "pydantic")


def diagnose() -> ExitCode:
    """Prints the state of this environment; returns FAILED when nothing could run in it."""
    say(f"python {sys.version.split()[0]} on {platform.platform()}")
    say("")
    say("packages")
    for name in [f"roll-{part}" for part in OURS] + list(OTHERS):
        say(f"  {name:<18} {_version(name) or 'not installed'}")
    say("")
    say(f"devices\n  platform {current_platform.name}, {count_devices()} device(s), {_seen_by_torch()}")
    say("")
    say("engines")
    works = _engines()
    say("")
    say("trackers\n  jsonl, console      always")
    for name, package in PACKAGES.items():
        if package is None:
            continue
        state = _version(package)
        remedy = f"not installed: pip install 'roll-pipelines[{name}]'"
        say(f"  {name:<18}  {state or remedy}")
    say(f"\ntransfer backends\n  {', '.join(transfer_backends())}")
    state = _version("opentelemetry-sdk") or "not installed: pip install 'roll-pipelines[telemetry]'"
    say(f"\ntelemetry\n  opentelemetry       {state}")
    state = _version("peft") or "peft is not installed: pip install 'roll-pipelines[lora]'"
    say(f"\nadapters\n  lora                {state}")
    ray = importlib.util.find_spec("ray") is not None
    say("")
    say("runtimes\n  local               always")
    say(f"  ray                 {'yes' if ray else 'not installed: pip install ray'}")
    return ExitCode.DONE if works else ExitCode.FAILED


def _engines() -> bool:
    from roll_strategies import StrategyNotInstalled, load_strategy, strategy_names

    works = False
    for name in strategy_names():
        try:
            engine = load_strategy(name)
        except StrategyNotInstalled as missing:
            say(f"  {name:<18}  {missing}")
            continue
        able = [word for word in ("trains", "generates") if getattr(engine.capabilities, word)]
        say(f"  {name:<18}  works: scores{''.join(f', {word}' for word in able)}")
        works = True
    return works


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _seen_by_torch() -> str:
    import torch

    if torch.cuda.is_available():
        names = {torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())}
        return f"torch sees {torch.cuda.device_count()}: {', '.join(sorted(names))}"
    return "torch sees no accelerator; runs use the CPU"
