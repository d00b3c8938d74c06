"""Kernels of numba: a sum that weighs and scales in one pass, and the vectors of floats it uses.

numba supports only arrays and numbers, and compiles a loop over columns to sums in memory. A value
of ``Lanes`` is an LLVM vector of floats: a sum in it stays in registers. Loops that add four or
eight neighbours at a time take 1.24 to 1.49 times as long (decision 105): measure with
``benchmarks/speed/kernels.py`` before you do without it.

Imported on use, which takes a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic, models, overload, register_model
from numpy.typing import NDArray

from evergraph.graphs.kernels.row_ranges import compiled

_INT = ir.IntType(32)
_STORED = {types.int16: ir.HalfType(), types.uint16: ir.IntType(16)}


class Lanes(types.Type):
    """The numba type of a vector of ``count`` floats."""

    def __init__(self, count: int) -> None:
        super().__init__(name=f"Lanes({count})")
        self.count = count

    @property
    def vector(self) -> ir.VectorType:
        """The LLVM type."""
        return ir.VectorType(ir.FloatType(), self.count)


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, lanes: Lanes) -> None:
        super().__init__(manager, lanes, lanes.vector)


def _address(
    context: Any, builder: Any, array: Any, value: Any, position: Any, pointer_type: Any
) -> Any:
    data = context.make_array(array)(context, builder, value).data
    return builder.bitcast(builder.gep(data, [position]), pointer_type)


def _splat(builder: Any, number: Any, lanes: Lanes) -> Any:
    nothing = ir.Constant(lanes.vector, ir.Undefined)
    first = builder.insert_element(nothing, number, _INT(0))
    return builder.shuffle_vector(
        first, nothing, ir.Constant(ir.VectorType(_INT, lanes.count), [0] * lanes.count)
    )


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def zeros(typing: Any, count: Any) -> Any:
    """Return ``count`` zeros; ``count`` is a constant, here and below."""
    lanes = Lanes(count.literal_value)
    return lanes(count), lambda *_: ir.Constant(lanes.vector, None)


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def load(typing: Any, array: Any, position: Any, count: Any) -> Any:
    """Return ``count`` floats of a flat array, from a position on.

    numba has no half floats: an array of int16 holds the bits of float16, one of uint16 those of
    bfloat16, and both are widened as they are read.
    """
    lanes = Lanes(count.literal_value)
    stored = _STORED.get(array.dtype, ir.FloatType())

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer_type = ir.VectorType(stored, lanes.count).as_pointer()
        start = _address(context, builder, array, arguments[0], arguments[1], pointer_type)
        values = builder.load(start, align=array.dtype.bitwidth // 8)
        if stored == ir.HalfType():
            return builder.fpext(values, lanes.vector)
        return values if stored == ir.FloatType() else _from_upper_half(builder, values, lanes)

    return lanes(array, position, count), code


def _from_upper_half(builder: Any, halves: Any, lanes: Lanes) -> Any:
    """Return floats with the given upper 16 bits; the others are 0."""
    integers = ir.VectorType(_INT, lanes.count)
    bits = builder.shl(builder.zext(halves, integers), ir.Constant(integers, [16] * lanes.count))
    return builder.bitcast(bits, lanes.vector)


@intrinsic  # type: ignore[untyped-decorator]
def store(typing: Any, array: Any, position: Any, lanes: Any) -> Any:
    """Write floats into a flat array, from a position on."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer_type = lanes.vector.as_pointer()
        start = _address(context, builder, array, arguments[0], arguments[1], pointer_type)
        builder.store(arguments[2], start, align=4)
        return context.get_dummy_value()

    return types.void(array, position, lanes), code


@intrinsic  # type: ignore[untyped-decorator]
def times(typing: Any, number: Any, lanes: Any) -> Any:
    """Return number · lanes."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fmul(_splat(builder, arguments[0], lanes), arguments[1])

    return lanes(number, lanes), code


@intrinsic  # type: ignore[untyped-decorator]
def times_plus(typing: Any, number: Any, lanes: Any, added: Any) -> Any:
    """Return number · lanes + more, as a fused multiply-add if available, for any count."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        signature_type = ir.FunctionType(lanes.vector, [lanes.vector] * 3)
        name = f"llvm.fmuladd.v{lanes.count}f32"
        function = cgutils.get_or_insert_function(builder.module, signature_type, name)
        return builder.call(function, [_splat(builder, arguments[0], lanes), *arguments[1:]])

    return lanes(number, lanes, added), code


Code = Callable[..., Any]
# For what compiled code alone calls: wrappers for Python would be compiled in vain.
inner: Callable[[Code], Code] = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)
_FEATURES = llvmlite.binding.get_host_cpu_features()

# Rows whose tiles are all summed before the next rows begin, so that shared data stays in cache.
ROWS_PER_BLOCK = 16
# The sum of this many columns fits into half of the machine's vector registers.
WIDEST = 128 if _FEATURES.get("avx512f") else 64


