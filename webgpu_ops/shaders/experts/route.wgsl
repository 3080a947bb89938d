{#
  The k experts of a token, the largest logits first, and their weights: a workgroup a token.

  sparse      the sparse mixer: each pick's weight is its share among the experts that are left and
              near it, instead of its share among all
  mix         a binding with the weights of all experts, which then are used as they are
  normalize   whether the k weights are scaled to a sum of 1
#}
struct Candidate { logit: f32, expert: u32 }

var<workgroup> candidates: array<Candidate, WG>;
var<workgroup> sums: array<f32, WG>;

// A NaN counts as the least, so that there always are k experts to pick.
fn logit(i: u32) -> f32 {
    let x = load_router(i);
    return select(x, -inf_f32(), is_nan(x));
}

// Larger logits first, then lower experts.
fn precedes(x: Candidate, y: Candidate) -> bool {
    return x.logit > y.logit || (x.logit == y.logit && x.expert < y.expert);
}

// The first of what the invocations found.
fn first_of(lane: u32, own: Candidate) -> Candidate {
    candidates[lane] = own;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half && precedes(candidates[lane + half], candidates[lane])) {
            candidates[lane] = candidates[lane + half];
        }
    }
    workgroupBarrier();
    let found = candidates[0];
    workgroupBarrier();
    return found;
}
#% if not mix

fn sum_of(lane: u32, own: f32) -> f32 {
    sums[lane] = own;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) { sums[lane] += sums[lane + half]; }
    }
    workgroupBarrier();
    let sum = sums[0];
    workgroupBarrier();
    return sum;
}
#% endif

{% call kernel() %}
    if (group >= u.tokens) { return; }
    let row = group * u.experts;
    var last = Candidate(0.0, 0u);
#% if not mix
    var top = 0.0;
    var all = 0.0;
#% endif
    var total = 0.0;
    for (var j = 0u; j < u.k; j++) {
        var own = Candidate(-inf_f32(), u.experts);
        for (var e = lane; e < u.experts; e += WG) {
            let x = Candidate(logit(row + e), e);
            if ((j == 0u || precedes(last, x)) && precedes(x, own)) { own = x; }
        }
        let pick = first_of(lane, own);
#% if mix
        let weight = load_mix(row + pick.expert);
#% else
        {{ "if (j == 0u) {" if not sparse else "{" }}
            top = pick.logit;
            var part = 0.0;
            for (var e = lane; e < u.experts; e += WG) {
                let x = load_router(row + e);
#% if sparse
                if (j > 0u && !precedes(last, Candidate(x, e))) { continue; }
                if (top - x > 0.02 * max(abs(x), top)) { continue; }
#% endif
                part += exp(x - top);
            }
            all = sum_of(lane, part);
        }
        let weight = exp(pick.logit - top) / all;
#% endif
        total += weight;
        if (lane == 0u) {
            store_picks(group * u.k + j, pick.expert);
            store_weights(group * u.k + j, weight);
        }
        last = pick;
    }
#% if normalize
    if (lane == 0u) {
        for (var j = group * u.k; j < (group + 1u) * u.k; j++) { store_weights(j, load_weights(j) / total); }
    }
#% endif
{% endcall %}
