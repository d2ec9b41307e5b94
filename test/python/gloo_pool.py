"""Real ranks for tests: processes over gloo that are started once and run one case after another.

    results = gloo_pool.run(2, case, arg)   # [case(rank, arg) for each rank], in two processes

A case is a function at the top level of a file; the processes load that file. Starting a process
takes seconds (importing torch), so the pools live until the tests end. After a case that raised or
did not end in time, nobody knows what the processes still do: they are killed, and new ones start
with the next case.
"""

import atexit
import importlib.util
import inspect
import multiprocessing
import pickle
import sys
import time
import traceback
from multiprocessing.connection import wait

import torch
import torch._dynamo
import torch.distributed as dist

START_SECONDS = 120

_pools = {}


class CaseFailed(Exception):
    """A case raised on some ranks or did not end in time; `texts` maps those to what is known."""

    def __init__(self, texts: dict[int, str]):
        self.texts = texts
        super().__init__("\n".join(f"rank {rank}: {text}" for rank, text in sorted(texts.items())))


def run(ranks: int, case, *args, timeout_seconds: float = 120) -> list:
    """[case(rank, *args) for each rank]; `dist.group.WORLD` is a gloo group of them. Arguments and
    results are pickled.
    """
    pool = _pools.get(ranks)
    if pool is None:
        pool = _pools[ranks] = _Pool(ranks)
    try:
        return pool.run(case, args, timeout_seconds)
    except BaseException:
        del _pools[ranks]
        pool.kill()
        raise


@atexit.register
def close() -> None:
    """Ends all processes."""
    while _pools:
        _pools.popitem()[1].kill()


class _Pool:
    def __init__(self, ranks):
        # The processes connect to a store of this one: no port has to be guessed.
        self.store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        spawn = multiprocessing.get_context("spawn")
        self.pipes, self.processes = [], []
        for rank in range(ranks):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(
                target=_serve, args=(theirs, rank, ranks, self.store.port), daemon=True
            )
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)
        try:
            self._receive(time.monotonic() + START_SECONDS)
        except BaseException:
            self.kill()
            raise

    def run(self, case, args, timeout_seconds):
        request = pickle.dumps((inspect.getfile(case), case.__qualname__, args))
        for pipe in self.pipes:
            pipe.send_bytes(request)
        return self._receive(time.monotonic() + timeout_seconds)

    def _receive(self, deadline):
        """One answer of every rank. Once one has failed, the others get a moment to say why."""
        results, failures = {}, {}
        waiting = dict(enumerate(self.pipes))
        while waiting:
            ready = wait(list(waiting.values()), max(0, deadline - time.monotonic()))
            for rank, pipe in list(waiting.items()):
                if pipe not in ready:
                    continue
                del waiting[rank]
                try:
                    result, failure = pickle.loads(pipe.recv_bytes())
                except EOFError:
                    self.processes[rank].join(5)
                    failure = f"the process ended, exit code {self.processes[rank].exitcode}"
                if failure is None:
                    results[rank] = result
                else:
                    failures[rank] = failure
                    deadline = min(deadline, time.monotonic() + 5)
            if not ready:
                failures |= dict.fromkeys(waiting, "did not end in time")
                break
        if failures:
            raise CaseFailed(failures)
        return [results[rank] for rank in range(len(self.pipes))]

    def kill(self):
        for process in self.processes:
            process.kill()
        for process, pipe in zip(self.processes, self.pipes, strict=True):
            process.join()
            pipe.close()


def _serve(pipe, rank, ranks, port):
    """The life of one process: an answer when it is ready, then one for each case. Pickled plainly:
    what a connection pickles itself shares the memory of tensors with a process that may be gone.
    """
    torch.set_num_threads(1)
    store = dist.TCPStore("localhost", port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    pipe.send_bytes(pickle.dumps((None, None)))
    while True:
        try:
            path, name, args = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        try:
            answer = pickle.dumps((_load(path, name)(rank, *args), None))
        except BaseException:
            answer = pickle.dumps((None, traceback.format_exc()))
        torch._dynamo.reset()
        pipe.send_bytes(answer)


def _load(path, name):
    module = sys.modules.get(path)
    if module is None:
        spec = importlib.util.spec_from_file_location(path, path)
        module = sys.modules[path] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    for part in name.split("."):
        module = getattr(module, part)
    return module
