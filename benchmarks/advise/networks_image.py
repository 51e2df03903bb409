"""Networks for images: torchvision's, and those of NVIDIA's DeepLearningExamples that torchvision has the parts of."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from benchmarks.advise.networks import Network, describe_images
from benchmarks.advise.networks_unet import DiffusionUnet, NnUnet, describe_latents, describe_volumes


def _build_torchvision(name: str, **settings: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import torchvision

        model: nn.Module = getattr(torchvision.models, name)(**settings)
        return model

    return build


def _build_resnext(*, squeezes: bool) -> nn.Module:
    """ResNeXt-101 32x4d, which torchvision has with other widths only."""
    from torchvision.models.resnet import Bottleneck, ResNet
    from torchvision.ops import SqueezeExcitation

    class Squeezed(Bottleneck):  # type: ignore[misc]
        """A block that weighs its channels, by a sixteenth of them (models/resnet.py in NVIDIA's code)."""

        def __init__(self, inner: int, planes: int, *args: Any, **kwargs: Any) -> None:
            super().__init__(inner, planes, *args, **kwargs)
            self.squeeze = SqueezeExcitation(planes * self.expansion, planes * self.expansion // 16)

        def forward(self, x: Tensor) -> Tensor:
            out = self.relu(self.bn1(self.conv1(x)))
            out = self.relu(self.bn2(self.conv2(out)))
            out = self.squeeze(self.bn3(self.conv3(out)))
            before = x if self.downsample is None else self.downsample(x)
            after: Tensor = self.relu(out + before)
            return after

    model: nn.Module = ResNet(Squeezed if squeezes else Bottleneck, [3, 4, 23, 3], groups=32, width_per_group=4)
    return model


class _Detector(nn.Module):
    """RetinaNet with ResNeXt-50 on images of 800 pixels, as MLPerf trains it; boxes are given as dense targets.

    The loss is that of all anchors and classes (264 of OpenImages); matching anchors with boxes is left out, which
    NVIDIA's code does on the GPU: https://github.com/mlcommons/training/tree/master/single_stage_detector.
    """

    def __init__(self) -> None:
        super().__init__()
        from torchvision.models.detection import retinanet
        from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
        from torchvision.ops.feature_pyramid_network import LastLevelP6P7

        self.backbone = resnet_fpn_backbone(
            backbone_name="resnext50_32x4d",
            weights=None,
            trainable_layers=3,
            returned_layers=[2, 3, 4],
            extra_blocks=LastLevelP6P7(256, 256),
        )
        self.head = retinanet.RetinaNetHead(self.backbone.out_channels, 9, 264)

    def forward(self, images: Tensor) -> Tensor:
        found = self.head(list(self.backbone(images).values()))
        scores = found["cls_logits"].float()
        chance = scores.sigmoid()
        focal = (chance * chance * nn.functional.softplus(scores)).sum()
        loss: Tensor = focal + found["bbox_regression"].float().abs().sum()
        return loss


_SGD = {"optimizer": "sgd", "implementation": "for-loop"}  # before PyTorch 2.0, which came after most measurements
_RMS = {"optimizer": "rmsprop", "implementation": "for-loop"}
_ADAM = {"optimizer": "adam", "implementation": "fused", "loss": "own"}

NETWORKS = {
    "resnet50": Network(build=_build_torchvision("resnet50"), describe=describe_images(224), options=_SGD),
    "resnext101-32x4d": Network(
        build=lambda: _build_resnext(squeezes=False), describe=describe_images(224), options=_SGD
    ),
    "se-resnext101-32x4d": Network(
        build=lambda: _build_resnext(squeezes=True), describe=describe_images(224), options=_SGD
    ),
    "efficientnet-b0": Network(
        build=_build_torchvision("efficientnet_b0"), describe=describe_images(224), options=_RMS
    ),
    "efficientnet-b4": Network(
        build=_build_torchvision("efficientnet_b4"), describe=describe_images(380), options=_RMS
    ),
    "efficientnet-v2-s": Network(
        build=_build_torchvision("efficientnet_v2_s"), describe=describe_images(300), options=_SGD
    ),
    "swin-t": Network(
        build=_build_torchvision("swin_t"), describe=describe_images(224), options=_SGD | {"optimizer": "adamw"}
    ),
    "retinanet": Network(build=_Detector, describe=describe_images(800), options=_ADAM),
    "nnunet-2d": Network(
        build=lambda: NnUnet(2, channels=4, classes=4, levels=6),
        describe=describe_volumes(4, (192, 160)),
        options=_ADAM,
    ),
    "nnunet-3d": Network(
        build=lambda: NnUnet(3, channels=4, classes=4, levels=6),
        describe=describe_volumes(4, (128,) * 3),
        options=_ADAM,
    ),
    "unet3d-kits": Network(
        build=lambda: NnUnet(3, channels=1, classes=3, levels=6),
        describe=describe_volumes(1, (128,) * 3),
        options=_ADAM,
    ),
    "stable-diffusion-2": Network(
        build=lambda: DiffusionUnet(context=1024, head_width=64),
        describe=describe_latents(64, 1024),
        options=_ADAM | {"optimizer": "adamw"},
    ),
}
