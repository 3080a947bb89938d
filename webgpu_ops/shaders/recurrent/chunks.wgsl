// Chunks of all requests share one axis of slots. Request b starts at the slot below; whole chunks
// never overlap, and floor(tokens / C) + batch slots hold them all, whatever the lengths.
const C = {{ chunk }}u;
const SOLVE = 0u;
const ATTEND = C * C;
const FACTOR = 2u * C * C;
const BLOCK = 2u * C * C + 4u * C;

fn first_slot(request: u32) -> u32 {
    return request_begin(request) / C + request;
}

fn block(slot: u32, reader: u32) -> u32 {
    return (slot * u.heads_v * u.queries + reader) * BLOCK;
}
