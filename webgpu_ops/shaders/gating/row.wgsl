{#
  Work shared by `lanes` neighbouring invocations a row, a power of two up to WG: lane j of a row
  owns the quads of elements at 4 * j, 4 * (j + lanes), ...
#}

// q without the elements from n on.
fn first_of(q: vec4<f32>, n: u32) -> vec4<f32> {
    return select(vec4<f32>(), q, vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(n));
}
#% if lanes > 1

var<workgroup> partial: array<vec4<f32>, WG>;
#% endif

// The sum over a row's lanes, the same in each of them. All invocations of the group take part.
fn row_sum(lane: u32, value: vec4<f32>) -> vec4<f32> {
#% if lanes > 1
    workgroupBarrier();
    partial[lane] = value;
    for (var half = {{ lanes // 2 }}u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane % {{ lanes }}u < half) { partial[lane] += partial[lane + half]; }
    }
    workgroupBarrier();
    return partial[lane / {{ lanes }}u * {{ lanes }}u];
#% else
    return value;
#% endif
}
