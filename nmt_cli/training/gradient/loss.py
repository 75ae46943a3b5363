"""Label-smoothed cross-entropy fused with the output projection (section 5.4).

Legend: T target tokens, D d_model, V vocabulary, C rows of a chunk.
"""

from typing import NamedTuple

import torch
from torch import Tensor

# Enough to keep the products busy; the logits of a chunk are V times as many.
CHUNK_ROWS = {"cpu": 1024, "cuda": 4096}
# Of our kernel, which needs no memory beside the logits. After each chunk the gradient of the
# output weight is read and written: with base, 0.2 GB for each of 7 chunks of a batch, or of 2.
KERNEL_CHUNK_ROWS, KERNEL_CHUNK_BYTES = 16_384, 5 << 28


class LossSums(NamedTuple):
    """Sums over the target tokens of a batch."""

    loss: Tensor  # label-smoothed; carries the gradient
    nll: Tensor  # negative log-likelihood, what perplexity is made of; in nats
    alignment: Tensor | None = None  # the loss of a guided head; carries its gradient
    alignment_weight: float = 0.0  # of the guided head's loss

    @property
    def total(self) -> Tensor:
        """What training lowers."""
        if self.alignment is None:
            return self.loss
        return self.loss + self.alignment_weight * self.alignment

    @property
    def values(self) -> Tensor:
        """The loss, the nll and the loss of a guided head if there is one, without a gradient."""
        found = (self.loss, self.nll, self.alignment)
        return torch.stack([each.detach() for each in found if each is not None])


def label_smoothed_cross_entropy(  # noqa: PLR0913
    rows: Tensor,
    output_weight: Tensor,
    targets: Tensor,
    smoothing: float,
    output_bias: Tensor | None = None,
    rounded_weight: Tensor | None = None,
    num_targets: Tensor | None = None,
    *,
    is_by_kernel: bool = False,
) -> LossSums:
    """Return the summed loss of the first T ``rows`` [.., D] against ``targets`` [T].

    The logits ``rows @ output_weight.T + output_bias`` exist only chunk by chunk, and the gradient
    is computed with them, so that no T x V tensor is kept for the backward pass. The products run
    in the type of ``rows``; the softmax and all sums are in fp32 or better. With smoothing e, the
    target distribution is (1 - e) one-hot + e/V, as in ``F.cross_entropy(label_smoothing=e)``.
    ``rounded_weight`` is ``output_weight`` in the type of ``rows``, if the caller has it.
    ``num_targets`` is how many of the targets are real, a number on the device: those behind them
    are padding and count nothing, and no gradient comes from their rows. If it ``is_by_kernel``,
    our kernel in Triton reads and writes the logits twice, torch five times.
    """
    if not torch.is_grad_enabled():
        rows, output_weight = rows.detach(), output_weight.detach()
    if rounded_weight is None:
        rounded_weight = output_weight.detach().to(rows.dtype)
    is_padding = None
    if num_targets is not None:
        is_padding = torch.arange(len(targets), device=rows.device) >= num_targets
        # Their logits are the bias then, and they add nothing to the gradient of the weight.
        rows = rows.masked_fill(is_padding[:, None], 0.0)
    return LossSums(
        *_FusedCrossEntropy.apply(  # type: ignore[no-untyped-call]
            *(rows, output_weight, rounded_weight, output_bias, targets, smoothing),
            *(is_by_kernel, is_padding),
        )
    )


