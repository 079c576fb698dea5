"""One family of errors: each names the problem, the place and the remedy, on one line."""


class TimecycleError(Exception):
    """Anything a user can mend: `problem` says what is wrong and where, `remedy` what to do about it."""

    def __init__(self, problem: str, *, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross process borders by calling the class again, which needs the keyword.
        return _rebuild, (type(self), self.problem, self.remedy)


class VideoError(TimecycleError):
    """A video cannot be read or written as asked."""


class LabelError(TimecycleError):
    """Labels do not fit the video, or cannot be read without guessing."""


class WeightsError(TimecycleError):
    """Weights cannot be loaded, or do not fit the encoder."""


class SettingsError(TimecycleError):
    """A setting does not exist or its value makes no sense."""


class OutputError(TimecycleError):
    """The output folder cannot be used as asked."""


class InUseError(OutputError):
    """Another living process works on it."""


class ShortageError(TimecycleError):
    """The machine lacks memory, open files, threads or disk space: no video is to blame for it."""


class StoreError(TimecycleError):
    """A folder or object store does not hold or give what it should."""


class MissingError(StoreError):
    """A folder or object store does not hold it."""


class DamagedError(StoreError):
    """What a folder or object store holds is not what was put there."""


def first_line(error: BaseException) -> str:
    """What another library says, without its advice."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _rebuild(kind: type[TimecycleError], problem: str, remedy: str) -> TimecycleError:
    return kind(problem, remedy=remedy)
