{# The attention after one step, a workgroup a row and direction: for runs of one step. #}
{% set F = arith(compute) %}
{% include "lstm/rows.wgsl" %}

fn state_at(dir: u32, row: u32) -> u32 {
    return dir * u.state_dir + row * u.state_row;
}

{% include "lstm/attend.wgsl" %}

{% call kernel() %}
    if (group >= u.directions * u.batch) { return; }
    let dir = u.first_direction + group / u.batch;
    attend(dir, group % u.batch, group % u.batch + 1u, lane);
{% endcall %}
