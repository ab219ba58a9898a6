"""Check every launch file and ten broken copies of each with the targets' own validators.

Usage: PYTHONPATH=tools python -m validators
Makes the environments where they are missing (heavy: several GB of packages) and writes
benchmarks/deploy_validation.md with the date. Set PACELINE_VALIDATORS to use environments that are
there.
"""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import date
from pathlib import Path

from tests.unit.deployment.settings_of_targets import PLANS, settings_for

from paceline.deployment.deploying import deploy
from validators import harness

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "benchmarks" / "deploy_validation.md"
HEAD = """# Launch files against their targets' own validators

Written by `tools/validators`; last run {today}. For each target the files of one
plan must be accepted and ten copies, each broken in one place, refused. Real runs (torchrun between
two network name spaces, sbatch on a real Slurm, TorchServe) are tests marked `validators`.

| target | checked by | whole files | broken copies refused |
| --- | --- | --- | --- |
"""

REAL = """

| run for real | outcome |
| --- | --- |
"""


def main() -> int:
    """Check all targets and write the page; 1 where one disagrees."""
    harness.create()
    rows, all_right = [], True
    for target in harness.CHECKERS:
        payload = harness.payload_of(target, deploy(PLANS[target](), target, settings_for(target)))
        mutants = list(harness.broken(target, payload))
        whole, *answers = harness.complaints(target, [payload, *(b for _, b in mutants)])
        refused = sum(bool(answer) for answer in answers)
        all_right &= not whole and refused == len(mutants)
        verdict = "accepted" if not whole else f"refused: {whole[0]}"
        script = harness.CHECKERS[target][0]
        rows.append(f"| {target} | {script} | {verdict} | {refused} of {len(mutants)} |")
        accepted = [name for (name, _), answer in zip(mutants, answers, strict=True) if not answer]
        print(target, verdict, f"{refused}/{len(mutants)}", *accepted)
    runs = _real_runs()
    all_right &= all(row.endswith("passed |") for row in runs)
    text = HEAD.format(today=date.today()) + "\n".join(rows) + REAL + "\n".join(runs) + "\n"
    RESULT.write_text(text)
    return 0 if all_right else 1


def _real_runs() -> list[str]:
    """Outcomes of the tests that run a launch file for real."""
    tests = ROOT / "tests" / "unit" / "deployment" / "test_validators.py"
    words = ["-m", "pytest", "-q", "-rA", "-k", "slurm or spaces", str(tests)]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    print(done.stdout[-2000:])
    outcome = re.compile(r"^(PASSED|FAILED|SKIPPED|ERROR) .*::(test_\w+)", re.M)
    return [
        f"| {name.removeprefix('test_').replace('_', ' ')} | {verdict.lower()} |"
        for verdict, name in outcome.findall(done.stdout)
    ]


if __name__ == "__main__":
    sys.exit(main())
