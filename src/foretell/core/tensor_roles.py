"""How tensor parallelism divides the layers of a model, by their names (Megatron-LM, https://arxiv.org/abs/1909.08053)."""

import re
from enum import StrEnum


class TensorRole(StrEnum):
    """What is divided of a layer's weights."""

    COLUMNS = "columns"  # its outputs
    ROWS = "rows"  # its inputs: the results of all GPUs are summed
    VOCABULARY = "vocabulary"  # its words


# By the names that models of Hugging Face, torchtitan, GPT-NeoX, timm and PyTorch give to their linear layers.
_NAMES = {
    TensorRole.COLUMNS: (
        r"(.*\.)?([qkv]_proj|qkv(_proj)?|query|key|value|[qkv]|w[qkv]|Wqkv|in_proj|query_key_value|gate_proj|up_proj"
        r"|gate_up_proj|fc1|c_fc|w1|w3|lin1|linear1|dense_h_to_4h|wi(_\d)?|intermediate\.dense|c_attn|[qkv]_lin)"
    ),
    TensorRole.ROWS: (
        r"(.*\.)?(o_proj|out_proj|c_proj|down_proj|fc2|w2|wo|lin2|linear2|dense_4h_to_h|output\.dense|o|proj|dense"
        r"|out_lin)"
    ),
    TensorRole.VOCABULARY: (
        r"(.*\.)?(embed_tokens|wte|word_embeddings|tok_embeddings|embed_in|shared|lm_head|embed_out"
        r"|(predictions|lm_head)\.decoder)"
    ),
}
_PATTERNS = {role: re.compile(pattern) for role, pattern in _NAMES.items()}


def find_tensor_role(layer: str) -> TensorRole | None:
    """The role of a layer by its name; None if it is not divided."""
    return next((role for role, pattern in _PATTERNS.items() if pattern.fullmatch(layer)), None)
