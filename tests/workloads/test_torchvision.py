"""Every family of torchvision's classification models can be read."""

from collections import Counter
from typing import Any

import pytest
from torch import nn

from foretell.core.workload import StepPhase
from foretell.workloads.capture import capture
from foretell.workloads.hybrid_tensors import HybridTensors
from foretell.workloads.step_options import InputSpec, StepOptions

models = pytest.importorskip("torchvision.models")

FAMILIES: dict[str, dict[str, Any]] = {
    "alexnet": {},
    "convnext_tiny": {},
    "densenet121": {},
    "efficientnet_b0": {},
    "googlenet": {"aux_logits": False, "init_weights": False},
    "inception_v3": {"aux_logits": False, "init_weights": False},
    "maxvit_t": {},
    "mnasnet0_5": {},
    "mobilenet_v3_small": {},
    "regnet_y_400mf": {},
    "resnet18": {},
    "shufflenet_v2_x0_5": {},
    "squeezenet1_1": {},
    "swin_v2_t": {},
    "vgg11_bn": {},
    "vit_b_16": {},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_read_whole(name: str) -> None:
    with HybridTensors():
        model: nn.Module = getattr(models, name)(**FAMILIES[name])
    size = 299 if name == "inception_v3" else 224
    workload = capture(model, [InputSpec(shape=(2, 3, size, size))], options=StepOptions(implementation="for-loop"))
    assert workload.parameters == sum(each.numel() for each in model.parameters())
    counts = Counter((each.kind, each.phase) for each in workload.operators)
    for kind in ("conv2d", "linear", "batch_norm", "layer_norm", "multi_head_attention_forward"):
        assert counts[kind, StepPhase.BACKWARD] == counts[kind, StepPhase.FORWARD]
    products = ("conv2d", "linear", "matmul", "multi_head_attention_forward", "einsum")
    flops = {
        phase: sum(each.flops for each in workload.operators if each.phase is phase and each.kind in products)
        for phase in StepPhase
    }
    assert flops[StepPhase.BACKWARD] == pytest.approx(2 * flops[StepPhase.FORWARD], rel=0.15)
    assert counts["mul_", StepPhase.UPDATE] == len(workload.gradients)
