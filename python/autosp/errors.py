"""The exceptions that AutoSP raises.

They derive from Dynamo's `ShortenTraceback`: raised inside a Dynamo backend, they reach the user's
call as themselves instead of being wrapped in `BackendCompilerFailed`.
"""

from torch._dynamo.exc import ShortenTraceback


class AutoSPError(ShortenTraceback):
    """What AutoSP refuses or finds wrong: its text says what, where, and what to do about it."""

    def __init__(self, message: str):
        super().__init__(message, first_useful_frame=None)
        self.message = message

    def __str__(self) -> str:
        return self.message  # not args: Dynamo appends advice on debugging compilers to those

    def __reduce__(self):
        return type(self), (self.message,)


class Unsupported(AutoSPError):
    """The program is sound, but AutoSP can't run it on several ranks, or only by guessing."""


class RanksDisagree(AutoSPError):
    """The ranks of a group don't run the same program on inputs of the same shape, or one of them
    is missing.
    """


class InternalError(AutoSPError):
    """AutoSP broke one of its own rules; the user's program is not at fault."""

    def __str__(self) -> str:
        return (
            f"{self.message}\nThis is an error in AutoSP itself, not in your program."
            " Please report it, with this text and, if you can, the model."
        )
