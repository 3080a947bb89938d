{#
  Where the matrices of a stack begin, and how results are finished and stored: shared by the matrix
  product kernels. The kernel defines `number`, `quad` (four of them) and F, their arithmetic.

  operands  (name, mode, type) of what the epilogue uses beside x; mode is how it is read:
            "single" one value; "matrix" by row and column; "stack" also along the stack; "as y" where y
            has its element
  sides     likewise (or nothing): what the kernel itself reads in this way
  epilogue  expressions of x and the operands, each of which replaces x
  y_place   where element (row, column) of a matrix of y lies
#}
{% set everything = operands + (sides | default(())) %}
{% set stacked = ["a", "w", "y"] + (everything | selectattr(1, "in", ("stack", "as y")) | map(attribute=0) | list) %}
struct Offsets {
#% for name in stacked
    {{ name }}: u32,
#% endfor
}

fn batch_at(batch: u32) -> Offsets {
    var rest = batch;
    var at = Offsets({% for name in stacked %}u_{{ name }}_at(0u){{ ", " if not loop.last }}{% endfor %});
    for (var d = u.batch_rank; d > 0u; d--) {
        let size = u_batch_shape(d - 1u);
        let i = rest % size;
#% for name in stacked
        at.{{ name }} += i * u_{{ name }}_batch(d - 1u);
#% endfor
        rest /= size;
    }
    return at;
}

fn place_y(row: u32, column: u32) -> u32 { return {{ y_place | default("row * u_y_at(1u) + column") }}; }
#% for name, mode, type in everything

fn get_{{ name }}(at: Offsets, row: u32, column: u32) -> {{ name }}_t {
#% if mode == "single"
    return load_{{ name }}(0u);
#% elif mode == "as y"
    return load_{{ name }}(at.{{ name }} + place_y(row, column));
#% else
    return load_{{ name }}({{ "at." ~ name if mode == "stack" else "u_%s_at(0u)" % name }} + row * u_{{ name }}_at(1u) + column * u_{{ name }}_at(2u));
#% endif
}
#% endfor

fn finish(at: Offsets, product: number, row: u32, column: u32) -> y_t {
#% for name, mode, type in operands
    let {{ name }} = {{ F.cast("get_%s(at, row, column)" % name, type) }};
#% endfor
    var x = product;
#% for part in epilogue if part != "x"
    x = {{ F(part) }};
#% endfor
    return {{ arith(y).cast("x", F) }};
}

// Stores four results of a row, as far as they exist.
fn put(at: Offsets, row: u32, column: u32, sums: quad) {
    if (row >= u.m || column >= u.n) { return; }
    let n = min(4u, u.n - column);
    var sum = sums;
    var result: y_quad;
    for (var k = 0u; k < n; k++) { result[k] = finish(at, sum[k], row, column + k); }
    store4_y(at.y + place_y(row, column), result, n);
}
