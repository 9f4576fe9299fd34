"""The programs: argument parsing and wiring, nothing else. One file a command of `bigfleet`."""

import os

# gRPC's core reads this when first imported. Left alone it writes lines of its own among the JSON; what matters in them
# reaches us as errors.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
