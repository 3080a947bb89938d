{#
  Counts of a workgroup's invocations, in their order. Each owns a share of consecutive items:
  share_of(lane, items) is its first item and the one after its last.
#}
struct Tally { before: vec2<u32>, all: vec2<u32> }

var<workgroup> tallies: array<vec2<u32>, WG>;

// What the invocations before this one counted, and all of them. All of the group take part.
fn tally(lane: u32, own: vec2<u32>) -> Tally {
    workgroupBarrier();
    tallies[lane] = own;
    workgroupBarrier();
    var sum = Tally(vec2<u32>(), vec2<u32>());
    for (var k = 0u; k < WG; k++) {
        if (k == lane) { sum.before = sum.all; }
        sum.all += tallies[k];
    }
    return sum;
}

fn share_of(lane: u32, items: u32) -> vec2<u32> {
    let each = (items + WG - 1u) / WG;
    return min(vec2<u32>(lane * each, (lane + 1u) * each), vec2<u32>(items));
}
