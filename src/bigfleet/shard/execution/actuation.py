"""Whether this process may act as its shard: the pause, the dry run, the epoch, standing down and the local file.

This is the one owner of these facts. Whoever calls a provider or speaks to an operator asks here.
"""


class Actuation:
    """What keeps the shard from acting, and since when."""

    def __init__(self, epoch: int, *, dry_run: bool, paused: bool, pause_reason: str, now: float) -> None:
        #: The epoch of this life of the shard. Every call and every stamp carries it.
        self.epoch = epoch
        #: Whether the shard decides without acting, for as long as the process runs.
        self.dry_run = dry_run
        #: Why an admin paused the shard. Such a pause outlives the process; one by flag lasts as long as the flag.
        self.pause_reason = pause_reason
        #: Whether the shard is paused, by an admin or by flag.
        self.paused = paused or bool(pause_reason)
        #: Why this process has stood down for another that is the same shard (protocol rule 10); empty if it has not.
        self.stood_down = ""
        #: Why the local file could not be written when that was last tried; empty where it could.
        self.file_problem = ""
        #: Since when the local file cannot be written; None where it can.
        self.file_lost_since: float | None = None
        #: Since when commitments and recoveries have been held still; None while they go on.
        self.held_since: float | None = None if self.acts else now
        self._held_seconds = 0.0

    @property
    def acts(self) -> bool:
        """Whether anything is carried out at all."""
        return not (self.paused or self.stood_down or self.dry_run)

    @property
    def durable(self) -> bool:
        """Whether the local file could be written when that was last tried."""
        return self.file_lost_since is None

    @property
    def held(self) -> bool:
        """Whether commitments and recoveries are held still."""
        return self.held_since is not None

    @property
    def may_begin(self) -> bool:
        """Whether an action may begin: the local file can be written and nobody else is this shard."""
        return self.durable and not self.stood_down

    def running(self, now: float) -> float:
        """The time on a clock that stands still while commitments and recoveries are held."""
        return (now if self.held_since is None else self.held_since) - self._held_seconds

    def pause(self, reason: str, now: float) -> bool:
        """An admin pauses the shard. Returns whether commitments and recoveries are held still from now on."""
        self.paused, self.pause_reason = True, reason
        return self.hold(now)

    def resume(self, now: float) -> float | None:
        """An admin ends the pause. Returns since when everything was held that goes on now; None where nothing does."""
        self.paused, self.pause_reason = False, ""
        return self.release(now) if self.acts else None

    def hold(self, now: float) -> bool:
        """Hold commitments and recoveries still. Returns False where they were already."""
        if self.held_since is not None:
            return False
        self.held_since = now
        return True

    def release(self, now: float) -> float | None:
        """Let commitments and recoveries go on. Returns since when they were held; None where they were not."""
        since, self.held_since = self.held_since, None
        if since is not None:
            self._held_seconds += now - since
        return since

    def stand_down(self, reason: str) -> bool:
        """Another process is this shard: never act again. Returns False where that was known."""
        if self.stood_down:
            return False
        self.stood_down = reason
        return True

    def file_written(self) -> bool:
        """The local file was written. Returns whether it could not be at the last try."""
        was_lost, self.file_problem, self.file_lost_since = not self.durable, "", None
        return was_lost

    def file_unwritten(self, problem: str, now: float) -> bool:
        """The local file could not be written. Returns whether it could be at the last try."""
        was_durable, self.file_problem = self.durable, problem
        if was_durable:
            self.file_lost_since = now
        return was_durable

    def raise_epoch(self, epoch: int) -> None:
        """A higher epoch was taken, and is durable."""
        self.epoch = epoch
