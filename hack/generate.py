"""Writes the wire stubs of `bigfleet.wire.v1alpha1` from the protos in `api/proto`.

With `--accept-contract` it first records what the protos now declare in `api/proto/contract.binpb`, against which
`buf breaking` holds every later change. Nothing else writes that file.
"""

import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Annotated

import typer

ROOT = Path(__file__).resolve().parent.parent
PROTO_ROOT = ROOT / "api" / "proto"
STUBS = ROOT / "src" / "bigfleet" / "wire" / "v1alpha1"
CONTRACT = "contract.binpb"
PROTO_PACKAGE = Path("bigfleet/v1alpha1")

PACKAGE_DOCSTRING = (
    '"""Stubs of the wire contract, written by `make generate` from `api/proto`; never edited by hand."""\n'
)

# protoc derives a stub's Python package from the proto's path. Our stubs live one level deeper, in the layer that owns
# them. The proto's path must stay as it is, because it is the file's name in every peer's descriptors.
PROTOC_IMPORT = re.compile(r"\bbigfleet\.v1alpha1(?= import \w+_pb2\b|\.\w+_pb2\b)")
OUR_IMPORT = "bigfleet.wire.v1alpha1"


class GenerateError(Exception):
    """A tool refused the protos or is not there; the message says which and why."""


def generate(out: Path, proto_root: Path = PROTO_ROOT) -> list[Path]:
    """Writes all stubs into `out`, removes stubs that no proto asks for any more, and returns what it wrote."""
    with tempfile.TemporaryDirectory() as scratch:
        _protoc(
            proto_root,
            f"--plugin=protoc-gen-mypy={_script('protoc-gen-mypy')}",
            f"--plugin=protoc-gen-mypy_grpc={_script('protoc-gen-mypy_grpc')}",
            f"--python_out={scratch}",
            f"--grpc_python_out={scratch}",
            f"--mypy_out=quiet:{scratch}",
            # Every program here uses asyncio; stubs for both kinds of gRPC would type each call as either kind.
            f"--mypy_grpc_out=quiet,only_async:{scratch}",
        )
        stubs = {
            path.name: PROTOC_IMPORT.sub(OUR_IMPORT, path.read_text(encoding="utf-8"))
            for path in sorted((Path(scratch) / PROTO_PACKAGE).iterdir())
        }
    stubs["__init__.py"] = PACKAGE_DOCSTRING
    out.mkdir(parents=True, exist_ok=True)
    for path in out.glob("*_pb2*.py*"):
        if path.name not in stubs:
            path.unlink()
    for name, text in stubs.items():
        (out / name).write_text(text, encoding="utf-8")
    return [out / name for name in stubs]


def declared(proto_root: Path = PROTO_ROOT) -> bytes:
    """What the protos declare now, as a serialized FileDescriptorSet without comments."""
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / CONTRACT
        _protoc(proto_root, "--include_imports", f"--descriptor_set_out={target}")
        return target.read_bytes()


def accept_contract(proto_root: Path = PROTO_ROOT) -> Path:
    """Records what the protos declare as the contract. It may only grow: a breaking change is refused, with reasons."""
    contract = proto_root / CONTRACT
    if contract.exists():
        try:
            _run([_script("buf"), "breaking", "--against", CONTRACT], proto_root)
        except GenerateError as refusal:
            raise GenerateError(
                f"{refusal}\nThis breaks peers already deployed. Undo it, or delete {CONTRACT} to start anew."
            ) from refusal
    contract.write_bytes(declared(proto_root))
    return contract


def _protoc(proto_root: Path, *options: str) -> None:
    protos = sorted(path.relative_to(proto_root).as_posix() for path in (proto_root / PROTO_PACKAGE).glob("*.proto"))
    if not protos:
        raise GenerateError(f"no .proto file in {proto_root / PROTO_PACKAGE}")
    _run([sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={proto_root}", *options, *protos], proto_root)


def _script(name: str) -> str:
    path = Path(sysconfig.get_path("scripts")) / name
    if not path.exists():
        raise GenerateError(f"{name} is not installed beside {sys.executable}; run `make generate`, which sets it up")
    return str(path)


def _run(command: list[str], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise GenerateError((done.stdout + done.stderr).strip() or f"{command[0]} ended with code {done.returncode}")


def main(
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder to write the stubs into.")] = STUBS,
    accept: Annotated[
        bool,
        typer.Option("--accept-contract", help="Also record the protos as the contract to hold later changes against."),
    ] = False,
) -> None:
    """Write the wire stubs from api/proto."""
    try:
        if accept:
            typer.echo(f"contract recorded in {accept_contract()}")
        typer.echo(f"{len(generate(out))} files written to {out}")
    except (GenerateError, OSError) as error:
        typer.echo(f"generate: {error}", err=True)
        raise typer.Exit(1) from error


if __name__ == "__main__":
    typer.run(main)
