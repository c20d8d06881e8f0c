"""The counter-based generator: the draw for flat element j is a function of key, counter and j,
so it does not depend on batching, device or order. int64 holds the 64-bit words as bit patterns.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from worker.eta.kernels import unsigned

_MULTIPLIER_1 = 0x3C79AC492BA7B653
_MULTIPLIER_2 = 0x1C69B3F74AC4AE35
_STRIDE = 0x9E3779B97F4A7C15 - (1 << 64)
_BELOW_ONE = 1.0 - 2.0**-24
_ALL_BITS = (1 << 64) - 1
# Words that are drawn at once on the host: they and their scratch stay in the cache.
_BLOCK = 1 << 17

Draw = Callable[[Tensor, Tensor], Tensor]  # seed, element numbers -> f32


def _xor_shift(z: Tensor, scratch: Tensor, bits: int) -> None:
    # torch shifts in the sign; the mask makes it a logical shift.
    torch.bitwise_right_shift(z, bits, out=scratch)
    z.bitwise_xor_(scratch.bitwise_and_((1 << (64 - bits)) - 1))


def _mix(z: Tensor) -> Tensor:
    """Mixes 64-bit words in place."""
    scratch = torch.empty_like(z)
    _xor_shift(z, scratch, 27)
    z.mul_(_MULTIPLIER_1)
    _xor_shift(z, scratch, 33)
    z.mul_(_MULTIPLIER_2)
    _xor_shift(z, scratch, 27)
    return z


def seeds(state: Tensor) -> Tensor:
    """int64 `[G]` of u32 states `[G, 2]`."""
    wide = unsigned(state)
    return _mix((wide[:, 0] << 32) | wide[:, 1])


def skip(seed: Tensor, count: Tensor) -> Tensor:
    """Seeds whose element 0 is element `count` of the given ones."""
    return seed + count * _STRIDE


def uniform(seed: Tensor, j: Tensor) -> Tensor:
    """f32 draws in (0, 1) for element numbers j; seed and j broadcast."""
    if seed.device.type == "cpu":
        return _in_blocks(seed, j, lambda draws: None)
    return uniform_on_device(seed, j)


def uniform_on_device(seed: Tensor, j: Tensor) -> Tensor:
    bits = _mix(seed + (j + 1) * _STRIDE).bitwise_right_shift_(40).bitwise_and_(0xFFFFFF)
    u = bits.to(torch.float32)
    return u.add_(0.5).mul_(2.0**-24).clamp_(max=_BELOW_ONE)


def gumbel(seed: Tensor, j: Tensor) -> Tensor:
    if seed.device.type == "cpu":
        return _in_blocks(seed, j, _make_gumbel)
    return uniform(seed, j).log_().neg_().log_().neg_()


def normal(seed: Tensor, j: Tensor) -> Tensor:
    radius = uniform(seed, 2 * j).log_().mul_(-2.0).sqrt_()
    return radius * torch.cos(uniform(seed, 2 * j + 1) * (2.0 * torch.pi))


# -- on the host: numpy's words are unsigned, and its logarithm takes a third of the time of torch's


def _in_blocks(seed: Tensor, j: Tensor, finish: Callable[[np.ndarray], None]) -> Tensor:
    """Uniform draws, of which `finish` makes others in place."""
    words = seed.numpy().view(np.uint64)
    steps = (j.numpy().view(np.uint64) + np.uint64(1)) * np.uint64(_STRIDE & _ALL_BITS)
    words, steps = np.broadcast_arrays(words, steps)
    draws = np.empty(words.shape, np.float32)
    rows = max(1, _BLOCK // max(1, words[:1].size))
    for start in range(0, len(draws), rows):
        here = slice(start, start + rows)
        draws[here] = _uniform_on_host(words[here] + steps[here])
        finish(draws[here])
    return torch.from_numpy(draws)


def _uniform_on_host(z: np.ndarray) -> np.ndarray:
    z ^= z >> np.uint64(27)
    z *= np.uint64(_MULTIPLIER_1)
    z ^= z >> np.uint64(33)
    z *= np.uint64(_MULTIPLIER_2)
    # The last step of the mix does not reach the upper 24 bits.
    z >>= np.uint64(40)
    u = z.view(np.int64).astype(np.float32)
    u += np.float32(0.5)
    u *= np.float32(2.0**-24)
    return np.minimum(u, np.float32(_BELOW_ONE), out=u)


def _make_gumbel(draws: np.ndarray) -> None:
    for _ in range(2):
        np.log(draws, out=draws)
        np.negative(draws, out=draws)
