"""Ten well-known recipes, and what others published of them.

A figure that was measured under settings that are not stated is shown, but not compared.
"""

from dataclasses import dataclass, field
from typing import Any

from benchmarks.advise.published import Published, get_changed_device


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A training, and a published figure of it. ``per_example`` are the units of an example, such as its tokens."""

    name: str
    network: str
    device: str
    gpus: int
    batch: int
    precision: str
    unit: str
    said: str
    source: str
    differs: str
    published: float | None = None  # units a second of all GPUs; None if no figure can be compared
    per_example: int = 1
    layout: str = "ddp"
    accumulation: int = 1
    samples: float = 0.0  # of the whole training; 0 if it has no usual end
    options: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)  # of the measured board, where they differ

    def build(self) -> Published:
        """As a row that can be predicted."""
        return Published(
            source="recipes",
            task=self.name,
            network=self.network,
            device=get_changed_device(self.device, **self.figures),
            gpus=self.gpus,
            batch=self.batch,
            precision=self.precision,
            rate=(self.published or float(self.per_example)) / self.per_example,
            layout=self.layout,
            accumulation=self.accumulation,
            options=self.options,
            label=self.name,
        )


_EXAMPLES = "NVIDIA/DeepLearningExamples, {}/README.md, as of 2024-04-04"
_IMAGENET = 1_281_167
_TITAN = "pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, December 2024"
_TITAN_BOARD = {"bandwidth_bytes": 2.4e12, "power_w": 500.0}  # as the source describes its H100
_TITAN_DIFFERS = "H100 of 500 W with HBM2e; every second product is computed again there, every second layer here"

RECIPES = (
    Recipe(
        name="ResNet-50, 90 epochs of ImageNet, mixed precision",
        network="resnet50",
        device="A100-80",
        gpus=8,
        batch=256,
        precision="fp16",
        options={"channels_last": True},
        unit="images",
        samples=90 * _IMAGENET,
        published=16621,
        said="8 GPUs, mixed precision: 16621 img/s",
        source=_EXAMPLES.format("PyTorch/Classification/ConvNets/resnet50v1.5"),
        differs="norm, addition and activation in one kernel of NVIDIA's; DALI loads the images",
    ),
    Recipe(
        name="ViT-B/16 (DeiT-B), 300 epochs of ImageNet, mixed precision",
        network="vit-b-16 eager",
        device="V100-32",
        gpus=8,
        batch=128,
        precision="fp16",
        unit="images",
        samples=300 * _IMAGENET,
        published=300 * _IMAGENET / (53 * 3600),
        said="a typical training of 300 epochs takes 53 hours on a single node for the DeiT-B",
        source="Touvron et al., arXiv 2012.12877v2, section 6, January 2021",
        differs="time of the whole job, with evaluation and images that the CPU decodes; the batch of a GPU is assumed",
    ),
    Recipe(
        name="BERT-large pre-training, phase 1 (128 tokens), mixed precision",
        network="bert-large 128",
        device="A100-80",
        gpus=8,
        batch=256,
        accumulation=32,
        precision="fp16",
        unit="sequences",
        samples=7038 * 65536,
        published=4591,
        said="8 GPUs, sequence length 128, mixed precision: 4591 sequences/s",
        source=_EXAMPLES.format("PyTorch/LanguageModeling/BERT"),
        differs="kernels of Apex for norms and LAMB, chains fused by the compiler of PyTorch 1.11",
    ),
    Recipe(
        name="GPT-2 XL, 32,000 steps of a million tokens",
        network="gpt2-xl",
        device="H100",
        gpus=8,
        batch=16,
        accumulation=8,
        precision="pure-bf16",
        layout="zero1",
        unit="tokens",
        per_example=1024,
        samples=32_000 * 1024,
        published=381_690,
        said="8 x H100: 2747.19 ms for 1,048,576 tokens, 381690 tok/s; 32,000 steps in 24 hours",
        source="karpathy/llm.c, discussion 677, and scripts/run_gpt2_1558M.sh, July 2024",
        differs="written in CUDA; predicted as PyTorch with a compiler",
    ),
    Recipe(
        name="Llama-3 8B pre-training, FSDP, torch.compile",
        network="llama3-8b titan",
        figures=_TITAN_BOARD,
        device="H100",
        gpus=8,
        batch=2,
        precision="bf16",
        layout="fsdp",
        unit="tokens",
        per_example=8192,
        published=8 * 6667,
        said="8 GPUs, local batch size 2, selective checkpointing: FSDP + torch.compile, 6,667 tokens/s/GPU",
        source=_TITAN,
        differs=_TITAN_DIFFERS,
    ),
    Recipe(
        name="Llama-3 8B pre-training, FSDP, torch.compile, 128 GPUs",
        network="llama3-8b titan",
        figures=_TITAN_BOARD,
        device="H100",
        gpus=128,
        batch=2,
        precision="bf16",
        layout="fsdp",
        unit="tokens",
        per_example=8192,
        published=128 * 6514,
        said="128 GPUs, local batch size 2, selective checkpointing: FSDP + torch.compile, 6,514 tokens/s/GPU",
        source=_TITAN,
        differs=_TITAN_DIFFERS,
    ),
    Recipe(
        name="Llama-3 8B LoRA, sequences of 2048 tokens",
        network="llama3-8b lora",
        device="A6000",
        gpus=1,
        batch=2,
        precision="pure-bf16",
        unit="tokens",
        per_example=2048,
        said="Llama 3.1 8B, LoRA, 1x A6000: 4699 tokens/s",
        source="pytorch/torchtune, README.md",
        differs="lengths of sequences and what is computed again are not stated there: not compared",
    ),
    Recipe(
        name="Mixtral 8x7B pre-training, experts and pipeline",
        network="mixtral-8x7b",
        device="H100",
        gpus=64,
        batch=1,
        accumulation=16,
        precision="pure-bf16",
        layout="pp=4,ep=8,zero1,micro=16,interleave=8",
        unit="tokens",
        per_example=4096,
        said="MCore v0.9: 468 TFLOPS for Mixtral 8X7B bf16 training",
        source="docs.nvidia.com/megatron-core, developer guide, API guide of MoE",
        differs="GPUs, layout and batches of that figure are not stated there: not compared",
    ),
    Recipe(
        name="nnU-Net, volumes of 128 x 128 x 128, mixed precision",
        network="nnunet-3d",
        device="A100-80",
        gpus=8,
        batch=2,
        precision="fp16",
        unit="volumes",
        published=220.83,
        said="dimension 3, 8 GPUs, batch size 2, mixed precision: 220.83 img/s",
        source=_EXAMPLES.format("PyTorch/Segmentation/nnUNet"),
        differs="PyTorch Lightning around the step; DALI crops the volumes",
    ),
    Recipe(
        name="Stable Diffusion 2, latents of 64 x 64",
        network="stable-diffusion-2",
        device="H100",
        gpus=8,
        batch=32,
        precision="pure-fp16",
        options={"compile": True, "channels_last": True},
        unit="images",
        published=1098.77,
        said="NVIDIA, 8 x H100-SXM5-80GB, global batch 256: 1098.77 samples/s",
        source="mlcommons/training_results_v4.1, logs of stable_diffusion, November 2024",
        differs="the encoder of captions runs as well; kernels of NeMo and CUDA graphs",
    ),
    Recipe(
        name="GCN on Cora, an epoch",
        network="gcn-cora",
        device="V100-16",
        gpus=1,
        batch=1,
        precision="fp32",
        unit="epochs",
        published=1 / 0.0045,
        said="Tesla V100-SXM2-16G: Cora, GCN, DGL 0.3.0: 0.0045 s an epoch",
        source="PaddlePaddle/PGL, README.md",
        differs="bound by Python and launches, slower with DGL of 2019, whose kernels sum over neighbours",
    ),
)
