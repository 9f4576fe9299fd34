"""The rules of engine.md in plain, slow, obvious Python: the judge of the compiled engine, written without seeing it.

`decision.decide` is the oracle; `bridge.decide` asks the engine the same question. Loops and laws run on the engine.
"""