class _FusedCrossEntropy(torch.autograd.Function):
    """With z = W h + b: loss = logsumexp(z) - (1 - e) z_y - e mean(z).

    Here mean(z) = h . mean(W) + mean(b). The gradient in z is softmax(z) - (1 - e) one-hot - e/V.
    Only the softmax needs V numbers a row; the last term is added to the gradients of h, W and b
    directly.
    """

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]  # noqa: PLR0913
        ctx,  # noqa: ANN001
        rows: Tensor,
        output_weight: Tensor,
        weight: Tensor,
        output_bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        is_by_kernel: bool,
        is_padding: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        wants_gradient = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        ctx.set_materialize_grads(False)  # of the nll, which has none
        sum_dtype = torch.promote_types(rows.dtype, torch.float32)
        nll = torch.zeros((), dtype=sum_dtype, device=rows.device)
        target_logits = torch.zeros_like(nll)
        if wants_gradient:
            rows_gradient, weight_gradient = torch.empty_like(rows), torch.zeros_like(output_weight)
            bias_gradient = None if output_bias is None else torch.zeros_like(output_bias)
        size = _chunk_rows(rows, len(weight), is_by_kernel=is_by_kernel)
        for start in range(0, len(rows), size):
            chunk_rows = rows[start : start + size]  # C D
            chunk_targets = targets[start : start + size]
            logits = chunk_rows @ weight.T  # C V
            if output_bias is not None:
                logits += output_bias
            of_chunk = losses_by_kernel if is_by_kernel else losses_by_torch
            gradient, chunk_nll, chosen = of_chunk(logits, chunk_targets, smoothing)
            if is_padding is not None:
                of_padding = is_padding[start : start + size]
                gradient, chunk_nll, chosen = _without_padding(
                    of_padding, gradient, chunk_nll, chosen, has_bias=output_bias is not None
                )
            target_logits += chosen.sum(dtype=sum_dtype)
            nll += chunk_nll.sum(dtype=sum_dtype)
            if not wants_gradient:
                continue
            torch.mm(gradient, weight, out=rows_gradient[start : start + size])
            _add_product(weight_gradient, gradient.T, chunk_rows)
            if bias_gradient is not None:
                bias_gradient += gradient.sum(0, dtype=sum_dtype)
        row_sum = rows[: len(targets)].sum(0, dtype=sum_dtype)
        mean_weight = output_weight.mean(0, dtype=sum_dtype)  # D
        sum_of_means = row_sum @ mean_weight
        if output_bias is not None:
            count = len(targets) if is_padding is None else (~is_padding).sum(dtype=sum_dtype)
            sum_of_means += count * output_bias.mean(dtype=sum_dtype)
        if wants_gradient:
            rows_gradient[: len(targets)].sub_(mean_weight, alpha=smoothing)
            weight_gradient.sub_(row_sum, alpha=smoothing / len(weight))
            if bias_gradient is not None:
                bias_gradient -= smoothing * count / len(weight)
            ctx.save_for_backward(rows_gradient, weight_gradient, bias_gradient)
        ctx.mark_non_differentiable(nll)
        return nll + smoothing * (target_logits - sum_of_means), nll

    @staticmethod
    def backward(  # type: ignore[no-untyped-def]
        ctx,  # noqa: ANN001
        loss_gradient: Tensor,
        _: Tensor,
    ) -> tuple[Tensor | None, ...]:
        gradients = ctx.saved_tensors
        rows, weight, bias = (None if g is None else g * loss_gradient for g in gradients)
        return rows, weight, None, bias, None, None, None, None


def _chunk_rows(rows: Tensor, vocabulary_size: int, *, is_by_kernel: bool) -> int:
    """Return how many ``rows`` have logits at a time."""
    usual = CHUNK_ROWS[rows.device.type]
    if not is_by_kernel:
        return usual
    fitting = KERNEL_CHUNK_BYTES // (vocabulary_size * rows.element_size())
    return max(usual, min(KERNEL_CHUNK_ROWS, fitting))


def losses_by_torch(
    logits: Tensor, targets: Tensor, smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return softmax - (1 - e) one-hot [C, V], and the nll and the logit of each target.

    There are fewer targets than rows if the chunk has spare rows, which become 0.
    """
    num_targets = len(targets)
    place = torch.arange(num_targets, device=logits.device), targets
    softmax = logits.softmax(1)  # one kernel, which sums in fp32
    chosen = logits[place]
    nll = _nll(logits, softmax, place, chosen)
    if num_targets < len(softmax):
        softmax[num_targets:] = 0.0
    softmax[:num_targets][place] -= 1.0 - smoothing
    return softmax, nll, chosen


def losses_by_kernel(
    logits: Tensor, targets: Tensor, smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what ``losses_by_torch`` returns; the first takes the place of the logits.

    Each row has a target: there are no spare rows on a GPU.
    """
    from nmt_cli.model.triton_kernels.cross_entropy import losses_in_place

    return logits, *losses_in_place(logits, targets, smoothing)


def _without_padding(
    is_padding: Tensor, gradient: Tensor, nll: Tensor, chosen: Tensor, *, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return these of a chunk's rows, with 0 for padding.

    Only the bias needs that in the gradient: elsewhere it is multiplied by rows that are 0.
    """
    if has_bias:
        gradient.masked_fill_(is_padding[:, None], 0.0)
    return gradient, nll.masked_fill(is_padding, 0.0), chosen.masked_fill(is_padding, 0.0)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add a product to ``total``, which may be wider."""
    if left.dtype == total.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right


def _nll(
    logits: Tensor, softmax: Tensor, targets: tuple[Tensor, Tensor], target_logits: Tensor
) -> Tensor:
    """Return the negative log-likelihood of each target (its row and column), in fp32 or better.

    On a CPU it is -log(softmax) of the target, which needs no pass over C x V numbers. If a softmax
    underflows, it is max(z) - log(max(softmax)) - z_y. On a GPU it is always the second, because
    looking for an underflow would synchronize the device.
    """
    wide = torch.promote_types(logits.dtype, torch.float32)
    if logits.device.type == "cpu":
        probability = softmax[targets].to(wide)
        if (probability >= torch.finfo(wide).tiny).all():
            return -probability.log()
    num_targets = len(target_logits)
    largest, column = logits[:num_targets].max(1, keepdim=True)
    most_likely = softmax[:num_targets].gather(1, column)
    # Kernels convert what they read to the wider type.
    return (largest - most_likely.to(wide).log()).squeeze(1) - target_logits
