#!/bin/sh
# Joins the host to its cluster: the operator's blob, $1, is a program, and is run.
# Told: BIGFLEET_MACHINE, the name that the node must have; BIGFLEET_PROVIDER_ID, its spec.providerID.
chmod 700 "$1"
exec "$1"
