{# power(x, y): x to a whole power by squaring, in an integer type. A negative power truncates. #}
fn power(x: {{ F.scalar }}, y: {{ F.scalar }}) -> {{ F.scalar }} {
    if ({{ F("y < 0") }}) {
        if ({{ F("x == 1") }}) { return x; }
        if ({{ F("x == 0 - 1") }}) {
            if ({{ F("y % 2 == 0") }}) { return {{ F("1") }}; }
            return x;
        }
        return {{ F("0") }};
    }
    var result = {{ F("1") }};
    var base = x;
    var rest = y;
    while ({{ F("rest > 0") }}) {
        if ({{ F("rest % 2 == 1") }}) { result = {{ F("result * base") }}; }
        base = {{ F("base * base") }};
        rest = {{ F("rest / 2") }};
    }
    return result;
}
