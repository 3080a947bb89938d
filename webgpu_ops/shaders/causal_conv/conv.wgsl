{#
  out = activation(bias + sum over taps of weight * x), four neighbouring elements an invocation.
  The sum is made in float32 whatever the types are.

  spatial   there are non-causal axes: a row's neighbours, with zeros beyond the edge
  together  the four elements are in one row, and made at once
  adjacent  the dilation is 1
#}
{% set number = "vec4<f32>" if together else "f32" %}
{% include "causal_conv/lib.wgsl" %}

struct Place { request: Request, row: u32, l: u32 }

fn place(i: u32) -> Place {
#% if cu_seqlens
    // Offsets that fall make the search miss; a request that owns the token is found all the same.
    let token = i / u.rows;
    var low = 0u;
    var high = u.batch;
    while (high - low > 1u) {
        let middle = (low + high) / 2u;
        if (load_cu_seqlens(middle) <= i32(token)) { low = middle; } else { high = middle; }
    }
    var r = request(low);
    for (var b = 0u; b < u.batch && !owns(r, token); b++) { r = request(b); }
    r.valid = owns(r, token);
    return Place(r, i % u.rows, token - r.start);
#% elif token_major
    let token = i / u.rows;
    return Place(request(token / u.length), i % u.rows, token % u.length);
#% else
    let row = i / u.length;
    return Place(request(row / u.rows), row % u.rows, i % u.length);
#% endif
}

#% if cu_seqlens
fn owns(r: Request, token: u32) -> bool {
    return r.valid && r.start <= token && token - r.start < r.length;
}
#% endif

// The place of element i, which follows `at`.
fn next(at: Place, i: u32) -> Place {
#% if token_major
    if (at.row + 1u < u.rows) { return Place(at.request, at.row + 1u, at.l); }
#% else
    if (at.l + 1u < u.length) { return Place(at.request, at.row, at.l + 1u); }
#% endif
    return place(i);
}

// Taps along the causal axis.
fn along(r: Request, row: u32, l: u32, weights: u32) -> {{ number }} {
    var sum = {{ number }}();
#% if together and adjacent
    // Each tap moves on by one element.
    let first = i32(l) - i32(u.taps) + 1;
    var x = vec4<f32>(0.0, sample(r, row, first), sample(r, row, first + 1), sample(r, row, first + 2));
#% endif
    for (var j = 0u; j < u.taps; j++) {
        let start = i32(l) - i32((u.taps - 1u - j) * u.dilation);
#% if together and adjacent
        x = vec4<f32>(x.yzw, sample(r, row, start + 3));
#% elif together
        let x = vec4<f32>({% for k in range(4) %}sample(r, row, start + {{ k }}){{ ", " if not loop.last }}{% endfor %});
#% else
        let x = sample(r, row, start);
#% endif
        sum += load_weight(weights + j) * x;
    }
    return sum;
}

fn conv(at: Place) -> {{ number }} {
    let channel = at.row / u.places;
    var sum = {{ number }}({{ "load_bias(channel)" if bias else "0.0" }});
#% if spatial
    let y = i32((at.row % u.places) / u.width) - i32(u.kernel_y / 2u);
    let x = i32(at.row % u.width) - i32(u.kernel_x / 2u);
    for (var ky = 0u; ky < u.kernel_y; ky++) {
        for (var kx = 0u; kx < u.kernel_x; kx++) {
            let near_y = y + i32(ky);
            let near_x = x + i32(kx);
            if (near_y < 0 || near_y >= i32(u.places / u.width) || near_x < 0 || near_x >= i32(u.width)) { continue; }
            let row = channel * u.places + u32(near_y) * u.width + u32(near_x);
            sum += along(at.request, row, at.l, ((channel * u.kernel_y + ky) * u.kernel_x + kx) * u.taps);
        }
    }
#% else
    sum += along(at.request, at.row, at.l, channel * u.taps);
#% endif
#% if silu and together
    return sum * vec4<f32>(sigmoid_f32(sum.x), sigmoid_f32(sum.y), sigmoid_f32(sum.z), sigmoid_f32(sum.w));
#% else
    return {{ "sum * sigmoid_f32(sum)" if silu else "sum" }};
#% endif
}

{% call kernel() %}
    let i = thread * 4u;
    if (i >= u.size) { return; }
#% if together
    store4_out(i, conv(place(i)), 4u);
#% else
    let n = min(u.size - i, 4u);
    var at = place(i);
    var out = vec4<f32>();
    var written = vec4<bool>();
    for (var k = 0u; k < n; k++) {
        if (k > 0u) { at = next(at, i + k); }
        written[k] = at.request.valid;
        if (at.request.valid) { out[k] = conv(at); }
    }
#% if cu_seqlens
    if (!all(written)) {
        for (var k = 0u; k < n; k++) {
            if (written[k]) { store_out(i + k, out[k]); }
        }
        return;
    }
#% endif
    store4_out(i, out, n);
#% endif
{% endcall %}
