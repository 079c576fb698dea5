"""The errors of this package: each states the problem, where it is and a remedy, on one line."""


class TimecycleError(Exception):
    """An error that a user can fix: `problem` says what is wrong and where, `remedy` what to do about it."""

    def __init__(self, problem: str, *, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        # Unpickling calls the class with positional arguments, but `remedy` is a keyword.
        return _rebuild, (type(self), self.problem, self.remedy)


class VideoError(TimecycleError):
    """A video cannot be read or written as asked."""


class LabelError(TimecycleError):
    """Labels do not fit the video, or are ambiguous."""


class WeightsError(TimecycleError):
    """Weights cannot be loaded, or do not fit the encoder."""


class SettingsError(TimecycleError):
    """A setting does not exist or has an invalid value."""


class OutputError(TimecycleError):
    """The output folder cannot be used as asked."""


class InUseError(OutputError):
    """Another running process is using the output."""


class ShortageError(TimecycleError):
    """The machine lacks memory, open files, threads or disk space; no video is at fault."""


class StoreError(TimecycleError):
    """A folder or object store cannot be read or written as asked."""


class MissingError(StoreError):
    """A folder or object store lacks an object."""


class DamagedError(StoreError):
    """An object in a folder or object store is not what was written."""


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error text, without its advice."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _rebuild(kind: type[TimecycleError], problem: str, remedy: str) -> TimecycleError:
    return kind(problem, remedy=remedy)
