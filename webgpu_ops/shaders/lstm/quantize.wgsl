{# The quantized state before step u.begin, a workgroup a direction: for runs of one step. #}
{% include "lstm/rows.wgsl" %}

fn state_at(dir: u32, row: u32) -> u32 {
    return dir * u.state_dir + row * u.state_row;
}

{% include "lstm/codes.wgsl" %}

{% call kernel() %}
    if (group >= u.directions) { return; }
    quantize(u.first_direction + group, u.begin, lane);
{% endcall %}
