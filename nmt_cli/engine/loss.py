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
    row; the other terms are added to the gradients of h and W directly.
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
        sum_dtype = torch.promote_types(rows.dtype, torch.float32)
        weight = output_weight.to(rows.dtype)
        mean_weight = output_weight.mean(0, dtype=sum_dtype)  # D
        vocabulary_size = len(weight)
        loss = torch.zeros((), dtype=sum_dtype, device=rows.device)
        nll = torch.zeros_like(loss)
        if wants_gradient:
            rows_gradient = torch.empty_like(rows)
            weight_gradient = torch.zeros_like(output_weight)
        for start in range(0, len(rows), CHUNK_ROWS):
            chunk_rows = rows[start : start + CHUNK_ROWS]  # C D
            chunk_targets = targets[start : start + CHUNK_ROWS]
            num_targets = len(chunk_targets)  # less than C where rows are spare
            softmax, token_nll = _softmax_and_nll(chunk_rows @ weight.T, chunk_targets)
            # logsumexp(z) - e mean(z) - (1 - e) z_y = nll + e (z_y - mean(z))
            wide_rows = chunk_rows[:num_targets].to(sum_dtype)
            target_weight = output_weight[chunk_targets].to(sum_dtype)  # C D
            advantage = (wide_rows * (target_weight - mean_weight)).sum()
            nll += token_nll
            loss += token_nll + smoothing * advantage
            if not wants_gradient:
                continue
            softmax[num_targets:] = 0.0
            chunk_gradient = (softmax @ weight).to(sum_dtype)
            chunk_gradient[:num_targets].sub_(target_weight, alpha=1.0 - smoothing)
            chunk_gradient[:num_targets].sub_(mean_weight, alpha=smoothing)
            rows_gradient[start : start + CHUNK_ROWS] = chunk_gradient
            weight_gradient += softmax.T @ chunk_rows
            weight_gradient.index_add_(
                0, chunk_targets, wide_rows.to(weight_gradient.dtype), alpha=smoothing - 1.0
            )
        if wants_gradient:
            row_sum = rows[: len(targets)].sum(0, dtype=sum_dtype)
            weight_gradient.sub_(row_sum, alpha=smoothing / vocabulary_size)
            ctx.save_for_backward(rows_gradient, weight_gradient)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(  # type: ignore[no-untyped-def]
        ctx,  # noqa: ANN001
        loss_gradient: Tensor,
        _: Tensor,
    ) -> tuple[Tensor, Tensor, None, None, None]:
        rows_gradient, weight_gradient = ctx.saved_tensors
        return rows_gradient * loss_gradient, weight_gradient * loss_gradient, None, None, None


def _softmax_and_nll(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the softmax [C, V] of ``logits``, in their type, and the summed nll of the targets.

    logsumexp(z) = max(z) - log(max(softmax(z))) spares the passes over C x V numbers that
    exponentials of our own would take; softmax is one kernel that sums in fp32.
    """
    softmax = logits.softmax(1)
    sum_dtype = torch.promote_types(logits.dtype, torch.float32)
    logits, real = logits[: len(targets)], softmax[: len(targets)]
    log_sum = logits.amax(1).to(sum_dtype) - real.amax(1).to(sum_dtype).log()
    target_logits = logits.gather(1, targets[:, None]).squeeze(1).to(sum_dtype)
    return softmax, (log_sum - target_logits).sum()
