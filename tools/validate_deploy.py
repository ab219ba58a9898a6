"""Check every launch file and ten broken copies of each with the targets' own validators.

``python tools/validate_deploy.py`` makes the environments where they are missing (heavy: several
GB of packages) and writes benchmarks/deploy_validation.md with the date. Set PACELINE_VALIDATORS to
use environments that are there.
"""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tools" / "validators"), str(ROOT / "tests" / "unit")]

import harness  # noqa: E402
from deploy.settings_of_targets import PLANS, settings_for  # noqa: E402

from paceline.deploy import deploy  # noqa: E402

RESULT = ROOT / "benchmarks" / "deploy_validation.md"
HEAD = """# Launch files against their targets' own validators

Written by `python tools/validate_deploy.py`; last run {today}. For each target the files of one
plan must be accepted and ten copies, each broken in one place, refused. Real runs (torchrun between
two network name spaces, sbatch on a real Slurm) are tests marked `validators`.

| target | checked by | whole files | broken copies refused |
| --- | --- | --- | --- |
"""


def main() -> int:
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
    RESULT.write_text(HEAD.format(today=date.today()) + "\n".join(rows) + "\n")
    return 0 if all_right else 1


if __name__ == "__main__":
    sys.exit(main())
