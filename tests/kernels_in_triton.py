"""Lets our kernels run on a GPU if there is one, else in Triton's interpreter, which is in numpy.

Importing this skips a test module where triton is not installed. tests/conftest.py lets Triton
interpret.
"""

import pytest
import torch

ON_GPU = torch.cuda.is_available()  # only with -m gpu
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
# The warnings are numpy's, of -inf and of products that overflow.
MARKS = [pytest.mark.filterwarnings("ignore::RuntimeWarning"), *([pytest.mark.gpu] * ON_GPU)]

pytest.importorskip("triton", reason="the package triton is not installed")


def _compute_in_bf16() -> None:
    """Let the interpreter round to bf16 as a GPU does, and multiply it.

    That of Triton 3.7 cuts off bits in conversions, and multiplies the bits of bf16 as integers.
    """
    from triton.runtime import interpreter

    tl, np = interpreter.tl, interpreter.np
    convert = interpreter._convert_float

    def converted(numbers, of_type, to_type, rounding):
        tensor = torch.from_numpy(np.ascontiguousarray(numbers))
        if (of_type, to_type) == (tl.float32, tl.bfloat16):
            return tensor.bfloat16().view(torch.uint16).numpy()
        if (of_type, to_type) == (tl.bfloat16, tl.float32):
            return tensor.view(torch.bfloat16).float().numpy()
        return convert(numbers, of_type, to_type, rounding)

    def dot(_, a, b, added, *precision):
        a, b = (
            converted(each.data, each.dtype.scalar, tl.float32, None)
            if each.dtype.scalar == tl.bfloat16
            else each.data
            for each in (a, b)
        )
        return interpreter.TensorHandle(np.matmul(a, b) + added.data, added.dtype.scalar)

    interpreter._convert_float = converted
    interpreter.InterpreterBuilder.create_dot = dot


def _take_numbers_as_bounds() -> None:
    """Let the interpreter take a tensor of one number as a bound of a loop.

    That of Triton 3.6 cannot with NumPy 2.4.
    """
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patched(tensor, scope):
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched


if not ON_GPU:
    _compute_in_bf16()
    _take_numbers_as_bounds()
