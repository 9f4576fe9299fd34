"""The programs: argument parsing and wiring, nothing else.

One module a program. Whatever decides or talks lives in the layers below.
"""

import os

# gRPC's core reads this when first imported. Left alone it writes lines of its own among the JSON; what matters in them
# reaches us as errors.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
