"""Fencing tokens: the shard, its epoch and the number of the call. A provider refuses a token that is not newer."""

import msgspec


class FencingToken(msgspec.Struct, frozen=True, gc=False):
    """The token that one attempt of a mutating call carries."""

    shard_id: str
    epoch: int
    sequence: int


class Fencing:
    """Makes tokens, each newer than all before it. The clients of all providers of a shard share one."""

    def __init__(self, shard_id: str, epoch: int) -> None:
        # A provider does not fence a token without an id or an epoch.
        if not shard_id or epoch < 1:
            raise ValueError(f"shard {shard_id!r}, epoch {epoch}: a token needs a shard id and an epoch from 1 up")
        self.shard_id = shard_id
        self._epoch = epoch
        self._sequence = 0

    @property
    def epoch(self) -> int:
        """The epoch of the next tokens."""
        return self._epoch

    def token(self) -> FencingToken:
        """The next token. Every attempt, a retry too, takes one of its own, so that no token is sent twice."""
        self._sequence += 1
        return FencingToken(self.shard_id, self._epoch, self._sequence)

    def renew(self, epoch: int) -> None:
        """Go on in a newer epoch, which must be on disk already. Sequence numbers start again."""
        if epoch <= self._epoch:
            raise ValueError(f"epoch {epoch} is not above {self._epoch}; an epoch only grows")
        self._epoch, self._sequence = epoch, 0
