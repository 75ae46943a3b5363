"""Dropout inside kernels, whose draws are never written to memory (section 5.4)."""

import triton
import triton.language as tl


@triton.jit
def kept_of(seed, number, row, column, rate):
    """Return which elements dropout keeps, drawn by their row and column, for any shape of both.

    ``number`` is that of the dropout in the model. It is Philox, as in torch, with one draw of
    32 bits for each element; the backward pass draws the same ones again.
    """
    row, column = tl.broadcast(row, column)
    bits, _, _, _ = tl.philox(tl.load(seed), row, column, row * 0 + number, row * 0)
    return tl.uint_to_uniform_float(bits) >= rate


@triton.jit
def kept_in_rows(seed, number, rows, WIDTH: tl.constexpr, rate):
    """Return which of the elements [rows, WIDTH] dropout keeps; four share a call of Philox."""
    four = tl.arange(0, WIDTH // 4)[None, :]
    row, four = tl.broadcast(rows[:, None], four)
    a, b, c, d = tl.philox(tl.load(seed), row, four, row * 0 + number, row * 0 + 1)
    bits = tl.join(tl.join(a, b), tl.join(c, d))
    bits = tl.reshape(bits, (rows.shape[0], WIDTH))
    return tl.uint_to_uniform_float(bits) >= rate
