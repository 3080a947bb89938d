{#
  Which rows and columns a workgroup multiplies, and how results are finished and stored: shared by the
  kernels that multiply pairs (experts/group.wgsl) by the weights of their expert.

    y[pair] = epilogue(a[pair / u.share] @ weights of the pair's expert)

  a has rows of u.k, y of u.n. Weights are lines, u.n an expert and each a column of its matrix; bound
  are u.lines of them from number u.first on, and only their columns are computed.

  epilogue   expressions of x, each of which replaces x: first the product; they may use `bias` (of the
             expert's column) and `other` (the element of another tensor shaped as y)
#}
struct Place { start: u32, rows: u32, expert: u32, first: u32, end: u32 }

// Rows and expert of a tile, and the expert's columns from `first` to `end` that are bound.
fn place_of(tile: u32) -> Place {
    let at = u.tiles_at + 3u * tile;
    let expert = load_order(at + 2u);
    let line = expert * u.n;
    let first = clamp(u.first, line, line + u.n) - line;
    let end = clamp(u.first + u.lines, line, line + u.n) - line;
    return Place(load_order(at), load_order(at + 1u), expert, first, end);
}

// Whether there is work in `count` columns from `column` on.
fn has_work(place: Place, column: u32, count: u32) -> bool {
    return place.rows > 0u && column < place.end && column + count > place.first;
}

// The pair that is row r of the tile; beyond its end the last one again.
fn pair_of(place: Place, r: u32) -> u32 {
    return load_order(place.start + min(r, place.rows - 1u));
}

fn a_of(pair: u32) -> u32 { return pair / u.share * u.k; }

// The line of a column, beyond what is bound that of the nearest one.
fn line_of(place: Place, column: u32) -> u32 {
    return place.expert * u.n + clamp(column, place.first, place.end - 1u) - u.first;
}

fn finish(expert: u32, pair: u32, column: u32, product: f32) -> f32 {
#% if bias
    let bias = load_bias(expert * u.n + column);
#% endif
#% if other
    let other = load_other(pair * u.n + column);
#% endif
    var x = product;
#% for part in epilogue if part != "x"
    x = {{ arith("f32")(part) }};
#% endfor
    return x;
}

fn put(place: Place, pair: u32, column: u32, sums: vec4<f32>) {
    for (var j = 0u; j < 4u; j++) {
        if (column + j >= place.first && column + j < place.end) {
            var sum = sums;
            store_y(pair * u.n + column + j, finish(place.expert, pair, column + j, sum[j]));
        }
    }
}
