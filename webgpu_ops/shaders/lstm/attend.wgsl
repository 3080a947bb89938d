{#
  Bahdanau attention over the memory with the new H as query; its result becomes the part of the state
  behind H. A workgroup does some rows of one direction. `work` holds for each row: the processed
  query, the scores, their exponentials and the context.
#}
fn memory_length(row: u32) -> u32 {
#% if memory_lengths
    return u32(clamp(load_memory_lengths(row), 0, i32(u.memory_steps)));
#% else
    return u.memory_steps;
#% endif
}

fn together() {
    storageBarrier();
    workgroupBarrier();
}

fn attend(dir: u32, first_row: u32, end_row: u32, lane: u32) {
    let rows = end_row - first_row;
    let scores = u.query;
    let powers = scores + u.memory_steps;
    let contexts = powers + u.memory_steps;
    for (var i = lane; i < rows * u.query; i += WG) {
        let row = first_row + i / u.query;
        let d = i % u.query;
        var sum = {{ F("0") }};
        for (var k = 0u; k < u.hidden; k++) {
            let h = load_h(state_at(dir, row) + k);
            let w = load_query_weight((dir * u.hidden + k) * u.query + d);
            sum = {{ F("sum + h * w") }};
        }
        store_work((dir * u.batch + row) * u.work_row + d, sum);
    }
    together();
    for (var i = lane; i < rows * u.memory_steps; i += WG) {
        let row = first_row + i / u.memory_steps;
        let m = i % u.memory_steps;
        let work = (dir * u.batch + row) * u.work_row;
        if (m >= memory_length(row)) { continue; }
        var sum = {{ F("0") }};
        for (var d = 0u; d < u.query; d++) {
            let key = load_keys(((dir * u.batch + row) * u.memory_steps + m) * u.query + d);
            let query = load_work(work + d);
            let v = load_v(dir * u.query + d);
            sum = {{ F("sum + v * tanh(key + query)") }};
        }
        store_work(work + scores + m, sum);
    }
    together();
    for (var row = first_row; row < end_row; row++) {
        let work = (dir * u.batch + row) * u.work_row;
        let length = memory_length(row);
        if (lane >= length) { continue; }
        var top = load_work(work + scores);
        for (var m = 1u; m < length; m++) {
            let score = load_work(work + scores + m);
            top = {{ F("max(top, score)") }};
        }
        for (var m = lane; m < length; m += WG) {
            let score = load_work(work + scores + m);
            store_work(work + powers + m, {{ F("exp(score - top)") }});
        }
    }
    together();
    for (var i = lane; i < rows * u.depth; i += WG) {
        let row = first_row + i / u.depth;
        let d = i % u.depth;
        let work = (dir * u.batch + row) * u.work_row;
        let length = memory_length(row);
        var sum = {{ F("0") }};
        var weights = {{ F("0") }};
        for (var m = 0u; m < length; m++) {
            let power = load_work(work + powers + m);
            let value = load_memory((row * u.memory_steps + m) * u.depth + d);
            sum = {{ F("sum + power * value") }};
            weights = {{ F("weights + power") }};
        }
        // Without a valid memory step there is nothing to attend to.
        var context = sum;
        if (length > 0u) { context = {{ F("sum / weights") }}; }
#% if layer
        store_work(work + contexts + d, context);
#% else
        store_h(state_at(dir, row) + u.hidden + d, context);
#% endif
    }
    together();
#% if layer
    for (var i = lane; i < rows * u.attention; i += WG) {
        let row = first_row + i / u.attention;
        let a = i % u.attention;
        let weights = dir * (u.hidden + u.depth) * u.attention + a;
        var sum = {{ F("0") }};
        for (var k = 0u; k < u.hidden; k++) {
            let h = load_h(state_at(dir, row) + k);
            let w = load_layer(weights + k * u.attention);
            sum = {{ F("sum + h * w") }};
        }
        for (var d = 0u; d < u.depth; d++) {
            let context = load_work((dir * u.batch + row) * u.work_row + contexts + d);
            let w = load_layer(weights + (u.hidden + d) * u.attention);
            sum = {{ F("sum + context * w") }};
        }
        store_h(state_at(dir, row) + u.hidden + a, sum);
    }
    together();
#% endif
}
