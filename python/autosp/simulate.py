"""P ranks in one process: one thread per rank, over torch's threaded process group.

Collectives of every kind work, in eager code and in compiled code, with exact values. A rank must
have objects of its own for everything that a compiler caches by identity: its own copy of a model,
its own backend. Compilations wait for each other (Dynamo holds a process-wide lock), so nothing
inside a compilation may wait for another rank. The ranks share one random generator, and a thread
starts in torch's default state: gradients on, no autocast, no dispatch modes.
"""

import contextlib
import sys
import threading
import time
import traceback

import torch
import torch.distributed as dist
from torch._higher_order_ops.flex_attention import FlexAttentionHOP
from torch.testing._internal.distributed import multi_threaded_pg as threaded

_installed = threading.Lock()


@contextlib.contextmanager
def _scores_one_at_a_time():
    """Run as it is, flex_attention traces its functions, which torch does in one thread alone."""
    call, lock = FlexAttentionHOP.__call__, threading.RLock()

    def locked(*args, **kwargs):
        with lock:
            return call(*args, **kwargs)

    FlexAttentionHOP.__call__ = locked
    try:
        yield
    finally:
        FlexAttentionHOP.__call__ = call


class RanksFailed(Exception):
    """`errors` maps the ranks that raised to what they raised; ranks that were only waiting for
    those are not in it.
    """

    def __init__(self, errors: dict[int, BaseException]):
        self.errors = errors
        super().__init__(
            "\n".join(
                f"rank {rank} raised:\n{''.join(traceback.format_exception(e))}"
                for rank, e in sorted(errors.items())
            )
        )


def run_ranks(ranks: int, function, *args, timeout_seconds: float = 300) -> list:
    """[function(rank, *args) for each rank], the calls running at the same time; their world is
    `dist.group.WORLD`.

    When a rank raises, the ranks that wait for it in a collective stop, and RanksFailed is raised
    once all have ended. A process group that the process already has is out of reach meanwhile, and
    back afterwards.
    """
    if not _installed.acquire(blocking=False):
        raise RuntimeError(
            "simulated ranks can't simulate ranks, and only one simulation runs at a time"
        )
    try:
        return _Simulation(ranks, function, args).run(timeout_seconds)
    finally:
        _installed.release()


class _Simulation:
    def __init__(self, ranks, function, args):
        self.ranks, self.function, self.args = ranks, function, args
        self.results = [None] * ranks
        self.errors = {}
        self.store = dist.HashStore()
        self.threads = [
            threading.Thread(target=self._run_rank, args=(r,), name=f"rank {r}", daemon=True)
            for r in range(ranks)
        ]

    def run(self, timeout_seconds):
        excepthook = sys.excepthook  # init_process_group puts one that names a rank before it
        torch._C._distributed_c10d._set_thread_isolation_mode(True)
        threaded._install_threaded_pg()
        try:
            with _scores_one_at_a_time():
                for thread in self.threads:
                    thread.start()
                self._join(timeout_seconds)
        finally:
            threaded.ProcessLocalGroup.reset()
            threaded._uninstall_threaded_pg()
            torch._C._distributed_c10d._set_thread_isolation_mode(False)
            sys.excepthook = excepthook
        if self.errors:
            raise RanksFailed(self.errors)
        return self.results

    def _run_rank(self, rank):
        try:
            dist.init_process_group("threaded", rank=rank, world_size=self.ranks, store=self.store)
            try:
                self.results[rank] = self.function(rank, *self.args)
            finally:
                dist.destroy_process_group()
        except (
            SystemExit
        ):  # what the threaded process group raises in a rank that waits, after _stop_waiting
            pass
        except BaseException as error:
            self.errors[rank] = error
            _stop_waiting()

    def _join(self, timeout_seconds):
        deadline = time.monotonic() + timeout_seconds
        for thread in self.threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        late = {rank: thread for rank, thread in enumerate(self.threads) if thread.is_alive()}
        if not late:
            return
        frames = sys._current_frames()
        stacks = {
            rank: "".join(traceback.format_stack(frames[thread.ident]))
            for rank, thread in late.items()
        }
        _stop_waiting()
        for rank, thread in late.items():
            thread.join(5)
            self.errors.setdefault(
                rank,
                TimeoutError(f"not done after {timeout_seconds} s; it was here:\n{stacks[rank]}"),
            )


def _stop_waiting():
    """Ends the ranks that wait in a collective, and those that will."""
    group = threaded.ProcessLocalGroup
    group._terminate.set()
    with group._coll_lock:
        collectives = list(group._cur_coll_on_pgs.values())
    for collective in collectives:
        for condition in (collective._start_cond, collective._done_cond):
            with condition:
                condition.notify_all()
