{#
  Vectors of u.size channels made comparable, one workgroup each: y = turn(x / rms(x) * weight).

  source    where vectors come from and go to (indexer/<source>.wgsl):
            vectors() how many, place(i) one of them, quad(place, c) its channels from c on,
            keep(place, c, y, n) the first n of y stored
  policy    "qsa" turns the first u.rotary channels as halves, each with a table entry of its own;
            "csa" the last u.rotary as pairs of neighbours with one entry a pair
  room      u.size rounded up
#}
var<workgroup> vector: array<f32, {{ room }}>;
var<workgroup> squares: array<f32, WG>;

{% include "indexer/" ~ source ~ ".wgsl" %}

// Where the tables' row for a position of request b starts; positions outside them are clamped.
fn table_row(b: u32, position: u32) -> u32 {
    return b * u.table_step + min(position, u.table_rows - 1u) * u.table_width;
}

fn normal(c: u32, inverse: f32) -> f32 { return vector[c] * inverse * load_weight(c); }

fn turned(c: u32, table: u32, inverse: f32) -> f32 {
    let x = normal(c, inverse);
#% if policy == "qsa"
    let half = u.rotary / 2u;
    if (c >= u.rotary) { return x; }
    let at = table + c;
    if (c < half) { return x * load_cos(at) - normal(c + half, inverse) * load_sin(at); }
    return x * load_cos(at) + normal(c - half, inverse) * load_sin(at);
#% else
    let start = u.size - u.rotary;
    if (c < start) { return x; }
    let at = table + (c - start) / 2u;
    if ((c - start) % 2u == 0u) { return x * load_cos(at) - normal(c + 1u, inverse) * load_sin(at); }
    return x * load_cos(at) + normal(c - 1u, inverse) * load_sin(at);
#% endif
}

{% call kernel() %}
    let count = vectors();
    for (var i = group; i < count && group < u.groups; i += u.groups) {
        let p = place(i);
        if (!p.there) { continue; }
        workgroupBarrier();
        var square = 0.0;
        for (var c = lane * 4u; c < u.size; c += WG * 4u) {
            let x = quad(p, c);
            for (var k = 0u; k < min(4u, u.size - c); k++) {
                vector[c + k] = x[k];
                square += x[k] * x[k];
            }
        }
        squares[lane] = square;
        workgroupBarrier();
        square = 0.0;
        for (var k = 0u; k < WG; k++) { square += squares[k]; }
        let inverse = 1.0 / sqrt(square / f32(u.size) + u.epsilon);
        let table = table_row(p.request, p.position);
        for (var c = lane * 4u; c < u.size; c += WG * 4u) {
            let n = min(4u, u.size - c);
            var y: vec4<f32>;
            for (var k = 0u; k < n; k++) { y[k] = turned(c + k, table, inverse); }
            keep(p, c, y, n);
        }
    }
{% endcall %}
