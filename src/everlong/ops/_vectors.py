"""LLVM vectors in the hands of Numba kernels: values stay in registers where a loop over arrays would not keep them.

An intrinsic gets its arrays as (flat array, index of the first, step to the next): a *place*, whose row i is what
stands at first + i * step. Numba's cache on disk does not see changes of this file: touch the kernels' files after one.
"""

import math
from typing import Any, no_type_check

import llvmlite.binding
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

# A tile is TILE vectors of TILE floats: half of AVX-512's registers, which leaves room for what meets it.
TILE = 16 if llvmlite.binding.get_host_cpu_features().get("avx512f", False) else 8
LOG2E = 1.0 / math.log(2.0)
EXP2 = tuple(math.log(2.0) ** n / math.factorial(n) for n in range(8))  # 2^x for |x| <= 1/2 to 5e-9
vector_code: Any = intrinsic  # what an intrinsic is called with is not what its function takes
VECTOR = ir.VectorType(ir.FloatType(), TILE)


@no_type_check
class Vectors:
    """Writes vector code into an intrinsic."""

    def __init__(self, context: Any, builder: Any):
        self.context, self.builder = context, builder
        self.zeros = self.constant(0.0)

    def constant(self, value: float) -> Any:
        """The same number in all lanes."""
        return ir.Constant(VECTOR, [value] * TILE)

    def integer(self, value: int) -> Any:
        """An index."""
        return ir.Constant(self.context.get_value_type(types.intp), value)

    def pointer(self, kind: Any, value: Any) -> Any:
        """Where an array's data stands."""
        return self.context.make_array(kind)(self.context, self.builder, value).data

    def place(self, kind: Any, value: Any) -> Any:
        """A place, from its tuple."""
        array, start, step = cgutils.unpack_tuple(self.builder, value)
        return self.builder.gep(self.pointer(kind[0], array), [start]), step

    def moved(self, place: Any, lanes: Any) -> Any:
        """The place so many elements to the right."""
        return self.builder.gep(place[0], [lanes]), place[1]

    def address(self, place: Any, i: Any, j: int = 0) -> Any:
        """Of element j of row i."""
        offset = self.builder.add(self.builder.mul(i, place[1]), self.integer(j))
        return self.builder.gep(place[0], [offset])

    def load(self, place: Any, i: Any) -> Any:
        """Row i."""
        return self.builder.load(self.builder.bitcast(self.address(place, i), VECTOR.as_pointer()), align=4)

    def store(self, value: Any, place: Any, i: Any) -> None:
        """Row i becomes ``value``."""
        self.builder.store(value, self.builder.bitcast(self.address(place, i), VECTOR.as_pointer()), align=4)

    def spread(self, place: Any, i: Any, j: int = 0) -> Any:
        """Element j of row i in all lanes."""
        undefined = ir.Constant(VECTOR, ir.Undefined)
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), TILE), [0] * TILE)
        one = self.builder.load(self.address(place, i, j))
        return self.builder.shuffle_vector(
            self.builder.insert_element(undefined, one, ir.Constant(ir.IntType(32), 0)), undefined, lanes
        )

    def registers(self, place: Any) -> list[Any]:
        """A tile's rows 0 to TILE - 1, kept where ``self.builder.load`` and ``store`` reach them."""
        tile = [cgutils.alloca_once(self.builder, VECTOR) for _ in range(TILE)]
        for r, row in enumerate(tile):
            self.builder.store(self.load(place, self.integer(r)), row)
        return tile

    def put_back(self, tile: list[Any], place: Any) -> None:
        """The counterpart of ``registers``."""
        for r, row in enumerate(tile):
            self.store(self.builder.load(row), place, self.integer(r))

    def multiply(self, a: Any, b: Any) -> Any:
        """The product a b."""
        return self.builder.fmul(a, b, flags=["contract"])

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """The sum a b + c, fused where the machine can."""
        return self.builder.fadd(self.multiply(a, b), c, flags=["contract"])

    def add_up(self, parts: list[Any]) -> Any:
        """The sum of four."""
        a, b, c, d = parts
        return self.builder.fadd(self.builder.fadd(a, b), self.builder.fadd(c, d))

    def unless(self, condition: Any, value: Any) -> Any:
        """Zeros where ``condition``, one bit for all lanes, is true, else ``value``."""
        return self.builder.select(condition, self.zeros, value)

    def exp2(self, x: Any) -> Any:
        """2^x for x <= 0, to 1.3e-7 of itself; what is below 2^-125 is 2^-125, and not-a-number stays."""
        builder, least = self.builder, self.constant(-125.0)
        x = builder.select(builder.fcmp_ordered("<", x, least), least, x)
        rint = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(VECTOR, [VECTOR]), f"llvm.rint.v{TILE}f32"
        )
        whole = builder.call(rint, [x])
        part = builder.fsub(x, whole)
        power = self.constant(EXP2[6])
        for factor in reversed(EXP2[:6]):
            power = self.multiply_add(power, part, self.constant(factor))
        integers = ir.VectorType(ir.IntType(32), TILE)
        shift = builder.shl(builder.fptosi(whole, integers), ir.Constant(integers, [23] * TILE))
        return builder.bitcast(builder.add(builder.bitcast(power, integers), shift), VECTOR)
