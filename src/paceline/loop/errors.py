"""What the loop refuses, and what to do about it."""


class LoopError(RuntimeError):
    """A request that cannot be kept: ``str(e)`` says why, ``e.hint`` what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__("%s (%s)" % (message, hint))
        self.message = message
        self.hint = hint
