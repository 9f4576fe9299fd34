"""A `bigfleet all-in-one` with a cloud whose machines come within a second."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

SCRIPT = Path(sys.executable).parent / "bigfleet"


def command(folder: Path, *arguments: str) -> list[str]:
    cloud = folder / "cloud.yaml"
    cloud.write_text(
        yaml.safe_dump(
            {
                "latency": dict.fromkeys(("configure", "join", "drain", "wipe", "delete"), "10ms") | {"create": "1s"},
                "pools": [
                    {
                        "name": "m",
                        "instance_type": "m.8",
                        "zone": "a",
                        "capacity_type": "OnDemand",
                        "count": 20,
                        "price_per_hour": 0.4,
                        "resources": {"cpu": 8, "memory": "32Gi"},
                    }
                ],
            }
        )
    )
    return [
        *(str(SCRIPT), "all-in-one", f"--cloud={cloud}", f"--data-dir={folder}/data"),
        *(f"--listen=unix:{folder}/s", "--metrics-listen=127.0.0.1:0", "--cycle-interval=500ms", *arguments),
    ]


@asynccontextmanager
async def all_in_one(folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """One that serves; killed at the end unless it is over by then."""
    process = await asyncio.create_subprocess_exec(*command(folder), stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        async for line in process.stderr:
            if json.loads(line)["event"] == "shard_serving":
                break
        # What it says from here on must not fill the pipe.
        draining = asyncio.create_task(process.stderr.read())
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    await draining
