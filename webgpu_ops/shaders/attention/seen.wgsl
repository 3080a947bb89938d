// The key rows [x, y) that query i sees.
fn seen(s: Span, i: i32) -> vec2<i32> {
    return vec2<i32>(max(0, s.query + i - u.behind), min(s.end, s.query + i + u.ahead + 1));
}
