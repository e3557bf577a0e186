"""Roles on one device: whoever is not needed holds nothing there."""

from collections.abc import Sequence

from roll_dispatch import Dispatch, register
from roll_executor import Cluster, Worker
from roll_pipelines import WorkerConfig
from roll_pipelines.turns import Turns
from roll_resources import ResourceManager

ALL = ["model_params", "optimizer_states"]


class Holder(Worker):
    """Knows which states it holds."""

    held: Sequence[str] = ALL

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_states(self, include: Sequence[str] | None = None) -> None:
        self.held = sorted({*self.held, *(ALL if include is None else include)})

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def offload_states(self) -> None:
        self.held = []

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def told(self) -> Sequence[str]:
        return self.held


def test_a_role_that_was_brought_back_in_part_gives_that_part_back_too() -> None:
    with ResourceManager(runtime="local") as manager:
        made = [
            Cluster(
                name=name,
                worker_cls=Holder,
                resource_manager=manager,
                worker_config=WorkerConfig(world_size=1),
            )
            for name in ("learns", "answers", "ends")
        ]
        learns, answers, ends = made
        turns = Turns(enabled=True)
        for cluster in made:
            turns.join(cluster)
        ends.close()
        turns.give(answers)
        assert (learns.told(), answers.told()) == ([[]], [ALL])
        turns.give(learns, answers, include=["model_params"])
        assert (learns.told(), answers.told()) == ([["model_params"]], [ALL])
        turns.give(answers)
        assert (learns.told(), answers.told()) == ([[]], [ALL])
        turns.give(learns)
        assert (learns.told(), answers.told()) == ([ALL], [[]])
        learns.close()
        answers.close()
