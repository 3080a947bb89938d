{# Where the matrices of a stack begin, and how results are stored: shared by the matmul kernels. #}
struct Offsets { a: u32, w: u32, y: u32 }

fn batch_at(batch: u32) -> Offsets {
    var rest = batch;
    var at = Offsets(u_a_at(0u), u_w_at(0u), u_y_at(0u));
    for (var d = u.batch_rank; d > 0u; d--) {
        let size = u_batch_shape(d - 1u);
        let i = rest % size;
        at.a += i * u_a_batch(d - 1u);
        at.w += i * u_w_batch(d - 1u);
        at.y += i * u_y_batch(d - 1u);
        rest /= size;
    }
    return at;
}

fn finish(x: number, row: u32, column: u32) -> y_t {
#% if bias
    let c = {{ F.cast("load_bias(u_bias_at(0u) + row * u_bias_at(1u) + column * u_bias_at(2u))", bias) }};
#% endif
    return {{ arith(y).cast(F(epilogue), F) }};
}

// Stores four results of a row, as far as they exist.
fn put(base: u32, row: u32, column: u32, sums: quad) {
    if (row >= u.m || column >= u.n) { return; }
    let n = min(4u, u.n - column);
    var sum = sums;
    var result: y_quad;
    for (var k = 0u; k < n; k++) { result[k] = finish(sum[k], row, column + k); }
    store4_y(base + row * u_y_at(1u) + column, result, n);
}
