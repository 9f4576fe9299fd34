#!/bin/sh
# Leaves the cluster: ends what runs, within BIGFLEET_GRACE_SECONDS, and takes the cluster's credentials off this host.
# On a host that is clean it does nothing and succeeds; it never succeeds while a kubelet runs.
set -eu
root=${BIGFLEET_HOST_ROOT:-}
has() { command -v "$1" >/dev/null 2>&1; }

# The kubelet first, or it starts anew what is stopped.
if has systemctl && [ -n "$(systemctl list-unit-files --no-legend kubelet.service)" ]; then
    systemctl stop kubelet.service
fi
# A container runtime that does not answer is a failure: nobody could say what still runs.
if has crictl; then
    containers=$(crictl ps --quiet)
    # A container that ends by itself meanwhile is no failure; removing the pods is what must work.
    echo "$containers" | xargs -r -n 1 -P 64 crictl stop --timeout "$BIGFLEET_GRACE_SECONDS" || :
    pods=$(crictl pods --quiet)
    echo "$pods" | xargs -r -n 16 crictl rmp --force
fi
if has kubeadm; then
    kubeadm reset --force
fi

# Tokens of pods are mounts below the kubelet's folder, and so are volumes: none may be left when files are removed.
awk -v below="$root/var/lib/kubelet/" 'index($2, below) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r -n 1 umount
for folder in /etc/kubernetes /var/lib/kubelet /etc/cni/net.d ~root/.kube; do
    [ ! -d "$root$folder" ] || find "$root$folder" -xdev -mindepth 1 -delete
done

if pgrep -x kubelet >/dev/null; then
    echo 'a kubelet still runs'
    exit 1
fi
