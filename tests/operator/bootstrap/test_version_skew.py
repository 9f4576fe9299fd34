"""Which kubelets may join which API servers."""

import pytest

from bigfleet.operator.bootstrap.version_skew import SkewError, check_skew


@pytest.mark.parametrize("kubelet", ["v1.34.4", "1.34", "v1.34.9", "v1.33.0", "v1.31.1-eks-abc", "v1.31.0+k3s1"])
def test_the_same_minor_and_three_older_may_join(kubelet: str) -> None:
    check_skew(kubelet, "v1.34.4")


@pytest.mark.parametrize(
    ("kubelet", "says"),
    [
        ("v1.35.0", "newer"),
        ("v2.0.0", "newer"),
        ("v1.30.9", "at most 3 minor versions older"),
        ("v0.34.0", "at most 3"),
        ("latest", "look like v1.34.4"),
        ("", "look like"),
    ],
)
def test_others_are_refused_with_both_versions(kubelet: str, says: str) -> None:
    with pytest.raises(SkewError) as raised:
        check_skew(kubelet, "v1.34.4")
    assert says in str(raised.value)
    assert f"kubelet {kubelet} and API server v1.34.4" in str(raised.value)
