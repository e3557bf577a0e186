"""Workers as Ray actors."""

from roll_executor.on_ray.failures import translate
from roll_executor.on_ray.launch import launch
from roll_executor.on_ray.pickling import dumps
from roll_executor.on_ray.references import fetch, resolve
from roll_executor.on_ray.unwrap import plain_class
from roll_executor.on_ray.workers import RayWorkers

__all__ = ["RayWorkers", "dumps", "fetch", "launch", "plain_class", "resolve", "translate"]
