"""CapacityRequests named on a command line: reading their manifests, noticing changes, and showing what they make."""
