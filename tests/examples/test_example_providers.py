"""The example providers are projects of their own: their tests, the conformance suite among them, are run there."""

import subprocess
import sys
from pathlib import Path

import pytest

PROJECTS = Path(__file__).parents[2] / "examples" / "providers"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("project", ["ssh-hosts", "ec2"])
def test_the_example_passes_its_own_tests(project: str) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests"]
    result = subprocess.run(command, cwd=PROJECTS / project, capture_output=True, text=True, timeout=1790, check=False)
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
    assert " passed" in result.stdout
