"""Loads a model from code, from a Hugging Face configuration or from a saved program."""

import ast
import importlib.util
import inspect
import json
import logging
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export.passes import move_to_device_pass
from torch.nn.parameter import is_lazy

from foretell.core.errors import MissingExtraError, NotFoundError, WorkloadError
from foretell.workloads.example_inputs import describe_inputs
from foretell.workloads.hybrid_tensors import HybridTensors
from foretell.workloads.known_tensors import move_to_meta
from foretell.workloads.recorder import Recorder
from foretell.workloads.step_options import InputSpec
from foretell.workloads.user_code import find_place, shorten

_VALUE_ERRORS = (
    "cannot be called on meta tensors",
    "Cannot copy out of meta tensor",
    "with Meta tensors",
    "data-dependent",
    "torch.nonzero()",
    "has unknown size",
    "on a meta tensor",
    "numpy() on tensor that requires grad",
    "can't convert meta",
)


def explain(exc: BaseException, recorder: Recorder) -> WorkloadError:
    """The error of a step, as a message for the user."""
    if isinstance(exc, WorkloadError):
        return exc
    place = find_place(exc)
    message = shorten(exc)
    if any(text in str(exc) for text in _VALUE_ERRORS):
        return WorkloadError(
            f"{place or 'the model'}: the step depends on tensor values, which are unknown without running it. "
            "Move it out of forward, or let it depend on shapes only."
        )
    if not isinstance(exc, (RuntimeError, TypeError, ValueError)):
        message = f"{type(exc).__name__}: {message}" if message != type(exc).__name__ else message
    if isinstance(exc, OSError):
        where = f" at {place}" if place else ""
        return WorkloadError(f"the model failed{where}: {message}. {_FILES}")
    layer = f" in layer {recorder.layers[-1]!r}" if recorder.layers[-1] else ""
    shapes = ""
    if recorder.failed is not None:
        kind, given = recorder.failed
        shapes = f" ({kind} on {' and '.join(map(str, given))})"
    where = f" at {place}" if place else ""
    return WorkloadError(f"the model failed{layer}{shapes}{where}: {message}. Check --input and the model's arguments.")


BATCH, SEQUENCE_LENGTH = 8, 128  # of inputs that were not given
_FILES = "Files are looked for from the current folder; run it where the script runs"
_SCRIPT = "To read the step of a script as it is: foretell workload show -- python {script}"
_FORMS = (
    "FILE.py:FACTORY, PACKAGE.MODULE:FACTORY, a Hugging Face config.json or its folder, "
    "or a torch.export program (.pt2)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model, and its inputs if they are known."""

    model: nn.Module
    inputs: tuple[InputSpec, ...] = ()


def load_model(source: str, *, arguments: Mapping[str, object] | None = None, on_meta: bool = True) -> LoadedModel:
    """The model of a source: ``train.py:build_model``, ``package.module:factory``, a configuration, a program.

    Raises:
        NotFoundError: There is no such file, module or factory.
        WorkloadError: The code fails, or does not return a model.
        MissingExtraError: The library that reads configurations is not installed.
    """
    path = Path(source)
    if path.suffix == ".pt2":
        return _load_program(path, on_meta=on_meta)
    if path.suffix == ".json" or path.is_dir():
        return _load_configuration(path, arguments or {}, on_meta=on_meta)
    place, colon, factory = source.rpartition(":")
    if not colon or not place or not factory:
        script = f" {_SCRIPT.format(script=source)}" if path.suffix == ".py" else ""
        raise WorkloadError(f"{source!r} is not the name of a model. Expected {_FORMS}.{script}")
    with _arguments_hidden(place):
        module = _import(place)
        make = _find_factory(module, factory, place)
        _check_factory(make, place, source)
        model, example = _build(make, arguments or {}, source, on_meta=on_meta)
        inputs = _find_inputs(model, example, module, source)
    return LoadedModel(model=model, inputs=inputs)


@contextmanager
def _arguments_hidden(place: str) -> Iterator[None]:
    """Let code that reads the command line see the script's name only, not the arguments of this command."""
    before = sys.argv
    sys.argv = [place]
    try:
        yield
    finally:
        sys.argv = before


def _check_factory(make: Any, place: str, source: str) -> None:
    """Refuse a function that trains, before it does."""
    if inspect.isfunction(make) and make.__name__ == "main" and not _returns_value(make):
        raise WorkloadError(f"{source} returns nothing; expected an nn.Module. {_SCRIPT.format(script=place)}")


def _returns_value(function: Callable[..., Any]) -> bool:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):
        return True
    return any(isinstance(each, ast.Return) and each.value is not None for each in ast.walk(tree))


