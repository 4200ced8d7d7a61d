"""Filter -> a mask over a batch of columns."""

from headgate.filters.compile.arrow.mask import Mask, compile_mask
from headgate.filters.compile.arrow.operands import UFUNC

__all__ = ["UFUNC", "Mask", "compile_mask"]
