"""The linear algebra's threads: one, everywhere."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import lru_cache

from threadpoolctl import ThreadpoolController, threadpool_limits


@lru_cache(maxsize=1)
def one_thread_for_good() -> None:
    """Put this process's linear algebra on one thread.

    More threads would fight with the other workers', and the last digits of results would depend on their
    number. A worker's own threads may not do this each for a while: the first to end would undo it for all.
    """
    threadpool_limits(limits=1)


def one_thread() -> AbstractContextManager[object]:
    """Put this process's linear algebra on one thread for a while, for the same bits as on a worker."""
    limit: AbstractContextManager[object] = ThreadpoolController().limit(limits=1)
    return limit