def _find_inputs(model: nn.Module, example: Any, module: Any, source: str) -> tuple[InputSpec, ...]:
    """The example inputs that the factory returned, or that ``example_inputs`` of the model or its file returns."""
    for owner in (model, module):
        if example is None:
            example = getattr(owner, "example_inputs", None)
    if example is None:
        return ()
    with _errors_explained(source), HybridTensors():
        return describe_inputs(example() if callable(example) else example, model.forward)


# Code


def _import(place: str) -> Any:
    path = Path(place)
    if path.suffix != ".py":
        return _import_module(place)
    if not path.is_file():
        raise NotFoundError("file", place, hint=f"Expected {_FORMS}.")
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    _allow_imports_from(path.resolve().parent)
    with _errors_explained(place):
        sys.modules[path.stem] = module  # classes look up their module by name
        spec.loader.exec_module(module)
    return module


def _import_module(name: str) -> Any:
    _allow_imports_from(Path.cwd())
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise NotFoundError("module", name, hint=f"Expected {_FORMS}; run it where the module can be imported.")
    with _errors_explained(name):
        return importlib.import_module(name)


def _allow_imports_from(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _find_factory(module: Any, name: str, place: str) -> Any:
    found = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        known = [
            key for key, value in vars(module).items()
            if not key.startswith("_") and callable(value) and getattr(value, "__module__", None) == module.__name__
        ]  # fmt: skip
        raise NotFoundError(f"factory in {place}", name, known=known)
    return found


def _build(make: Any, arguments: Mapping[str, object], source: str, *, on_meta: bool) -> tuple[nn.Module, Any]:
    """The model, and the example inputs that came with it."""
    if isinstance(make, nn.Module):
        return make, None
    if not callable(make):
        raise WorkloadError(
            f"{source} is {type(make).__name__}; expected an nn.Module, its class, or a function that returns one"
        )
    _check_arguments(make, arguments, source)
    if not on_meta:
        return _call(make, arguments, source)
    try:
        with HybridTensors():
            model, example = _call(make, arguments, source)
    except WorkloadError:  # the code reads values while it builds the model: build it with data
        model, example = _call(make, arguments, source)
    move_to_meta(model)
    return model, example


def _check_arguments(make: Callable[..., Any], arguments: Mapping[str, object], source: str) -> None:
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(**arguments)
    except TypeError as exc:
        unknown = [f"it has no argument {name!r}" for name in arguments if name not in signature.parameters]
        said = next(iter(unknown), exc)
        raise WorkloadError(f"{source} takes {signature}: {said}. Pass its arguments by name.") from None


def _call(make: Callable[..., Any], arguments: Mapping[str, object], source: str) -> tuple[nn.Module, Any]:
    with _errors_explained(source):
        made = make(**arguments)
    model, example = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(model, nn.Module):
        raise WorkloadError(
            f"{source} returned {type(made).__name__}; expected an nn.Module, or a pair of it and example inputs. "
            f"{_SCRIPT.format(script=source.rpartition(':')[0])}"
        )
    _check_shapes(model, source)
    return model, example


def _check_shapes(model: nn.Module, source: str) -> None:
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            raise WorkloadError(
                f"{source}: '{name}' is of a lazy module; its shape is known after the first call of the model. "
                f"Call the model once before you return it. {_SCRIPT.format(script=source.rpartition(':')[0])}"
            )


@contextmanager
def _errors_explained(source: str) -> Any:
    """Report errors of the user's code with the line of that code."""
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        try:
            yield
        except (Exception, SystemExit) as exc:
            kind, place = type(exc).__name__, find_place(exc)
            where = f" at {place}" if place else ""
            hint = f". {_FILES}" if isinstance(exc, OSError) and not isinstance(exc, ConnectionError) else ""
            raise WorkloadError(f"{source} failed{where}: {kind}: {shorten(exc)}{hint}") from exc


# Configurations


def _load_configuration(path: Path, arguments: Mapping[str, object], *, on_meta: bool) -> LoadedModel:
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise NotFoundError("configuration", str(file), hint=f"Expected {_FORMS}.")
    try:
        import transformers
    except ImportError as exc:
        raise MissingExtraError(f"{file} needs: pip install 'foretell[huggingface]'") from exc
    try:
        written = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as exc:
        raise WorkloadError(f"{file} is not JSON ({exc}); expected a Hugging Face configuration") from exc
    transformers.logging.set_verbosity(logging.ERROR)  # its notes on weights and losses do not apply here
    with _errors_explained(str(file)):
        config = transformers.AutoConfig.from_pretrained(str(file), **arguments)
        if getattr(config, "use_cache", None):
            config.use_cache = False  # not used in training
        names = [name for name in written.get("architectures") or () if hasattr(transformers, name)]
        make = getattr(transformers, names[0]) if names else transformers.AutoModel
        build = getattr(make, "_from_config", None) or make.from_config
        with ExitStack() as stack:
            if on_meta:
                stack.enter_context(HybridTensors())
            model = build(config)
    if on_meta:
        move_to_meta(model)
    return LoadedModel(model=model, inputs=_guess_inputs(model, config))


def _guess_inputs(model: nn.Module, config: Any) -> tuple[InputSpec, ...]:
    """The usual inputs of a model of this configuration, with labels if it has a loss."""
    takes = inspect.signature(model.forward).parameters
    labels = "labels" in takes
    classes = getattr(config, "num_labels", None) or 2
    if "input_ids" in takes:
        config = config.get_text_config() if hasattr(config, "get_text_config") else config
        longest = getattr(config, "max_position_embeddings", None) or SEQUENCE_LENGTH
        ids = InputSpec(
            name="input_ids", shape=(BATCH, min(SEQUENCE_LENGTH, longest)), dtype="int64", high=config.vocab_size
        )
        sequence = "SequenceClassification" not in type(model).__name__
        target = InputSpec(
            name="labels",
            shape=ids.shape if sequence else (BATCH,),
            dtype="int64",
            high=ids.high if sequence else classes,
        )
        return (ids, target) if labels else (ids,)
    if "pixel_values" in takes:
        size = getattr(config, "image_size", 224)
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        shape = (BATCH, getattr(config, "num_channels", 3), height, width)
        image = InputSpec(name="pixel_values", shape=shape)
        return (image, InputSpec(name="labels", shape=(BATCH,), dtype="int64", high=classes)) if labels else (image,)
    return ()


# Programs


def _load_program(path: Path, *, on_meta: bool) -> LoadedModel:
    if not path.is_file():
        raise NotFoundError("program", str(path), hint=f"Expected {_FORMS}.")
    with _errors_explained(str(path)):
        program = torch.export.load(path)
        if on_meta:
            program = move_to_device_pass(program, "meta")
        model = program.module()
    args, kwargs = program.example_inputs or ((), {})
    return LoadedModel(model=model, inputs=_describe(args, kwargs))


def _describe(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[InputSpec, ...]:
    named = [(None, value) for value in args] + list(kwargs.items())
    return tuple(
        InputSpec(name=name, shape=tuple(value.shape), dtype=str(value.dtype).removeprefix("torch."))
        for name, value in named
        if isinstance(value, torch.Tensor)
    )
