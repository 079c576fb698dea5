"""`timecycle doctor`"""

from dataclasses import dataclass

from timecycle.cli.console import Result, out
from timecycle.doctor import run_checks


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Show what is installed, what is missing, and what this machine will compute on."""

    def __call__(self) -> Result:
        findings = run_checks()
        for finding in findings:
            remedy = f"  ({finding.remedy})" if finding.remedy else ""
            mark = "ok " if finding.ok else "-  " if finding.optional else "!  "
            out.print(f"{mark} {finding.name:<15} {finding.value}{remedy}")
        return {"ok": all(finding.ok or finding.optional for finding in findings), "findings": findings}
