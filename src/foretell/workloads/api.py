"""Reads the operators of a training step from the code of a model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from foretell.core.devices import Device
from foretell.core.errors import MissingExtraError, Mistake, SpecError, WorkloadError
from foretell.core.generation import Generation
from foretell.core.memory import MemoryTrace
from foretell.core.workload import Workload
from foretell.workloads.scripts.script_facts import RecordedScript
from foretell.workloads.step_options import InputSpec, StepOptions, resize, set_length

SCRIPT_TIMEOUT_S = 1800.0  # that a script may take until its first step has ended
INPUTS_UNKNOWN = "the inputs of the model are unknown; pass them, for example --input 32,3,224,224"

_ONE_STEP = "training or inference: generated text has several steps, which read_generation reads"


def read_workload(
    source: str,
    inputs: Sequence[InputSpec] = (),
    *,
    arguments: Mapping[str, object] | None = None,
    options: StepOptions | None = None,
    batch: int | None = None,
) -> Workload:
    """The training step of a model. A configuration or a program may define the inputs.

    Raises:
        MissingExtraError: PyTorch, or the library for a configuration, is not installed.
        NotFoundError: There is no such file, module or factory.
        WorkloadError: The code fails, or the step cannot be read from it.
    """
    require_torch()
    if options is not None and options.mode == "generate":
        raise SpecError("the step", [Mistake(place="mode", found="generate", expected=_ONE_STEP)])
    from foretell.workloads.capture import capture
    from foretell.workloads.model_loading import load_model

    loaded = load_model(source, arguments=arguments)
    given = resize(inputs or loaded.inputs, batch)
    if not given:
        raise WorkloadError(f"{source}: {INPUTS_UNKNOWN}")
    return capture(loaded.model, given, options=options, name=source)


def read_memory(
    source: str,
    inputs: Sequence[InputSpec] = (),
    *,
    arguments: Mapping[str, object] | None = None,
    options: StepOptions | None = None,
    batch: int | None = None,
    length: int | None = None,
) -> MemoryTrace:
    """The memory that a step of a model allocates and frees on a GPU; ``length`` replaces the tokens of its inputs.

    Raises:
        MissingExtraError, NotFoundError, WorkloadError: As :func:`read_workload`.
        SpecError: A length is asked for, but no input has tokens.
    """
    require_torch()
    from foretell.workloads.generation_memory import capture_generation_memory
    from foretell.workloads.memory_capture import capture_memory
    from foretell.workloads.model_loading import load_model

    loaded = load_model(source, arguments=arguments)
    given = set_length(resize(inputs or loaded.inputs, batch), length)
    if not given:
        raise WorkloadError(f"{source}: {INPUTS_UNKNOWN}")
    capture = capture_generation_memory if options is not None and options.mode == "generate" else capture_memory
    return capture(loaded.model, given, options=options, name=source)


def read_generation(
    source: str,
    inputs: Sequence[InputSpec] = (),
    *,
    arguments: Mapping[str, object] | None = None,
    options: StepOptions | None = None,
    batch: int | None = None,
) -> Generation:
    """The steps in which a causal language model generates text. A configuration may define the inputs.

    Raises:
        MissingExtraError: PyTorch, or the library for a configuration, is not installed.
        NotFoundError: There is no such file, module or factory.
        WorkloadError: The code fails, or the model is not a causal language model.
    """
    require_torch()
    from foretell.workloads.generation_capture import PROMPT, capture_generation
    from foretell.workloads.model_loading import load_model

    options = options or StepOptions(mode="generate")
    loaded = load_model(source, arguments=arguments)
    if not inputs and options.prompt is None:  # the length of a configuration's inputs is that of a training
        options = replace(options, prompt=PROMPT)
    given = resize(inputs or loaded.inputs, batch)
    if not given:
        raise WorkloadError(f"{source}: {INPUTS_UNKNOWN.replace('32,3,224,224', '1,512:int64:32000')}")
    return capture_generation(loaded.model, given, options=options, name=source)


def read_script(
    command: Sequence[str],
    *,
    timeout_s: float = SCRIPT_TIMEOUT_S,
    on_progress: Callable[[str], None] | None = None,
    device: Device | None = None,
    memory: bool = False,
) -> RecordedScript:
    """The first training step of a command, which runs in this folder until that step has ended.

    The script finds this device as its GPU, by default an H100. With ``memory``, it takes a second step, and what it
    allocates on the GPU is recorded from its start to the end of that step.

    Raises:
        NotFoundError: Its program, its script or a file that it needs does not exist.
        WorkloadError: It takes no step, fails, asks for several processes, or takes longer than ``timeout_s``.
        MissingExtraError: Its Python has no PyTorch.
    """
    from foretell.workloads.scripts.script_command import run_command
    from foretell.workloads.scripts.script_results import build_recorded

    outcome = run_command(command, timeout_s=timeout_s, on_progress=on_progress, device=device, memory=memory)
    return build_recorded(command, outcome, timeout_s=timeout_s)


def require_torch() -> None:
    """Check that PyTorch is installed.

    Raises:
        MissingExtraError: It is not.
    """
    try:
        import torch  # noqa: F401
    except ImportError as exc:
        raise MissingExtraError("reading a model's code needs: pip install 'foretell[torch]'") from exc
