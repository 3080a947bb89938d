{# The quantized state before step u.begin, a workgroup a direction: for runs of one step. #}
{% include "lstm/rows.wgsl" %}
{% include "lstm/codes.wgsl" %}

{% call kernel() %}
    if (group >= u.directions) { return; }
    quantize(group, u.begin, lane);
{% endcall %}
