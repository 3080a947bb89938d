{# The heads of query rows from u.first on, in rows of u.stride: y [rows, heads, size]. #}
struct Place { there: bool, request: u32, position: u32, x: u32, y: u32 }

fn vectors() -> u32 { return u.count; }

fn place(i: u32) -> Place {
    let row = u.first + i / u.heads;
    return Place(
        true, load_rows(row * 4u), load_rows(row * 4u + 1u),
        row * u.stride + (i % u.heads) * u.size, i * u.size);
}

fn quad(p: Place, c: u32) -> vec4<f32> { return load4_x(p.x + c); }

fn keep(p: Place, c: u32, y: vec4<f32>, n: u32) { store4_y(p.y + c, y, n); }
