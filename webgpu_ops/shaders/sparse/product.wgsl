{#
  y = epilogue(a @ w), a sparse by rows: the values of row r are those from load_offsets(r) up to
  load_offsets(r + 1), load_positions(i) is the column of value i. An invocation makes 4 columns of a row.

  epilogue   an expression of x, the product
  lanes      how many invocations share a row's values: 1, or a workgroup
#}
{% set F = arith(y) %}
{% set vector = F.scalar in ("f32", "i32", "u32") %}
alias quad = {{ "vec4<%s>" % F.scalar if vector else "array<%s, 4>" % F.scalar }};

#% if lanes > 1
var<workgroup> parts: array<quad, WG>;

#% endif
{% call kernel() %}
    let across = (u.n + 3u) / 4u;
    let place = {{ "group" if lanes > 1 else "thread" }};
    let line = place / across;
    let batch = line / u.m;
    if (batch >= u.batches) { return; }
    let row = line % u.m;
    let column = place % across * 4u;
    var sum = quad({{ ([F("0")] * 4) | join(", ") }});
    let end = load_offsets(row + 1u);
    for (var i = load_offsets(row){{ " + lane" if lanes > 1 }}; i < end; i += {{ lanes }}u) {
        let value = load_values(i);
        let at = batch * u.stack + load_positions(i) * u_steps(0u) + column * u_steps(1u);
#% if consecutive
        let four = load4_w(at);
#% else
        let four = w_quad({% for c in range(4) %}load_w(at + min({{ c }}u, u.n - 1u - column) * u_steps(1u)){{ ", " if not loop.last }}{% endfor %});
#% endif
        sum = quad({% for c in range(4) %}{{ F("sum[%d] + value * four[%d]" % (c, c)) }}{{ ", " if not loop.last }}{% endfor %});
    }
#% if lanes > 1
    parts[lane] = sum;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            let other = parts[lane + half];
            sum = quad({% for c in range(4) %}{{ F("sum[%d] + other[%d]" % (c, c)) }}{{ ", " if not loop.last }}{% endfor %});
            parts[lane] = sum;
        }
    }
    if (lane > 0u) { return; }
#% endif
    for (var k = 0u; k < 4u; k++) {
        let x = sum[k];
        sum[k] = {{ F(epilogue) }};
    }
    store4_y(line * u.n + column, sum, min(4u, u.n - column));
{% endcall %}
