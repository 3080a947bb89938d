{# The attention after one step, a workgroup a row and direction: for runs of one step. #}
{% set F = arith(compute) %}
{% include "lstm/rows.wgsl" %}
{% include "lstm/attend.wgsl" %}

{% call kernel() %}
    let dir = group / u.batch;
    if (dir >= u.directions) { return; }
    attend(dir, group % u.batch, group % u.batch + 1u, lane);
{% endcall %}
