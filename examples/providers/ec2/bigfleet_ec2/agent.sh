#!/bin/bash
# The agent in an instance: carries out the order in its instance's tag `bigfleet:order`, and says in S3 how it went.
#
#   join ID          fetch the bootstrap blob, run it, and say `joined` once the node is Ready
#   leave ID GRACE   end what runs within the grace, wipe what the cluster left, and say `left`
#
# An image may bring its own /etc/bigfleet/ready and /etc/bigfleet/leave; else the functions below are used.
# Needs bash, curl and the AWS CLI. Orders are carried out one at a time, each once, across reboots too.
set -u
umask 077
imds=${BIGFLEET_IMDS:-http://169.254.169.254}
state=${BIGFLEET_STATE:-/var/lib/bigfleet}
hooks=${BIGFLEET_HOOKS:-/etc/bigfleet}
root=${BIGFLEET_HOST_ROOT:-}

meta() {
    local token
    token=$(curl -fsS -m 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$imds/latest/api/token") &&
        curl -fsS -m 5 -H "X-aws-ec2-metadata-token: $token" "$imds/latest/meta-data/$1"
}

noted() { [ "$(cat "$state/$1" 2>/dev/null)" = "$2" ]; }

say() { # WORD TEXT: tell the provider, and only then count the order as done
    printf '%s\n' "$2" | aws s3 cp --only-show-errors - "$folder$id/$1" && printf '%s' "$id" >"$state/done"
}

ready() {
    [ ! -x "$hooks/ready" ] || { "$hooks/ready"; return; }
    curl -fsS -m 5 -o /dev/null http://127.0.0.1:10248/healthz &&
        [ "$(kubectl --kubeconfig /etc/kubernetes/kubelet.conf --request-timeout 10s get node "$BIGFLEET_MACHINE" \
            --output 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')" = True ]
}

wipe() (
    [ ! -x "$hooks/leave" ] || exec "$hooks/leave"
    set -eo pipefail
    # The kubelet first, or it starts anew what is stopped.
    systemctl stop kubelet.service
    # A container that ends by itself meanwhile is no failure; the next line is the one that must work.
    crictl ps --quiet | xargs -r -n 1 -P 64 crictl stop --timeout "$BIGFLEET_GRACE_SECONDS" || :
    crictl pods --quiet | xargs -r -n 16 crictl rmp --force
    # Tokens of pods are mounts below the kubelet's folder, and so are volumes: none may be left when files go.
    awk -v below="$root/var/lib/kubelet/" 'index($2, below) == 1 { print $2 }' /proc/mounts |
        sort -r | xargs -r -n 1 umount
    for wiped in /etc/kubernetes /var/lib/kubelet /etc/cni/net.d ~root/.kube; do
        [ ! -d "$root$wiped" ] || find "$root$wiped" -xdev -mindepth 1 -delete
    done
    if pgrep -x kubelet >/dev/null; then
        echo 'a kubelet still runs'
        exit 1
    fi
)

join() {
    if ! noted ran "$id"; then
        aws s3 cp --only-show-errors "$folder$id/bootstrap" "$state/bootstrap" || return
        chmod 700 "$state/bootstrap"
        timeout 1200 "$state/bootstrap" >"$state/bootstrap.log" 2>&1 </dev/null
        local code=$?
        rm -f "$state/bootstrap"
        # What it said may hold what the blob holds, so it stays here.
        [ $code = 0 ] || { say failed "the bootstrap blob ended with code $code; see $state/bootstrap.log there"; return; }
        printf '%s' "$id" >"$state/ran"
    fi
    if ready >/dev/null 2>&1; then say joined "$BIGFLEET_MACHINE"; fi
}

leave() {
    local said code
    # Not as the condition of the `if`: there bash would overlook what fails inside.
    said=$(wipe 2>&1 | tail -c 300; exit "${PIPESTATUS[0]}")
    code=$?
    if [ $code = 0 ]; then
        rm -f "$state/bootstrap" "$state/bootstrap.log" "$state/ran"
        say left "$BIGFLEET_MACHINE"
    else
        say failed "it could not leave its cluster: $said"
    fi
}

mkdir -p "$state"
until instance=$(meta instance-id) && zone=$(meta placement/availability-zone); do sleep "$BIGFLEET_EVERY"; done
folder="s3://$BIGFLEET_MAILBOX:$instance/"
export BIGFLEET_MACHINE BIGFLEET_PROVIDER_ID="aws:///$zone/$instance" BIGFLEET_GRACE_SECONDS
while :; do
    # There is no tag, and so an error, while there is no order.
    if order=$(meta tags/instance/bigfleet:order 2>/dev/null); then
        read -r verb id BIGFLEET_GRACE_SECONDS <<<"$order"
        noted 'done' "$id" || case $verb in join | leave) "$verb" ;; esac
    fi
    sleep "$BIGFLEET_EVERY"
done
