{#
  The cosine and sine by which a token's pair of channels turns.

  ids      positions as the two words of an int64, or None: the tables have a row for each token
  counted  ids is the position of the first of every u.sequence tokens, else there is one a token
  streams  "": a position a token; "runs", "turns": three, of which a pair goes by one
#}
#% if ids
{% include "rotary/position.wgsl" %}

#% endif
#% if streams
fn stream_of(pair: u32) -> u32 {
#% if streams == "runs"
    return u32(pair >= u_sections(0u)) + u32(pair >= u_sections(0u) + u_sections(1u));
#% else
    let k = pair % 3u;
    return select(0u, k, pair < 3u * u_sections(k));
#% endif
}

#% endif
// Where the tables' row for a token starts; a position outside them is clamped.
fn table_at(token: u32, pair: u32) -> u32 {
#% if ids
    let at = 2u * ({{ "0u" if counted else "token" }}{{ " + stream_of(pair) * u.tokens" if streams }});
    let further = {{ "token % u.sequence" if counted else "0u" }};
    return table_row(load_ids(at), load_ids(at + 1u), further, u.table_rows) * u.table_width;
#% else
    return token * u.table_width;
#% endif
}

fn angle(token: u32, pair: u32) -> vec2<f32> {
    let at = table_at(token, pair) + pair;
    return vec2<f32>(load_cos(at), load_sin(at));
}
