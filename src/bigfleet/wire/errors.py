"""What conversion says when a message cannot be taken."""


class WireError(ValueError):
    """A malformed message; `path` leads to the field at fault, from the message's root."""

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{path}: {problem}")


class MachineRefusedError(WireError):
    """A machine record that cannot be taken; `reason` is the label under which it is counted."""

    def __init__(self, machine_id: str, reason: str, path: str, problem: str) -> None:
        self.machine_id, self.reason = machine_id, reason
        super().__init__(f"machine {machine_id!r}: {path}", problem)