class ListedRows(NamedTuple):
    """Some rows of L (A + sI) R, see ``Smoother``; their entries may lie anywhere in a pool.

    One form for rows of a graph and of a growing one: they share a compiled kernel.
    """

    # starts, stops: where each row's entries begin and end in ``indices``
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    indices: NDArray[np.int32]
    left: NDArray[np.float32]
    right: NDArray[np.float32]
    own: NDArray[np.int64]  # each row's own column; empty without self-loops
    # weights of the entries; () if all are 1, for which a kernel of its own is compiled
    weights: NDArray[np.float32] | tuple[()] = ()


class Flat(NamedTuple):
    """A matrix as a flat array in which a row begins every ``stride`` values.

    Half floats are given by their bits: see ``load``.
    """

    values: NDArray[np.float32] | NDArray[np.int16] | NDArray[np.uint16]
    stride: int


def weigh(rows, j, entry):  # type: ignore[no-untyped-def]
    """Return the weight of the features of ``j`` in a sum; compiled code only."""
    raise NotImplementedError


@overload(weigh)
def _weigh(rows, j, entry):  # type: ignore[no-untyped-def]
    # Chosen at compile time, so that rows without weights have no overhead.
    if isinstance(rows.types[rows.fields.index("weights")], types.Array):
        return lambda rows, j, entry: rows.right[np.uintp(j)] * rows.weights[np.uintp(entry)]
    return lambda rows, j, entry: rows.right[np.uintp(j)]


def _tile(half: int) -> Code:
    """Return code that sums the columns from ``low`` and from ``high`` on, ``half`` of each.

    The two may overlap, so that one pass over the entries serves any number of columns from
    ``half`` to twice as many: a sum computed twice is the same. Entries are added in their order,
    every column by itself: the bits of the sums do not depend on the tile, the block of columns or
    the range of rows.
    """

    def tile(rows, x, out, add, scale, add_scale, low, high, start, stop):  # type: ignore[no-untyped-def]
        for row in range(start, stop):
            i = np.uintp(row)  # unsigned, or numba checks every index for negative values
            a, b = zeros(half), zeros(half)
            if len(rows.own):
                own = np.intp(rows.own[i])
                weight = rows.right[np.uintp(own)]
                offset = own * x.stride
                a = times_plus(weight, load(x.values, offset + low, half), a)
                b = times_plus(weight, load(x.values, offset + high, half), b)
            for entry in range(np.intp(rows.starts[i]), np.intp(rows.stops[i])):
                j = np.intp(rows.indices[np.uintp(entry)])
                weight = weigh(rows, j, entry)  # type: ignore[no-untyped-call]
                offset = j * x.stride
                a = times_plus(weight, load(x.values, offset + low, half), a)
                b = times_plus(weight, load(x.values, offset + high, half), b)
            a, b = times(rows.left[i] * scale, a), times(rows.left[i] * scale, b)
            if add_scale != 0:
                offset = row * add.stride
                a = times_plus(add_scale, load(add.values, offset + low, half), a)
                b = times_plus(add_scale, load(add.values, offset + high, half), b)
            store(out.values, row * out.stride + low, a)
            store(out.values, row * out.stride + high, b)

    return inner(tile)


_64, _32, _16, _8, _4, _2, _1 = (_tile(half) for half in (64, 32, 16, 8, 4, 2, 1))


@njit(inline="always")
def _columns(rows, x, out, add, scale, add_scale, first, count, start, stop):  # type: ignore[no-untyped-def]
    end = first + count
    if count > 64:
        _64(rows, x, out, add, scale, add_scale, first, end - 64, start, stop)
    elif count > 32:
        _32(rows, x, out, add, scale, add_scale, first, end - 32, start, stop)
    elif count > 16:
        _16(rows, x, out, add, scale, add_scale, first, end - 16, start, stop)
    elif count > 8:
        _8(rows, x, out, add, scale, add_scale, first, end - 8, start, stop)
    elif count > 4:
        _4(rows, x, out, add, scale, add_scale, first, end - 4, start, stop)
    elif count > 2:
        _2(rows, x, out, add, scale, add_scale, first, end - 2, start, stop)
    else:
        _1(rows, x, out, add, scale, add_scale, first, end - 1, start, stop)


@compiled
def weighted_sums(rows, x, out, add, scale, add_scale, width, start, stop):  # type: ignore[no-untyped-def]
    """Write scale · L (A + sI) R x + add_scale · add into ``out``, for a range of rows.

    rows: ``ListedRows``; x, out, add: ``Flat``, of which ``width`` columns are used.
    """
    tiles = -(-width // WIDEST)
    step = min(-(-width // (16 * tiles)) * 16, WIDEST)  # whole cache lines of similar width
    for upper in range(start, stop, ROWS_PER_BLOCK):
        lower = min(upper + ROWS_PER_BLOCK, stop)
        for first in range(0, width, step):
            count = min(step, width - first)
            _columns(rows, x, out, add, scale, add_scale, first, count, upper, lower)
