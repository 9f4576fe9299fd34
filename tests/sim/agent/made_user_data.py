"""A host: its user data, as the operator's default template makes it, and its shape."""

import base64

from bigfleet.model.labels import KUBELET_VERSION
from bigfleet.model.machine import CapacityType
from bigfleet.providerkit.offer import Shape
from bigfleet.sim.agent.user_data import ARGUMENTS, KUBECONFIG

CA = b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
TOKEN = "abcdef.0123456789abcdef"
CONFIG = f"""apiVersion: v1
kind: Config
clusters:
  - name: "one"
    cluster: {{server: "https://10.0.0.1:6443", certificate-authority-data: {base64.b64encode(CA).decode()}}}
users:
  - name: kubelet-bootstrap
    user: {{token: "{TOKEN}"}}
contexts:
  - name: bootstrap
    context: {{cluster: "one", user: kubelet-bootstrap}}
current-context: bootstrap
"""
ARGS = (
    "KUBELET_EXTRA_ARGS=--hostname-override=m-1 --node-labels=a=b,example.com/c= "
    "--register-with-taints=k=v:NoSchedule,x:NoExecute\n"
)


def user_data(
    kubeconfig: str = CONFIG, arguments: str = ARGS, rest: str = "runcmd: [[systemctl, restart, kubelet]]"
) -> bytes:
    def indented(text: str) -> str:
        return "".join(f"      {line}\n" for line in text.splitlines())

    files = {
        KUBECONFIG: kubeconfig,
        ARGUMENTS: arguments,
        "/var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\n",
    }
    written = "".join(f"  - path: {path}\n    content: |\n{indented(text)}" for path, text in files.items() if text)
    return f"#cloud-config\n# a comment\nwrite_files:\n{written}{rest}\n".encode()


SHAPE = Shape(
    instance_type="m5.large",
    zone="eu-1a",
    capacity_type=CapacityType.SPOT,
    interruption_probability=0.1,
    resources={"cpu": "2", "memory": "8Gi"},
    allocatable={"cpu": "1900m", "memory": "7Gi"},
    labels={
        "topology.bigfleet.lucy.sh/rack": "r1",
        "topology.kubernetes.io/region": "eu-1",
        "kubernetes.io/arch": "arm64",
        "node-role.kubernetes.io/edge": "true",
        KUBELET_VERSION: "1.33.2",
    },
)
