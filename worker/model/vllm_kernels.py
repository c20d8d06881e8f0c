"""Cheaper paths through vLLM's layers on the CPU, where vLLM leaves them to plain torch.

vLLM ships C kernels for RMS norm on the CPU but offers them on GPUs only. In torch, the norms of a
30-layer model cost 3 of the 27 ms of a one-row step; by the kernel, half a millisecond.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from vllm import ir
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

PROVIDER = "pie_cpu"


def speed_up(layers: Iterable[AttentionLayerBase]) -> None:
    """To be called once the module of a CPU model is built."""
    for op in (ir.ops.rms_norm, ir.ops.fused_add_rms_norm):
        op.set_default([PROVIDER, "native"])
    for layer in layers:
        # Attention is an opaque custom op for torch.compile's sake, which we do not use.
        layer.use_direct_call = True


def _plain(x: Tensor, weight: Tensor | None, variance_size: int | None) -> bool:
    """Whether the C kernel can do it: one type, and no part left out of the variance."""
    return (
        variance_size is None
        and weight is not None
        and weight.dtype == x.dtype
        and x.is_contiguous()
        and x.device.type == "cpu"
    )


@ir.ops.rms_norm.register_impl(
    PROVIDER,
    supports_args=lambda x, weight, epsilon, variance_size=None: _plain(x, weight, variance_size),
)
def _rms_norm(
    x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> Tensor:
    output = torch.empty_like(x)
    torch.ops._C.rms_norm(output, x, weight, epsilon)
    return output


@ir.ops.fused_add_rms_norm.register_impl(
    PROVIDER,
    supports_args=lambda x, x_residual, weight, epsilon, variance_size=None: (
        _plain(x, weight, variance_size) and x_residual.is_contiguous()
    ),
    inplace=True,
)
def _fused_add_rms_norm(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    torch.ops._C.fused_add_rms_norm(x, x_residual, weight, epsilon)
    return x, x_residual
