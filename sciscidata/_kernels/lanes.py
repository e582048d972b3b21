"""Many sums side by side, which numba does not turn into vectors by itself. Import late: numba loads slowly."""

# pyright: basic, reportCallIssue=false
from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

WIDTH = 128  # of the arrays: lanes side by side
BYTES = 128  # of the lanes that run together


@intrinsic
def walk(typing, rows, one, other, at, limits, found):
    """Add products of two rows, place after place, in some lanes; count the places until sums pass their limits.

    ``one`` and ``other`` (places, at least 1) name rows of ``rows`` (rows, WIDTH). ``found`` (4, WIDTH) gets the number
    of places up to which the sum of a lane is at most each of its ``limits`` (4, WIDTH). The last limit is the largest.
    Lanes begin at ``at``; there are as many as fit into ``BYTES``. Numbers may not overflow.
    """
    word = ir.IntType(rows.dtype.bitwidth)
    lanes = 8 * BYTES // rows.dtype.bitwidth
    vector = ir.VectorType(word, lanes)
    long = ir.IntType(64)

    def build(context, builder, signature, arguments):
        def data(k):
            return context.make_array(signature.args[k])(context, builder, arguments[k])

        def row(array, number):
            place = builder.add(builder.mul(number, long(WIDTH)), arguments[3])
            return builder.bitcast(builder.gep(array.data, [place]), vector.as_pointer())

        def load(array, number):
            return builder.load(row(array, number), align=rows.dtype.bitwidth // 8)

        table, names, out = data(0), (data(1), data(2)), data(5)
        n = names[0].nitems
        limit = [load(data(4), long(k)) for k in range(4)]
        zero = ir.Constant(vector, [0] * lanes)
        before, head, done = builder.block, builder.append_basic_block("walk"), builder.append_basic_block("done")
        builder.branch(head)
        builder.position_at_end(head)
        place = builder.phi(long)
        state = [builder.phi(vector) for _ in range(5)]
        for phi in (place, *state):
            phi.add_incoming(zero if phi is not place else long(0), before)
        a, b = (builder.sext(builder.load(builder.gep(each.data, [place])), long) for each in names)
        total = builder.add(state[0], builder.mul(load(table, a), load(table, b)))
        within = [builder.icmp_signed("<=", total, each) for each in limit]
        counts = [
            builder.sub(count, builder.sext(is_in, vector)) for count, is_in in zip(state[1:], within, strict=True)
        ]
        after = builder.add(place, long(1))
        place.add_incoming(after, head)
        for phi, value in zip(state, [total, *counts], strict=True):
            phi.add_incoming(value, head)
        is_open = builder.icmp_unsigned("!=", builder.bitcast(within[3], ir.IntType(lanes)), ir.IntType(lanes)(0))
        builder.cbranch(builder.and_(builder.icmp_signed("<", after, n), is_open), head, done)
        builder.position_at_end(done)
        for k, count in enumerate(counts):
            builder.store(count, row(out, long(k)), align=rows.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(rows, one, other, at, limits, found), build
