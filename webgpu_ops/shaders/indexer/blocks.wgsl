{#
  Means of u.ratio visible tokens' keys [batch, u.key_rows, size]: y [batch, u.blocks, size]. A block
  stands at its first token.

  visible  the tokens that a mask shows (see indexer/visible.wgsl); without it all u.total
#}
struct Place { there: bool, request: u32, position: u32, first: u32, y: u32 }

fn vectors() -> u32 { return u.count; }

// Token i among the visible ones of request b; a place behind them all.
fn token(b: u32, i: u32) -> u32 {
    return {{ "load_visible(b * (u.total + 1u) + i)" if visible else "i" }};
}

fn place(i: u32) -> Place {
    let b = i / u.blocks;
    let first = (i % u.blocks) * u.ratio;
    let shown = {{ "token(b, u.total)" if visible else "u.total" }};
    if (first + u.ratio > shown) { return Place(); }
    return Place(true, b, token(b, first), first, i * u.size);
}

fn quad(p: Place, c: u32) -> vec4<f32> {
    var sum = vec4<f32>();
    for (var k = 0u; k < u.ratio; k++) {
        sum += load4_x((p.request * u.key_rows + token(p.request, p.first + k)) * u.size + c);
    }
    return sum / f32(u.ratio);
}

fn keep(p: Place, c: u32, y: vec4<f32>, n: u32) { store4_y(p.y + c, y, n); }
