"""Walking a list page by page: what to ask next, and when it is over. Pages in, questions out; no I/O.

The contract has no mark for a last page. A provider may give fewer rows than asked for and still have more, machines
change while the walk runs, and some providers keep no cursors or ignore them. So a full walk is over only when
nothing can be missing, and where pages make no sense everything is asked for in one answer, which needs no judgement.
"""

from collections.abc import Set as AbstractSet

import msgspec

# Pages in a row that tell of no machine unseen, and pages in all, after which paging is given up.
_STALE_PAGES = 16
_MOST_PAGES = 10_000


class PageRequest(msgspec.Struct, frozen=True, gc=False):
    """One List call: what changed after `since` (empty: everything), at most `limit` rows of it (0: all)."""

    since: bytes
    limit: int


class Walk:
    """One walk from a cursor, or from nothing for a full one. `request` is the next call, None once it is over."""

    def __init__(self, since: bytes, limit: int) -> None:
        self.request: PageRequest | None = PageRequest(since, limit)
        self._since, self._limit = since, limit
        self._seen: set[str] = set()
        self._largest = self._stale = self._pages = 0

    def take(self, ids: AbstractSet[str], rows: int, revision: bytes) -> None:
        """The answer to `request`: the machines it speaks of, how many rows it had, and its cursor."""
        if self.request is None:
            raise ValueError("the walk is over; nothing was asked")
        asked, limit = self.request, self._limit
        first = not self._pages
        self._pages += 1
        if asked.limit == 0 or rows > limit:
            # More than asked for comes from a provider that knows no limit, and so left nothing out.
            return self._end()
        if not revision:
            # Without cursors a page that is not cut is all there is, and one that is cannot be continued.
            return self._end() if first and rows < limit else self._ask_whole()
        if not rows or (self._since and rows < limit):
            # What a delta may still lack comes with the next one, its cursor being kept.
            return self._end()
        fresh = not ids <= self._seen
        repeated = not first and self._seen <= ids
        if repeated or revision == asked.since:
            # The same again, or a cursor that stands still: this provider does not go by cursors.
            return self._ask_whole()
        if rows < self._largest and not fresh:
            # It could have given more, and all it had was machines that changed behind us.
            return self._end()
        self._seen |= ids
        self._largest = max(self._largest, rows)
        self._stale = 0 if fresh else self._stale + 1
        if self._stale > _STALE_PAGES or self._pages > _MOST_PAGES:
            return self._ask_whole()
        self.request = PageRequest(revision, limit)
        return None

    def _end(self) -> None:
        self.request = None

    def _ask_whole(self) -> None:
        self.request = PageRequest(self._since, 0)
