"""Predicts the time of a kernel on any GPU, from the figures of both."""

# Each kind of kernel and the class of its model, which is imported when it is used. The fitted models ship as
# ``steps/weights/kernels/NAME.safetensors``.
KERNEL_MODELS = {
    "product": "foretell.steps.kernels.product_times:ProductTimeModel",
    "attention": "foretell.steps.kernels.attention_times:AttentionTimeModel",
    "convolution": "foretell.steps.kernels.convolution_times:ConvolutionTimeModel",
    "memory_pass": "foretell.steps.kernels.pass_times:PassTimeModel",
}
