//go:build tools

// Package tools names the command that is built, so that go.mod keeps what it needs.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
