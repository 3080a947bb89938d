{#
  out[i] = expression of operands[i]...: every unary, binary and n-ary elementwise operator.

  parts     "name = expression" ..., and last the expression of the result
  operands  (name, mode, type) of each binding; mode is how it is read:
            "flat" element i; "single" element 0; "strided" walks u.shape with strides of its own
  compute   the type whose arithmetic `parts` use; with `cast` the result is converted to out's
  library   a template with functions that `parts` call
#}
#% if compute.kind != "bits"
{% set F = arith(compute) %}
#% endif
#% macro operand(name, type)
{% if compute.kind == "bits" or type == compute or type.kind == "bool" %}{{ name }}{% else %}{{ F.cast(name, type) }}{% endif %}
#% endmacro
#% if library
{% include library %}
#% endif
fn apply({% for name, mode, type in operands %}{{ name }}_in: {{ name }}_t{{ ", " if not loop.last }}{% endfor %}) -> out_t {
#% for name, mode, type in operands
    let {{ name }} = {{ operand(name ~ "_in", type) }};
#% endfor
#% for part in parts[:-1]
    let {{ part.split("=", 1)[0] }}= {{ F(part.split("=", 1)[1]) }};
#% endfor
    return {{ parts[-1] if compute.kind == "bits" else arith(out).cast(F(parts[-1]), F) if cast else F(parts[-1]) }};
}
#% for name, mode, type in operands if mode == "strided"

fn at_{{ name }}(i: u32) -> u32 {
    var rest = i;
    var at = u.{{ name }}_offset;
    for (var d = u.rank; d > 0u; d--) {
        let size = u_shape(d - 1u);
        at += (rest % size) * u_{{ name }}_strides(d - 1u);
        rest /= size;
    }
    return at;
}

fn quad_{{ name }}(i: u32) -> {{ name }}_quad {
    let row = u_shape(u.rank - 1u);
    if (i % row + 4u <= row) {
        let at = at_{{ name }}(i);
        let step = u_{{ name }}_strides(u.rank - 1u);
        if (step == 1u) { return load4_{{ name }}(at); }
        return {{ name }}_quad(load_{{ name }}(at), load_{{ name }}(at + step), load_{{ name }}(at + 2u * step), load_{{ name }}(at + 3u * step));
    }
    return {{ name }}_quad(load_{{ name }}(at_{{ name }}(i)), load_{{ name }}(at_{{ name }}(i + 1u)), load_{{ name }}(at_{{ name }}(i + 2u)), load_{{ name }}(at_{{ name }}(i + 3u)));
}
#% endfor

{% call kernel() %}
    let i = thread * 4u;
    if (i >= u.size) { return; }
#% for name, mode, type in operands
    var {{ name }} = {% if mode == "flat" %}load4_{{ name }}(i){% elif mode == "strided" %}quad_{{ name }}(i){% else %}load_{{ name }}(0u){% endif %};
#% endfor
    var result: out_quad;
    for (var k = 0u; k < 4u; k++) {
        result[k] = apply({% for name, mode, type in operands %}{{ name }}{{ "[k]" if mode != "single" }}{{ ", " if not loop.last }}{% endfor %});
    }
    store4_out(i, result, min(4u, u.size - i));
{% endcall %}
