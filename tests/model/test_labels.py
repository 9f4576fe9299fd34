"""Labels made from fields, and requirements read as Kubernetes reads them."""

import pytest

from bigfleet.model.demand.profile import Operator, Requirement
from bigfleet.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE, of_fields, satisfies
from bigfleet.model.machine import CapacityType


def test_fields_make_labels_and_what_is_unknown_makes_none() -> None:
    made = of_fields("m8", "z1", CapacityType.ON_DEMAND)
    assert made == {INSTANCE_TYPE: "m8", ZONE: "z1", CAPACITY_TYPE: "OnDemand"}
    assert of_fields("m8", "", CapacityType.UNSPECIFIED) == {INSTANCE_TYPE: "m8"}


@pytest.mark.parametrize(
    ("operator", "values", "there", "absent"),
    [
        (Operator.IN, ("a", "b"), True, False),
        (Operator.IN, ("b",), False, False),
        (Operator.NOT_IN, ("b",), True, True),
        (Operator.NOT_IN, ("a",), False, True),
        (Operator.EXISTS, (), True, False),
        (Operator.DOES_NOT_EXIST, (), False, True),
    ],
)
def test_an_absent_label_is_in_no_list(operator: Operator, values: tuple[str, ...], there: bool, absent: bool) -> None:
    requirement = Requirement("k", operator, values)
    assert satisfies({"k": "a"}, requirement) is there
    assert satisfies({"other": "a"}, requirement) is absent


def test_same_is_about_several_machines() -> None:
    with pytest.raises(ValueError, match="'k'"):
        satisfies({}, Requirement("k", Operator.SAME))
