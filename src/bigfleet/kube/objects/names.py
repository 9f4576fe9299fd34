"""Names that BigFleet's programs write on Kubernetes objects, or read there: labels, annotations, managers."""

MANAGED_BY = "app.kubernetes.io/managed-by"
"""The label that says which program keeps an object."""

OPERATOR = "bigfleet-operator"
"""The operator: as keeper of objects, as owner of fields, and by its Lease."""

POD_CONTROLLER = "bigfleet-pod-controller"
"""The pod controller: as keeper of objects, as owner of fields, by its Lease and by its ConfigMap."""

MACHINE = "bigfleet.lucy.sh/machine-id"
"""The annotation that holds a machine's id, which may be no name for an object."""

INTERRUPTION = "bigfleet.lucy.sh/interruption-penalty"
"""The annotation of a pod with the dollars that it costs to disturb the pod."""

RECLAMATION = "bigfleet.lucy.sh/reclamation-penalty"
"""The annotation of a pod with the dollars that it costs to take the pod's machine away for good."""

DEMAND, PARTIAL, TOTAL = "demand", "partial", "total"
"""The key in the pod controller's ConfigMap that tells whether requests are part or all of the demand; its values."""
