"""Vectors of floats as single values, for kernels compiled by numba.

numba supports only arrays and numbers, and compiles a loop over columns to sums in memory. A value
of ``Lanes`` is an LLVM vector of floats: a sum in it stays in registers. As plain loops over
columns, sums of neighbours took 2.25 times as long (torch's product 1.2 to 1.3 times) and
corrections of a growing graph 1.65 times: measure with ``benchmarks/speed/kernels.py`` and
``benchmarks/speed/updates.py`` before you do without them.

Imported on use, which takes a second. After a change here, touch the files that import it: numba's
cache of compiled code depends on the age of these.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model

_INT = ir.IntType(32)
_BYTES = ir.IntType(8).as_pointer()
_LINE = 64  # bytes of a cache line
_HELD = {types.int16: ir.HalfType(), types.uint16: ir.IntType(16)}


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


def _address(context: Any, builder: Any, array: Any, value: Any, place: Any, kind: Any) -> Any:
    data = context.make_array(array)(context, builder, value).data
    return builder.bitcast(builder.gep(data, [place]), kind)


def _called(builder: Any, name: str, result: Any, given: Any, *fastmath: str) -> Any:
    """Call one of LLVM's functions on values, which have the types of its parameters."""
    kind = ir.FunctionType(result, [value.type for value in given])
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(function, given, fastmath=fastmath)


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
def load(typing: Any, array: Any, place: Any, count: Any) -> Any:
    """Return ``count`` floats of a flat array, from a position on.

    numba has no half floats: an array of int16 holds the bits of float16, one of uint16 those of
    bfloat16, and both are widened as they are read.
    """
    lanes = Lanes(count.literal_value)
    held = _HELD.get(array.dtype, ir.FloatType())

    def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        kind = ir.VectorType(held, lanes.count).as_pointer()
        start = _address(context, builder, array, given[0], given[1], kind)
        found = builder.load(start, align=array.dtype.bitwidth // 8)
        if held == ir.HalfType():
            return builder.fpext(found, lanes.vector)
        return found if held == ir.FloatType() else _from_upper_half(builder, found, lanes)

    return lanes(array, place, count), code


def _from_upper_half(builder: Any, found: Any, lanes: Lanes) -> Any:
    """Return floats with the given upper 16 bits; the others are 0."""
    wide = ir.VectorType(_INT, lanes.count)
    bits = builder.shl(builder.zext(found, wide), ir.Constant(wide, [16] * lanes.count))
    return builder.bitcast(bits, lanes.vector)


@intrinsic  # type: ignore[untyped-decorator]
def store(typing: Any, array: Any, place: Any, lanes: Any) -> Any:
    """Write floats into a flat array, from a position on."""

    def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        kind = lanes.vector.as_pointer()
        builder.store(
            given[2], _address(context, builder, array, given[0], given[1], kind), align=4
        )
        return context.get_dummy_value()

    return types.void(array, place, lanes), code


@intrinsic  # type: ignore[untyped-decorator]
def times(typing: Any, number: Any, lanes: Any) -> Any:
    """Return number · lanes."""

    def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.fmul(_splat(builder, given[0], lanes), given[1])

    return lanes(number, lanes), code


@intrinsic  # type: ignore[untyped-decorator]
def times_plus(typing: Any, number: Any, lanes: Any, more: Any) -> Any:
    """Return number · lanes + more, as a fused multiply-add if available, for any count."""

    def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        factors = [_splat(builder, given[0], lanes), *given[1:]]
        return _called(builder, f"llvm.fmuladd.v{lanes.count}f32", lanes.vector, factors)

    return lanes(number, lanes, more), code


@intrinsic  # type: ignore[untyped-decorator]
def plus(typing: Any, lanes: Any, more: Any) -> Any:
    """Return lanes + more."""
    return lanes(lanes, more), lambda _, builder, __, given: builder.fadd(*given)


@intrinsic  # type: ignore[untyped-decorator]
def minus(typing: Any, lanes: Any, less: Any) -> Any:
    """Return lanes - less."""
    return lanes(lanes, less), lambda _, builder, __, given: builder.fsub(*given)


@intrinsic  # type: ignore[untyped-decorator]
def peak(typing: Any, lanes: Any) -> Any:
    """Return the largest absolute value."""

    def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        kind = f"v{lanes.count}f32"
        sizes = _called(builder, f"llvm.fabs.{kind}", lanes.vector, given)
        return _called(builder, f"llvm.vector.reduce.fmax.{kind}", ir.FloatType(), [sizes])

    return types.float32(lanes), code


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def prefetch(typing: Any, array: Any, place: Any, count: Any) -> Any:
    """Prefetch ``count`` values of a flat array that will be loaded soon."""
    size = array.dtype.bitwidth // 8 * count.literal_value

    def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        start = _address(context, builder, array, given[0], given[1], _BYTES)
        for line in range(0, size, _LINE):
            # to read (0), to be kept in every cache (3), as data (1)
            how = [builder.gep(start, [_INT(line)]), _INT(0), _INT(3), _INT(1)]
            _called(builder, "llvm.prefetch.p0i8", ir.VoidType(), how)
        return context.get_dummy_value()

    return types.void(array, place, count), code


@intrinsic  # type: ignore[untyped-decorator]
def larger(typing: Any, lanes: Any, more: Any) -> Any:
    """Return the larger of every number and the size of another; none may be NaN."""

    def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        kind = f"v{lanes.count}f32"
        sizes = _called(builder, f"llvm.fabs.{kind}", lanes.vector, given[1:])
        return _called(builder, f"llvm.maxnum.{kind}", lanes.vector, [given[0], sizes], "nnan")

    return lanes(lanes, more), code
