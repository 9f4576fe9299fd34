"""The programs: argument parsing and wiring, nothing else.

One file for each command of `bigfleet`. `program` is what all programs share; `bigfleetctl` is in `ctl`; `demo` and
`requests` hold what their commands need beside the command itself.
"""

import os

# gRPC's core reads this variable when it is first imported. By default it writes log lines of its own between our JSON
# lines; whatever matters in them also reaches us as errors.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
