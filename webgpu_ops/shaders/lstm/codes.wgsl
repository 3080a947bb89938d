{#
  Quantizes the state of one direction, over all rows that still run at step s: codes holds the scale,
  the zero point and, from word 4 on, rows of four codes - 128 a word. A workgroup does it.
#}
var<workgroup> lows: array<f32, WG>;
var<workgroup> highs: array<f32, WG>;

fn quantize(dir: u32, s: u32, lane: u32) {
    var low = 0.0;
    var high = 0.0;
    for (var i = lane; i < u.batch * u.hidden; i += WG) {
        let row = i / u.hidden;
        if (s < row_length(row)) {
            let h = load_h_in(state_at(dir, row) + i % u.hidden);
            low = min(low, h);
            high = max(high, h);
        }
    }
    lows[lane] = low;
    highs[lane] = high;
    workgroupBarrier();
#% if WG > 16
    if (lane < 16u) {
        for (var i = lane + 16u; i < WG; i += 16u) {
            low = min(low, lows[i]);
            high = max(high, highs[i]);
        }
        lows[lane] = low;
        highs[lane] = high;
    }
    workgroupBarrier();
#% endif
    for (var i = 0u; i < min(WG, 16u); i++) {
        low = min(low, lows[i]);
        high = max(high, highs[i]);
    }
    let scale = select(1.0, (high - low) / 255.0, high > low);
    let zero = clamp(round(-low / scale), 0.0, 255.0);
    let codes = dir * u.codes_dir;
    let words = (u.hidden + 3u) / 4u;
    for (var i = lane; i < u.batch * words; i += WG) {
        let row = i / words;
        let unit = i % words * 4u;
        var word = 0u;
        for (var k = 0u; k < 4u && unit + k < u.hidden && s < row_length(row); k++) {
            let h = load_h_in(state_at(dir, row) + unit + k);
            let code = u32(clamp(round(h / scale) + zero, 0.0, 255.0));
            word |= (code ^ 128u) << (8u * k);
        }
        store_codes(codes + 4u + i, word);
    }
    if (lane == 0u) {
        store_codes(codes, bitcast<u32>(scale));
        store_codes(codes + 1u, u32(zero));
    }
    storageBarrier();
    workgroupBarrier();
}
