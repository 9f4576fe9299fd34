#!/bin/sh
# Succeeds once the kubelet is well and the cluster says that this node is Ready, asked with the kubelet's own key.
set -eu
curl --fail --silent --show-error --max-time 5 --output /dev/null http://127.0.0.1:10248/healthz
ready=$(kubectl --kubeconfig /etc/kubernetes/kubelet.conf --request-timeout 10s get node "$BIGFLEET_MACHINE" \
    --output 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')
[ "$ready" = True ]
