{# A row of x, plus the row of skip that belongs to it (skip repeats every u.skip_rows), plus bias. #}
fn row_quad(row: u32, j: u32) -> quad {
    let x = load4_x(row * u.width + j);
#% if skip
    let skip = load4_skip((row % u.skip_rows) * u.width + j);
#% endif
#% if bias
    let bias = load4_bias(j);
#% endif
    return quad(
#% for k in range(4)
        {{ F("x[%d]" % k ~ (" + skip[%d]" % k if skip else "") ~ (" + bias[%d]" % k if bias else "")) }},
#% endfor
    );
}
