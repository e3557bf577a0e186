"""Starting a vLLM engine in this process."""

from vllm.engine.arg_utils import EngineArgs
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.executor import Executor
from vllm.v1.executor.uniproc_executor import UniProcExecutor


def start_engine(args: EngineArgs) -> LLMEngine:
    """Returns a running engine.

    Its scheduler runs in this process, so that a call needs no serialisation. With one device the model does
    as well; with several, vLLM starts one process for each.
    """
    config = args.create_engine_config()
    one = config.parallel_config.world_size == 1
    # On a CPU vLLM wants a process for the model, in which it binds threads to cores; whoever starts our
    # worker has set its threads.
    executor = UniProcExecutor if one else Executor.get_class(config)
    engine = LLMEngine(vllm_config=config, executor_class=executor, log_stats=False, multiprocess_mode=False)
    engine.collective_rpc("roll_report_log_probs_before_the_cut")
    return engine
