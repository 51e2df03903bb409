"""A training step's operators, read from a model's code."""

from collections.abc import Mapping, Sequence

from foretell.core.errors import MissingExtraError, WorkloadError
from foretell.core.workload import Workload
from foretell.workloads.step_options import InputSpec, StepOptions, resize


def read_workload(
    source: str,
    inputs: Sequence[InputSpec] = (),
    *,
    arguments: Mapping[str, object] | None = None,
    options: StepOptions | None = None,
    batch: int | None = None,
) -> Workload:
    """The training step of a model: its code, a configuration or a program, which may tell the inputs.

    Raises:
        MissingExtraError: PyTorch, or what reads a configuration, is not installed.
        NotFoundError: There is no such file, module or factory.
        WorkloadError: The code fails, or the step cannot be read from it.
    """
    require_torch()
    from foretell.workloads.capture import capture
    from foretell.workloads.model_loading import load_model

    loaded = load_model(source, arguments=arguments)
    given = resize(inputs or loaded.inputs, batch)
    if not given:
        raise WorkloadError(f"{source}: nobody says what the model is given; say it, as in --input 32,3,224,224")
    return capture(loaded.model, given, options=options, name=source)


def require_torch() -> None:
    """Make sure that PyTorch is there.

    Raises:
        MissingExtraError: It is not.
    """
    try:
        import torch  # noqa: F401
    except ImportError as exc:
        raise MissingExtraError("reading a model's code needs: pip install 'foretell[torch]'") from exc
