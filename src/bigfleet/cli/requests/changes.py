"""Noticing that manifests on disk have changed: by looking again and again, which works on every file system."""

from pathlib import Path

from bigfleet.cli.program import InputError
from bigfleet.cli.requests.manifests import manifest_files

_Seen = tuple[tuple[str, int, int, int], ...]


class Changes:
    """Says when files have changed and are whole again. A file counts as whole once it stays the same for one look."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self._before = self._taken = self._look()

    def settled(self) -> bool:
        """Whether the files differ from those of the last time that this was True. To be asked every half second."""
        now, before = self._look(), self._before
        self._before = now
        if now != before or now == self._taken:
            return False
        self._taken = now
        return True

    def _look(self) -> _Seen:
        """Each file with its inode, time and size; a file or folder that is not there has none."""
        seen = []
        for path in self._paths:
            try:
                for file in manifest_files(path):
                    about = file.stat()
                    seen.append((str(file), about.st_ino, about.st_mtime_ns, about.st_size))
            except (OSError, InputError):
                seen.append((str(path), 0, 0, 0))
        return tuple(seen)
