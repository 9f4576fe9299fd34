"""Reading manifests that a person named on the command line."""

from importlib.resources import files
from pathlib import Path

import msgspec

from bigfleet.cli.program import InputError
from bigfleet.model.crd import CapacityRequest, ManifestError, load_manifests
from bigfleet.model.demand.request import Reader, RequestError


def example_requests() -> Path:
    """The folder of the example requests: in the installed package, or else in the checkout."""
    package = Path(str(files("bigfleet")))
    installed = package / "examples" / "capacity-requests"
    return installed if installed.is_dir() else package.parents[1] / "examples" / "capacity-requests"


def read_requests(paths: list[Path], *, may_be_none: bool = False) -> list[CapacityRequest]:
    """Every CapacityRequest in these files and folders.

    A request that cannot become demand is refused with a ManifestError: it names the file, the document and the field.
    A request that has only a generateName gets a number behind it, as an API server would complete it to a name.
    """
    found: dict[tuple[str, str], CapacityRequest] = {}
    reader = Reader()
    for path in paths:
        for file in manifest_files(path):
            for document, manifest in load_manifests(_text(file), str(file)).items():
                if isinstance(manifest, CapacityRequest):
                    request = _named(manifest, len(found))
                    key = (request.metadata.namespace, request.metadata.name)
                    if key in found:
                        problem = f"CapacityRequest {key[0]}/{key[1]} is there twice; rename one"
                        raise ManifestError(str(file), problem, document=document, field="metadata.name")
                    try:
                        reader.unit(request.spec, *key)
                    except RequestError as error:
                        raise ManifestError(str(file), error.problem, document=document, field=error.field) from None
                    found[key] = request
    if not found and not may_be_none:
        raise InputError(f"{', '.join(map(str, paths))}: no CapacityRequest is in there")
    return list(found.values())


def _named(request: CapacityRequest, number: int) -> CapacityRequest:
    if request.metadata.name:
        return request
    metadata = msgspec.structs.replace(request.metadata, name=f"{request.metadata.generate_name}{number}")
    return msgspec.structs.replace(request, metadata=metadata)


def manifest_files(path: Path) -> list[Path]:
    """The file itself, or the *.yaml files of a folder; InputError where there is none."""
    try:
        if not path.is_dir():
            return [path]
        files_in = sorted(path.glob("*.yaml"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or 'cannot be read'}") from None
    if not files_in:
        raise InputError(f"{path}: the folder holds no *.yaml file")
    return files_in


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or 'cannot be read'}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: is not UTF-8 text ({error.reason} at byte {error.start})") from None
