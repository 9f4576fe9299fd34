"""The programs: argument parsing and wiring, nothing else.

One file for each command of `bigfleet`. `program` and `wording` are what several commands share; `bigfleetctl` is in
`ctl`; `demo` is the folder of a command with many parts; `requests` reads and shows what `bigfleet rollup` adds up.
"""

import os

# gRPC's core reads this variable when it is first imported. By default it writes log lines of its own between our JSON
# lines; whatever matters in them also reaches us as errors.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
