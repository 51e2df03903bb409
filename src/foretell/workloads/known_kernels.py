"""Which ATen calls have a known cost, and the operations of those that are neither products nor element-wise."""

import math
import re
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

# Calls without the tag "pointwise" that read their inputs and write their outputs once, or nearly so.
_PASSES = re.compile(
    r"_*(native_|cudnn_|miopen_|_*fused_|mkldnn_)?("
    r"batch_norm|layer_norm|group_norm|rms_norm|instance_norm|weight_norm|weight_norm_interface|l2_norm|norm"
    r"|linalg_vector_norm|linalg_matrix_norm"
    r"|(log_)?softmax|(log_)?softmax_backward_data|logsumexp|sum|nansum|mean|nanmean|prod|var|std|var_mean|std_mean"
    r"|max|min|amax|amin|aminmax|argmax|argmin|all|any|count_nonzero|is_all_true|is_any_true|equal|cdist_backward"
    r"|\w*(avg|max|lp)_pool[123]d\w*|\w*upsample_\w+|\w*(reflection|replication|constant)_pad\w*|grid_sampler\w*"
    r"|(nll|mse|smooth_l1|huber|l1|kl_div|soft_margin|multi_margin|multilabel_margin)_?(loss)?(2d)?(_nd)?(_forward)?"
    r"|binary_cross_entropy|ctc_loss|dropout|embedding(_dense)?|embedding_bag\w*|embedding_renorm_|glu|prelu\w*"
    r"|bernoulli|uniform|normal|normal_functional|exponential|geometric|log_normal|cauchy|random|multinomial"
    r"|rand\w*|im2col|col2im|unfold|unfold_backward|pixel_(un)?shuffle|channel_shuffle|bincount|histc|searchsorted"
    r"|bucketize|one_hot|triu_indices|tril_indices|linspace|logspace|eye|range|nonzero\w*|isin|affine_grid_generator"
    r"|amp_\w+|thnn_fused_\w+|rotary_embedding|complex|polar|view_as_complex|trace|diag_embed|diagonal_scatter"
    r"|as_strided_scatter|block_diag|tensor_split|batch_norm_\w+|nested_\w+|fill|histogramdd\w*|nan_to_num|dequantize"
    r"|quantize_\w+|fake_quantize\w*|choose_qparams\w*|bilinear_\w+|segment_reduce\w*|rrelu_with_noise|to_dense"
    r"|masked_softmax|masked_softmax_backward|safe_softmax|compute_linear_combination|roi_align"
    r")(_legit\w*|_with_update|_no_stats|_no_training|_functional)?(_backward\w*)?_?"
)

_ELEMENTWISE = frozenset({  # without that tag in PyTorch 2.13
    "softplus", "softplus_backward", "log_sigmoid_forward", "log_sigmoid_backward", "hardswish", "hardswish_backward",
    "hardsigmoid_backward", "hardtanh_backward", "leaky_relu_backward", "elu_backward", "softshrink_backward",
    "hardshrink_backward", "floor_divide", "rsub", "gelu", "mish", "abs", "threshold", "dist", "linalg_cross", "renorm",
    "binary_cross_entropy_with_logits", "_masked_scale", "glu_jvp", "poisson", "binomial", "_standard_gamma",
    "_standard_gamma_grad", "_dirichlet_grad", "_sample_dirichlet", "hann_window", "hamming_window", "blackman_window",
    "bartlett_window", "kaiser_window", "fft_fftfreq", "fft_rfftfreq", "masked_scatter_backward", "max_unpool2d",
    "max_unpool3d", "_fused_adam", "_fused_adamw", "_fused_sgd", "_fused_adagrad", "linalg__powsum", "addr",
    "_unsafe_masked_index", "_unsafe_masked_index_put_accumulate", "_pdist_backward", "_add_relu",
})  # fmt: skip

Formula: TypeAlias = Callable[..., float]


def is_one_pass(func: Any) -> bool:
    """Whether a call costs one operation for each element, and one pass over its tensors."""
    if torch.Tag.pointwise in getattr(func, "tags", ()):
        return True
    if getattr(func, "namespace", "") not in ("aten", "prims"):
        return False
    name = func.overloadpacket.__name__
    return name.removesuffix("_") in _ELEMENTWISE or _PASSES.fullmatch(name) is not None or _is_in_place(name)


def _is_in_place(name: str) -> bool:
    """Whether a call is the in-place form of an element-wise one."""
    other = getattr(torch.ops.aten, name[:-1], None) if name.endswith("_") else None
    return other is not None and any(torch.Tag.pointwise in getattr(other, each).tags for each in other.overloads())


# Fourier transforms: 5 n log2 n for complex values, half of it if one side is real. https://www.fftw.org/speed/


def count_fourier(args: Any, out: torch.Tensor) -> float:
    """The operations of a Fourier transform over the dimensions of its second argument."""
    real = not (args[0].is_complex() and out.is_complex())
    size = args[0] if not args[0].is_complex() else out
    length = math.prod(size.shape[place] for place in args[1])
    return (2.5 if real else 5.0) * size.numel() * math.log2(max(2, length))


# Matrices: leading terms. G. H. Golub and C. F. Van Loan, Matrix Computations, 4th edition.


def _rows_columns(matrix: torch.Tensor) -> tuple[float, float, float]:
    rows, columns = matrix.shape[-2:]
    return float(math.prod(matrix.shape[:-2])), float(rows), float(columns)


def _of_square(factor: float) -> Formula:
    def count(matrix: torch.Tensor, *_others: Any, **_named: Any) -> float:
        many, rows, columns = _rows_columns(matrix)
        return factor * many * rows * columns * min(rows, columns)

    return count


def _solve(matrix: torch.Tensor, right: torch.Tensor, *_others: Any, **_named: Any) -> float:
    many, rows, _ = _rows_columns(matrix)
    return 2 / 3 * many * rows**3 + 2.0 * rows * right.numel()


def _solve_triangular(matrix: torch.Tensor, right: torch.Tensor, *_others: Any, **_named: Any) -> float:
    return float(matrix.shape[-1] * right.numel())


LINEAR_ALGEBRA: dict[str, Formula] = {
    "linalg_cholesky_ex": _of_square(1 / 3),
    "cholesky": _of_square(1 / 3),
    "cholesky_inverse": _of_square(2 / 3),
    "linalg_inv_ex": _of_square(2),
    "linalg_lu_factor_ex": _of_square(2 / 3),
    "linalg_lu": _of_square(2 / 3),
    "_linalg_det": _of_square(2 / 3),
    "_linalg_slogdet": _of_square(2 / 3),
    "linalg_qr": _of_square(4),
    "linalg_householder_product": _of_square(2),
    "_linalg_eigh": _of_square(9),
    "linalg_eig": _of_square(25),
    "_linalg_eigvals": _of_square(10),
    "_linalg_svd": _of_square(22),
    "linalg_matrix_exp": _of_square(20),
    "linalg_lstsq": _of_square(4),
    "_linalg_solve_ex": _solve,
    "linalg_solve_triangular": _solve_triangular,
    "triangular_solve": _solve_triangular,
    "cholesky_solve": _solve,
    "linalg_lu_solve": _solve_triangular,
}
