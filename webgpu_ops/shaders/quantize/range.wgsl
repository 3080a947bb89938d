{#
  The least and the largest of x and 0: `u.parts` workgroups leave theirs in `parts`, then one turns
  them into the scale and zero point with which the range fills uint8.

  last   whether x is those parts, in pairs, and scale and zero are the result
#}
var<workgroup> low: array<f32, WG>;
var<workgroup> high: array<f32, WG>;

{% call kernel() %}
    var least = 0.0f;
    var most = 0.0f;
#% if last
    for (var i = lane; i < u.parts; i += WG) {
        least = min(least, load_x(2u * i));
        most = max(most, load_x(2u * i + 1u));
    }
#% else
    for (var i = (group * WG + lane) * 4u; i < u.size; i += u.parts * WG * 4u) {
        let four = load4_x(i);
        for (var k = 0u; k < min(4u, u.size - i); k++) {
            least = min(least, four[k]);
            most = max(most, four[k]);
        }
    }
#% endif
    low[lane] = least;
    high[lane] = most;
    workgroupBarrier();
    if (lane != 0u || group >= u.parts) { return; }
    for (var k = 1u; k < WG; k++) {
        least = min(least, low[k]);
        most = max(most, high[k]);
    }
#% if last
    // A tensor of zeros has no range; any scale serves.
    let step = select((most - least) / 255.0f, 1.0f, most == least);
    store_scale(0u, step);
    store_zero(0u, u32(clamp(round(-least / step), 0.0f, 255.0f)));
#% else
    store_y(2u * group, least);
    store_y(2u * group + 1u, most);
#% endif
{% endcall %}
