"""Workers: run a handler for the messages of queues, in threads, tasks or processes, as `headgate work` does."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.worker.account import WorkAccount as WorkAccount
    from headgate.worker.metrics import serve_worker_metrics as serve_worker_metrics
    from headgate.worker.options import WorkerOptions as WorkerOptions
    from headgate.worker.options import load_handler as load_handler
    from headgate.worker.processes import run_processes as run_processes
    from headgate.worker.work import Control as Control
    from headgate.worker.work import drain_on as drain_on
    from headgate.worker.work import run_here as run_here
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "account": ["WorkAccount"],
            "metrics": ["serve_worker_metrics"],
            "options": ["WorkerOptions", "load_handler"],
            "processes": ["run_processes"],
            "work": ["Control", "drain_on", "run_here"],
        },
    )
