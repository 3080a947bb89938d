{# For kernel(quads=True): four loads in one. `shared` is the type of what is passed on. #}
// What the four invocations of a quad hold, one after another.
fn broadcast4(mine: {{ shared }}) -> vec4<{{ shared }}> {
    return vec4<{{ shared }}>({% for k in range(4) %}quadBroadcast(mine, {{ k }}u){{ ", " if not loop.last }}{% endfor %});
}
