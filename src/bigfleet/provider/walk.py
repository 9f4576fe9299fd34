"""Walks a list page by page: decides what to ask next, and when the list is complete. No I/O.

The contract has no mark for the last page. A provider may give fewer rows than asked for and still have more, machines
change during the walk, and some providers keep no cursors or ignore them. So a full walk ends only when nothing can be
missing. Where a provider's pages make no sense, everything is asked for in one answer.
"""

from collections.abc import Set as AbstractSet

import msgspec

# Paging is given up after so many pages in succession without a new machine, or so many pages in all.
_STALE_PAGES = 16
_MOST_PAGES = 10_000


class PageRequest(msgspec.Struct, frozen=True, gc=False):
    """One List call: what changed after `since` (empty: everything), at most `limit` rows of it (0: all)."""

    since: bytes
    limit: int


class Walk:
    """One walk, from a cursor or, where that is empty, over everything. `request` is the next call, None at the end."""

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
            # A provider that gives more than asked for ignores limits, so it has left nothing out.
            return self._end()
        if not revision:
            # Without a cursor, a page that is not full is everything, and a full page cannot be continued.
            return self._end() if first and rows < limit else self._ask_whole()
        if not rows or (self._since and rows < limit):
            # Changes that are missing here come with the next walk, which starts at this cursor.
            return self._end()
        fresh = not ids <= self._seen
        repeated = not first and self._seen <= ids
        if repeated or revision == asked.since:
            # The same machines again, or the same cursor: this provider ignores cursors.
            return self._ask_whole()
        if rows < self._largest and not fresh:
            # A page smaller than earlier ones and without a new machine: only changes of machines seen before are left.
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
