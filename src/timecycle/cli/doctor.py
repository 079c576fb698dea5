"""`timecycle doctor`"""

from dataclasses import dataclass

from timecycle.cli.console import out
from timecycle.doctor import examine


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """What is installed, what is missing, and what this machine will run on."""

    def __call__(self) -> None:
        for finding in examine():
            remedy = f"  ({finding.remedy})" if finding.remedy else ""
            out.print(f"{'ok ' if finding.fine else '!  '} {finding.what:<14} {finding.value}{remedy}")
