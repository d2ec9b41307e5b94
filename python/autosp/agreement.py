"""Ranks agree, or all of them stop: one exchange of short texts through a group's store.

    agreement = Agreement(group, timeout_seconds=300)      # on every rank, in the same order
    agreement.agree("run", {"input shapes": "[1, 4096]"})  # returns on all ranks or raises on all
    agreement.agree("free memory", {}, "1024")             # the same; the last texts of all ranks

Calls are numbered. A rank posts what it is about to do under the number of its call, waits for the
posts of all others and compares. All ranks read the same posts and come to the same verdict:

* The posts differ, or one says that its rank failed (`post_failure`): every rank raises, naming the
  first difference or the failure. The ranks are still in step: the object can be used again.
* A rank did not post in time: the ranks that waited for it raise, naming it. Where it is by then
  nobody knows, so every later call on them raises the same error at once. The missing rank raises
  it too, if it comes after all: whether a call was complete or abandoned is settled once, by a
  compare-and-set, so that no rank goes on where another has given up.

A rank keeps at most two calls' posts in the store.
"""

import json
import weakref
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_process_group_store

from .errors import RanksDisagree

_agreements_made = weakref.WeakKeyDictionary()  # process group -> number


class Agreement:
    """One model's agreement among the ranks of a group. Nothing is exchanged in a group of one rank
    and by the fake backend, whose other ranks don't exist.
    """

    def __init__(self, group: dist.ProcessGroup, timeout_seconds: float):
        self._rank, self._ranks = group.rank(), group.size()
        self._timeout_seconds = timeout_seconds
        self._alone = self._ranks == 1 or dist.get_backend(group) == "fake"
        self._call = 0
        self._abandoned = None  # the text of the error that every call raises from now on
        self._posted = []  # this rank's posts that are still in the store, by call
        self._done = 0  # every rank has finished the calls below this number
        if not self._alone:
            number = _agreements_made[group] = _agreements_made.get(group, 0) + 1
            # A connection of its own: a wait blocks all who share one.
            store = _get_process_group_store(group).clone()
            self._store = dist.PrefixStore(f"autosp/{number}", store)

    def agree(self, call_kind: str, details: dict[str, str], value: str = "") -> list[str]:
        """Returns when every rank has called with the same arguments, but for the values, which it
        returns, by rank; else raises RanksDisagree on every rank. The first detail that differs is
        the one that the error shows: put first what tells the user most.
        """
        if self._alone:
            return [value]
        posts = [json.loads(post) for post in self._exchange(call_kind, details, value)]
        self._compare([post[0] if isinstance(post, list) else post for post in posts])
        return [post[1] for post in posts]

    def _exchange(self, call_kind: str, details: dict[str, str], value: str) -> list[bytes]:
        try:
            self._post([{"kind of call": call_kind, **details}, value])
            return self._read(call_kind)
        except RanksDisagree:
            raise
        except RuntimeError as error:
            self._abandoned = (
                f"The store of the process group doesn't answer (call {self._call},"
                f" {call_kind!r}): the rank that hosts it has probably ended. {error}"
            )
            raise RanksDisagree(self._abandoned) from error

    def _compare(self, posts: list[dict[str, str] | str]) -> None:
        difference = _difference(posts)
        if difference:
            raise RanksDisagree(f"The ranks disagree in call {self._call}: {difference}")

    def post_failure(self, text: str) -> None:
        """In place of a call of `agree` that this rank can't make: the others raise with the text.
        Waits for nobody; does nothing where the ranks have already given each other up.
        """
        if not self._alone and self._abandoned is None:
            self._post(text)

    def _post(self, content: list | str) -> None:
        if self._abandoned is not None:
            raise RanksDisagree(self._abandoned)
        self._call += 1
        self._store.set(_key(self._call, self._rank), json.dumps(content))
        self._posted.append(self._call)
        while self._posted[0] < self._done:
            done = self._posted.pop(0)
            self._store.delete_key(_key(done, self._rank))
            if self._rank == 0:
                self._store.delete_key(_key(done, "verdict"))

    def _read(self, call_kind: str) -> list[bytes]:
        keys = [_key(self._call, rank) for rank in range(self._ranks)]
        try:
            self._store.wait(keys, timedelta(seconds=self._timeout_seconds))
            verdict = "complete"
        except RuntimeError:
            verdict = self._missing(keys, call_kind)
        settled = self._store.compare_set(_key(self._call, "verdict"), "", verdict).decode()
        if settled != "complete":
            self._abandoned = settled
            raise RanksDisagree(settled)
        posts = self._store.multi_get(keys)
        self._done = self._call  # a rank that posts this call has finished those before
        return posts

    def _missing(self, keys: list[str], call_kind: str) -> str:
        missing = [rank for rank, key in enumerate(keys) if not self._store.check([key])]
        return (
            f"{_ranks(missing).capitalize()} made no call number {self._call} within"
            f" {self._timeout_seconds:g} s, where rank {self._rank} is in {call_kind!r}. Every rank"
            " has to compile and call the model equally often, in the same order."
        )


def _key(call: int, of: int | str) -> str:
    return f"{call}/{of}"


def _ranks(ranks: list[int]) -> str:
    return ("ranks " if len(ranks) > 1 else "rank ") + ", ".join(map(str, ranks))


def _difference(posts: list[dict[str, str] | str]) -> str | None:
    """The failures, which are posts of mere text, if there are any; else the first name that does
    not stand for the same text in all posts.
    """
    failures = {rank: post for rank, post in enumerate(posts) if isinstance(post, str)}
    if failures:
        return "\n".join(f"{who} failed: {text}" for text, who in _holders(failures))
    for name in dict.fromkeys(name for post in posts for name in post):
        holders = _holders({rank: post.get(name, "(absent)") for rank, post in enumerate(posts)})
        if len(holders) > 1:
            same = _same_characters([text for text, _ in holders])
            return "\n".join(
                [
                    f"the {name} differs.",
                    *(f"  {who}: {_excerpt(text, same)}" for text, who in holders),
                ]
            )
    return None


def _holders(texts: dict[int, str]) -> list[tuple[str, str]]:
    """Each different text and who has it."""
    holders: dict[str, list[int]] = {}
    for rank, text in texts.items():
        holders.setdefault(text, []).append(rank)
    return [(text, _ranks(ranks)) for text, ranks in holders.items()]


def _same_characters(texts: list[str]) -> int:
    """How many characters the texts begin with in common."""
    columns = enumerate(zip(*texts, strict=False))
    return next((i for i, column in columns if len(set(column)) > 1), min(map(len, texts)))


def _excerpt(text: str, same: int, around: int = 200) -> str:
    """The text about its character number `same`, where it begins to differ from others."""
    start, end = max(0, same - around), same + around
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
