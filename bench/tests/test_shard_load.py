import pytest

from bench.shard_load import options_of
from bigfleet.sim.load.load import Options


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert options_of(["--target", "h:1", "--pod", "cpu=500m", "--burst-at", "3"]) == Options(
        target="h:1", pod=(("cpu", 500),), burst_at=3.0
    )
    for wrong in (["--rows", "0"], ["--pod", "cpu"], ["--pod", "cpu=x"], ["--clusters", "-1"]):
        with pytest.raises(SystemExit):
            options_of(["--target", "h:1", *wrong])
        assert wrong[0] in capsys.readouterr().err
