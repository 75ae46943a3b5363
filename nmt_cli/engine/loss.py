"""Label-smoothed cross-entropy fused with the output projection (section 5.4).

Legend: T target tokens, D d_model, V vocabulary, C rows of a chunk.
"""

from typing import NamedTuple

import torch
from torch import Tensor

CHUNK_ROWS = 1024  # enough to keep the products busy; the logits of a chunk are V times as many


class LossSums(NamedTuple):
    """Sums over the target tokens of a batch."""

    loss: Tensor  # label-smoothed, what training minimizes; carries the gradient
    nll: Tensor  # negative log-likelihood, what perplexity is made of; in nats


def label_smoothed_cross_entropy(
    rows: Tensor, output_weight: Tensor, targets: Tensor, smoothing: float
) -> LossSums:
    """Return the summed loss of the first T ``rows`` [.., D] against ``targets`` [T].

    The logits ``rows @ output_weight.T`` exist only chunk by chunk, and the gradient is computed
    with them, so that no T x V tensor is kept for the backward pass. The products run in the
    type of ``rows``; the softmax and all sums are in fp32 or better. With smoothing e, the target
    distribution is (1 - e) one-hot + e/V, as in ``F.cross_entropy(label_smoothing=e)``.
    """
    wants_gradient = torch.is_grad_enabled() and (rows.requires_grad or output_weight.requires_grad)
    return LossSums(
        *_FusedCrossEntropy.apply(  # type: ignore[no-untyped-call]
            rows, output_weight, targets, smoothing, wants_gradient
        )
    )


class _FusedCrossEntropy(torch.autograd.Function):
    """With z = W h: loss = logsumexp(z) - (1 - e) z_y - e mean(z), and mean(z) = h . mean(W).

    Its gradient in z is softmax(z) - (1 - e) one-hot - e/V. Only the softmax needs V numbers a
    row; the last term is added to the gradients of h and W directly.
    """

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,  # noqa: ANN001
        rows: Tensor,
        output_weight: Tensor,
        targets: Tensor,
        smoothing: float,
        wants_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        weight = output_weight.to(rows.dtype)
        sum_dtype = torch.promote_types(rows.dtype, torch.float32)
        log_sum = torch.zeros((), dtype=sum_dtype, device=rows.device)
        target_logits = torch.zeros_like(log_sum)
        if wants_gradient:
            rows_gradient = torch.empty_like(rows)
            weight_gradient = torch.zeros_like(output_weight)
        for start in range(0, len(rows), CHUNK_ROWS):
            chunk_rows = rows[start : start + CHUNK_ROWS]  # C D
            chunk_targets = targets[start : start + CHUNK_ROWS]
            num_targets = len(chunk_targets)  # less than C where rows are spare
            place = torch.arange(num_targets, device=rows.device), chunk_targets
            logits = chunk_rows @ weight.T  # C V
            target_logits += logits[place].sum(dtype=sum_dtype)
            softmax, chunk_log_sum = _softmax_and_log_sum(logits, num_targets)
            log_sum += chunk_log_sum
            if not wants_gradient:
                continue
            softmax[num_targets:] = 0.0
            softmax[:num_targets][place] -= 1.0 - smoothing
            torch.mm(softmax, weight, out=rows_gradient[start : start + CHUNK_ROWS])
            _add_product(weight_gradient, softmax.T, chunk_rows)
        row_sum = rows[: len(targets)].sum(0, dtype=sum_dtype)
        mean_weight = output_weight.mean(0, dtype=sum_dtype)  # D
        if wants_gradient:
            rows_gradient[: len(targets)].sub_(mean_weight, alpha=smoothing)
            weight_gradient.sub_(row_sum, alpha=smoothing / len(weight))
            ctx.save_for_backward(rows_gradient, weight_gradient)
        nll = log_sum - target_logits
        ctx.mark_non_differentiable(nll)
        return nll + smoothing * (target_logits - row_sum @ mean_weight), nll

    @staticmethod
    def backward(  # type: ignore[no-untyped-def]
        ctx,  # noqa: ANN001
        loss_gradient: Tensor,
        _: Tensor,
    ) -> tuple[Tensor, Tensor, None, None, None]:
        rows_gradient, weight_gradient = ctx.saved_tensors
        return rows_gradient * loss_gradient, weight_gradient * loss_gradient, None, None, None


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add a product to ``total``, which may be wider."""
    if left.dtype == total.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right


def _softmax_and_log_sum(logits: Tensor, num_targets: int) -> tuple[Tensor, Tensor]:
    """Return the softmax [C, V] of ``logits``, in their type, and their summed logsumexp.

    logsumexp(z) = max(z) - log(max(softmax(z))) spares the passes over C x V numbers that
    exponentials of our own would take; softmax is one kernel that sums in fp32.
    """
    softmax = logits.softmax(1)
    largest, most_likely = _maxima(logits[:num_targets]), _maxima(softmax[:num_targets])
    return softmax, (largest - most_likely.log()).sum()


def _maxima(rows: Tensor) -> Tensor:
    """Return the largest number of each row, in fp32 or better.

    In bf16 a CPU takes ten times as long for it as for whole numbers of the same size, and the
    bits of bf16 are ordered as these are: the other way round where all numbers are negative.
    """
    if rows.dtype is not torch.bfloat16 or rows.device.type != "cpu":
        return rows.amax(1).to(torch.promote_types(rows.dtype, torch.float32))
    bits = rows.view(torch.int16)
    largest = bits.amax(1)
    if (largest < 0).any():
        largest = torch.where(largest < 0, bits.amin(1), largest)
    return largest.view(torch.bfloat16).float()
