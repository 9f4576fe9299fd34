"""The shard without I/O: every event enters here, and every order to the shell leaves from here.

The core joins the parts of the other rooms: what one part wants done is an event of another. No clock, no sockets.
"""
