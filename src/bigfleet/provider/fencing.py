"""Fencing tokens: who calls, in which life, and which of its calls this is. Providers refuse what is not newer."""

import msgspec


class FencingToken(msgspec.Struct, frozen=True, gc=False):
    """What one attempt of one mutating call carries."""

    shard_id: str
    epoch: int
    sequence: int


class Fencing:
    """Gives out tokens, each newer than all before it. One for a shard, shared by the clients of all its providers."""

    def __init__(self, shard_id: str, epoch: int) -> None:
        # Without an id or an epoch a provider would not fence at all.
        if not shard_id or epoch < 1:
            raise ValueError(f"shard {shard_id!r}, epoch {epoch}: a token needs a shard id and an epoch from 1 up")
        self.shard_id = shard_id
        self._epoch = epoch
        self._sequence = 0

    @property
    def epoch(self) -> int:
        """The epoch of the tokens to come."""
        return self._epoch

    def token(self) -> FencingToken:
        """The next token; asked for once an attempt, retries included, so that none is ever a replay."""
        self._sequence += 1
        return FencingToken(self.shard_id, self._epoch, self._sequence)

    def renew(self, epoch: int) -> None:
        """Go on in a newer epoch, which must be durable by now; sequences start over."""
        if epoch <= self._epoch:
            raise ValueError(f"epoch {epoch} is not above {self._epoch}; an epoch only grows")
        self._epoch, self._sequence = epoch, 0
