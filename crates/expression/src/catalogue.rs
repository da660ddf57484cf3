//! The description of each function: a call, its meaning, and an example with its result.
//!
//! They are our own words. DataFusion's descriptions are written for tables in a database, name types that
//! messages do not have, and show results as tables. A test evaluates every example, and another finds
//! functions without a description.

/// The heading under which a function is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Texts.
    Text,
    /// Regular expressions.
    Patterns,
    /// Arithmetic.
    Numbers,
    /// Times and dates.
    Times,
    /// Look-ups in JSON.
    Json,
    /// NULL, and the choice of one of several values.
    Choice,
    /// Encodings of bytes as text.
    Encoding,
}

impl Group {
    /// All groups, in the order in which they are listed.
    pub const ALL: [Self; 7] =
        [Self::Text, Self::Patterns, Self::Numbers, Self::Times, Self::Json, Self::Choice, Self::Encoding];

    /// The heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Text => "Text",
            Self::Patterns => "Regular expressions",
            Self::Numbers => "Numbers",
            Self::Times => "Times",
            Self::Json => "JSON",
            Self::Choice => "NULL and choice",
            Self::Encoding => "Encoding",
        }
    }
}

/// A function, as the reference shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionInfo {
    /// The name.
    pub name: &'static str,
    /// The heading under which it is listed.
    pub group: Group,
    /// A call, with optional arguments in brackets.
    pub call: &'static str,
    /// The meaning: sentences.
    pub help: &'static str,
    /// An expression that needs no fields.
    pub example: &'static str,
    /// The example's result, as JSON.
    pub result: &'static str,
}

const fn function(
    group: Group,
    name: &'static str,
    call: &'static str,
    help: &'static str,
    example: &'static str,
    result: &'static str,
) -> FunctionInfo {
    FunctionInfo { name, group, call, help, example, result }
}

/// All functions, by group and name.
#[rustfmt::skip]
pub(crate) const CATALOGUE: &[FunctionInfo] = &[
    function(
        Group::Text, "ascii", "ascii(text)",
        "The code point of the first character.",
        "ascii('A')", "65",
    ),
    function(
        Group::Text, "bit_length", "bit_length(text)",
        "The length in bits, as UTF-8.",
        "bit_length('añ')", "24",
    ),
    function(
        Group::Text, "btrim", "btrim(text[, characters])",
        "The text without these characters, by default spaces, at both ends.",
        "btrim('--a-b--', '-')", r#""a-b""#,
    ),
    function(
        Group::Text, "character_length", "character_length(text)",
        "The number of characters.",
        "character_length('señor')", "5",
    ),
    function(
        Group::Text, "chr", "chr(number)",
        "The character with this code point.",
        "chr(65)", r#""A""#,
    ),
    function(
        Group::Text, "concat", "concat(text[, ...])",
        "The texts joined. NULL counts as no text, unlike with `||`.",
        "concat('a', NULL, 'b')", r#""ab""#,
    ),
    function(
        Group::Text, "concat_ws", "concat_ws(separator, text[, ...])",
        "The texts joined with a separator between them. NULL is left out.",
        "concat_ws('/', 'a', NULL, 'b')", r#""a/b""#,
    ),
    function(
        Group::Text, "contains", "contains(text, part)",
        "True if the text contains the part.",
        "contains('connection refused', 'refused')", "true",
    ),
    function(
        Group::Text, "ends_with", "ends_with(text, end)",
        "True if the text ends so.",
        "ends_with('access.log', '.log')", "true",
    ),
    function(
        Group::Text, "find_in_set", "find_in_set(text, list)",
        "The position of a text in a list that is separated by commas, from 1; 0 if it is not there.",
        "find_in_set('b', 'a,b,c')", "2",
    ),
    function(
        Group::Text, "initcap", "initcap(text)",
        "Each word with its first letter in upper case, and the others in lower case.",
        "initcap('hello WORLD')", r#""Hello World""#,
    ),
    function(
        Group::Text, "left", "left(text, n)",
        "The first n characters; if n is negative, all but the last -n.",
        "left('2026-11-25', 4)", r#""2026""#,
    ),
    function(
        Group::Text, "levenshtein", "levenshtein(a, b)",
        "The number of insertions, deletions and replacements that turn one text into the other.",
        "levenshtein('kitten', 'sitting')", "3",
    ),
    function(
        Group::Text, "lower", "lower(text)",
        "The text in lower case.",
        "lower('GET')", r#""get""#,
    ),
    function(
        Group::Text, "lpad", "lpad(text, n[, filling])",
        "The text filled at the left to n characters, by default with spaces, or cut to n.",
        "lpad('7', 3, '0')", r#""007""#,
    ),
    function(
        Group::Text, "ltrim", "ltrim(text[, characters])",
        "The text without these characters, by default spaces, at the left.",
        "ltrim('007', '0')", r#""7""#,
    ),
    function(
        Group::Text, "octet_length", "octet_length(text)",
        "The length in bytes, as UTF-8.",
        "octet_length('señor')", "6",
    ),
    function(
        Group::Text, "overlay", "overlay(text PLACING new FROM start [FOR count])",
        "The text with a part replaced, from a character (the first is 1) and for a number of characters.",
        "overlay('192.168.0.17' PLACING 'xx' FROM 11 FOR 2)", r#""192.168.0.xx""#,
    ),
    function(
        Group::Text, "repeat", "repeat(text, n)",
        "The text n times.",
        "repeat('ab', 3)", r#""ababab""#,
    ),
    function(
        Group::Text, "replace", "replace(text, from, to)",
        "The text with each occurrence of one text replaced by another.",
        "replace('a.b.c', '.', '/')", r#""a/b/c""#,
    ),
    function(
        Group::Text, "reverse", "reverse(text)",
        "The characters in reverse order.",
        "reverse('abc')", r#""cba""#,
    ),
    function(
        Group::Text, "right", "right(text, n)",
        "The last n characters; if n is negative, all but the first -n.",
        "right('2026-11-25', 2)", r#""25""#,
    ),
    function(
        Group::Text, "rpad", "rpad(text, n[, filling])",
        "The text filled at the right to n characters, by default with spaces, or cut to n.",
        "rpad('ab', 4, '.')", r#""ab..""#,
    ),
    function(
        Group::Text, "rtrim", "rtrim(text[, characters])",
        "The text without these characters, by default spaces, at the right.",
        "rtrim('a/b//', '/')", r#""a/b""#,
    ),
    function(
        Group::Text, "split_part", "split_part(text, separator, n)",
        "The n-th part, from 1, or from the end if n is negative; an empty text if there is none.",
        "split_part('a:b:c', ':', 2)", r#""b""#,
    ),
    function(
        Group::Text, "starts_with", "starts_with(text, start)",
        "True if the text starts so.",
        "starts_with('/health/live', '/health')", "true",
    ),
    function(
        Group::Text, "strpos", "strpos(text, part)",
        "The position of the part in characters, from 1; 0 if it is not there.",
        "strpos('user@example.org', '@')", "5",
    ),
    function(
        Group::Text, "substr", "substr(text, start[, length])",
        "A part of the text, from a character (the first is 1), to the end or of a length.",
        "substr('2026-11-25', 6, 2)", r#""11""#,
    ),
    function(
        Group::Text, "substr_index", "substr_index(text, separator, n)",
        "All before the n-th separator; if n is negative, all after the n-th from the end.",
        "substr_index('www.example.org', '.', -2)", r#""example.org""#,
    ),
    function(
        Group::Text, "to_hex", "to_hex(number)",
        "A whole number in hexadecimal.",
        "to_hex(255)", r#""ff""#,
    ),
    function(
        Group::Text, "translate", "translate(text, from, to)",
        "The text with each character of `from` replaced by the one at the same position of `to`, or removed if there is none.",
        "translate('a-b_c', '-_', '.')", r#""a.bc""#,
    ),
    function(
        Group::Text, "upper", "upper(text)",
        "The text in upper case.",
        "upper('get')", r#""GET""#,
    ),
    function(
        Group::Text, "uuid", "uuid()",
        "A random UUID, version 4, another for each message.",
        "length(uuid())", "36",
    ),
    function(
        Group::Patterns, "regexp_count", "regexp_count(text, pattern[, start[, flags]])",
        "The number of matches, from a character on.",
        "regexp_count('a1b22c', '[0-9]+')", "2",
    ),
    function(
        Group::Patterns, "regexp_instr", "regexp_instr(text, pattern[, start[, n[, flags[, group]]]])",
        "The position of the n-th match in characters, from 1; 0 if there is none.",
        "regexp_instr('id=42', '[0-9]')", "4",
    ),
    function(
        Group::Patterns, "regexp_like", "regexp_like(text, pattern[, flags])",
        "True if a regular expression matches anywhere in the text. The flag `i` ignores case.",
        "regexp_like('Connection REFUSED', 'refused', 'i')", "true",
    ),
    function(
        Group::Patterns, "regexp_replace", "regexp_replace(text, pattern, replacement[, flags])",
        r"The text with the first match replaced, or with the flag `g` all matches. `\1` and `$${1}` are groups in the replacement.",
        "regexp_replace('card 4111 1111', '[0-9]', '*', 'g')", r#""card **** ****""#,
    ),
    function(
        Group::Numbers, "abs", "abs(number)",
        "The absolute value.",
        "abs(-5)", "5",
    ),
    function(
        Group::Numbers, "acos", "acos(number)",
        "The arc cosine, in radians.",
        "acos(1)", "0.0",
    ),
    function(
        Group::Numbers, "acosh", "acosh(number)",
        "The inverse hyperbolic cosine.",
        "acosh(1)", "0.0",
    ),
    function(
        Group::Numbers, "asin", "asin(number)",
        "The arc sine, in radians.",
        "asin(0)", "0.0",
    ),
    function(
        Group::Numbers, "asinh", "asinh(number)",
        "The inverse hyperbolic sine.",
        "asinh(0)", "0.0",
    ),
    function(
        Group::Numbers, "atan", "atan(number)",
        "The arc tangent, in radians.",
        "atan(0)", "0.0",
    ),
    function(
        Group::Numbers, "atan2", "atan2(y, x)",
        "The angle of the point (x, y), in radians.",
        "round(atan2(1, 1), 4)", "0.7854",
    ),
    function(
        Group::Numbers, "atanh", "atanh(number)",
        "The inverse hyperbolic tangent.",
        "atanh(0)", "0.0",
    ),
    function(
        Group::Numbers, "cbrt", "cbrt(number)",
        "The cube root.",
        "cbrt(27)", "3.0",
    ),
    function(
        Group::Numbers, "ceil", "ceil(number)",
        "The least whole number that is not less.",
        "ceil(1.2)", "2.0",
    ),
    function(
        Group::Numbers, "cos", "cos(number)",
        "The cosine of an angle in radians.",
        "cos(0)", "1.0",
    ),
    function(
        Group::Numbers, "cosh", "cosh(number)",
        "The hyperbolic cosine.",
        "cosh(0)", "1.0",
    ),
    function(
        Group::Numbers, "cot", "cot(number)",
        "The cotangent of an angle in radians.",
        "round(cot(1), 4)", "0.6421",
    ),
    function(
        Group::Numbers, "degrees", "degrees(number)",
        "Radians as degrees.",
        "degrees(pi())", "180.0",
    ),
    function(
        Group::Numbers, "exp", "exp(number)",
        "e to this power.",
        "exp(0)", "1.0",
    ),
    function(
        Group::Numbers, "factorial", "factorial(number)",
        "The factorial of a whole number up to 20.",
        "factorial(5)", "120",
    ),
    function(
        Group::Numbers, "floor", "floor(number)",
        "The greatest whole number that is not greater.",
        "floor(-1.2)", "-2.0",
    ),
    function(
        Group::Numbers, "gcd", "gcd(a, b)",
        "The greatest common divisor of two whole numbers.",
        "gcd(12, 18)", "6",
    ),
    function(
        Group::Numbers, "isnan", "isnan(number)",
        "True if the value is not a number (NaN).",
        "isnan(1.5)", "false",
    ),
    function(
        Group::Numbers, "iszero", "iszero(number)",
        "True if the number is zero.",
        "iszero(0)", "true",
    ),
    function(
        Group::Numbers, "lcm", "lcm(a, b)",
        "The least common multiple of two whole numbers.",
        "lcm(4, 6)", "12",
    ),
    function(
        Group::Numbers, "ln", "ln(number)",
        "The natural logarithm.",
        "ln(1)", "0.0",
    ),
    function(
        Group::Numbers, "log", "log([base,] number)",
        "The logarithm, by default to base 10.",
        "log(2, 8)", "3.0",
    ),
    function(
        Group::Numbers, "log10", "log10(number)",
        "The logarithm to base 10.",
        "log10(1000)", "3.0",
    ),
    function(
        Group::Numbers, "log2", "log2(number)",
        "The logarithm to base 2.",
        "log2(8)", "3.0",
    ),
    function(
        Group::Numbers, "nanvl", "nanvl(a, b)",
        "The first value, or the second if the first is not a number (NaN).",
        "nanvl(1.5, 0)", "1.5",
    ),
    function(
        Group::Numbers, "pi", "pi()",
        "The number π.",
        "round(pi(), 4)", "3.1416",
    ),
    function(
        Group::Numbers, "power", "power(base, exponent)",
        "The base to the power of the exponent.",
        "power(2, 10)", "1024.0",
    ),
    function(
        Group::Numbers, "radians", "radians(number)",
        "Degrees as radians.",
        "round(radians(180), 4)", "3.1416",
    ),
    function(
        Group::Numbers, "random", "random()",
        "A random number from 0 to below 1, another for each message.",
        "random() < 1", "true",
    ),
    function(
        Group::Numbers, "round", "round(number[, places])",
        "The number rounded to a number of decimal places, by default 0.",
        "round(3.14159, 2)", "3.14",
    ),
    function(
        Group::Numbers, "signum", "signum(number)",
        "-1, 0 or 1: the sign of the number.",
        "signum(-3)", "-1.0",
    ),
    function(
        Group::Numbers, "sin", "sin(number)",
        "The sine of an angle in radians.",
        "sin(0)", "0.0",
    ),
    function(
        Group::Numbers, "sinh", "sinh(number)",
        "The hyperbolic sine.",
        "sinh(0)", "0.0",
    ),
    function(
        Group::Numbers, "sqrt", "sqrt(number)",
        "The square root.",
        "sqrt(2.25)", "1.5",
    ),
    function(
        Group::Numbers, "tan", "tan(number)",
        "The tangent of an angle in radians.",
        "tan(0)", "0.0",
    ),
    function(
        Group::Numbers, "tanh", "tanh(number)",
        "The hyperbolic tangent.",
        "tanh(0)", "0.0",
    ),
    function(
        Group::Numbers, "trunc", "trunc(number[, places])",
        "The number without further decimal places, by default without any.",
        "trunc(3.987, 1)", "3.9",
    ),
    function(
        Group::Times, "current_date", "current_date()",
        "The date (UTC), the same for all messages of a batch.",
        "current_date() <= now()", "true",
    ),
    function(
        Group::Times, "current_time", "current_time()",
        "The time of day (UTC), the same for all messages of a batch.",
        "current_time() IS NOT NULL", "true",
    ),
    function(
        Group::Times, "date_bin", "date_bin(interval, time[, origin])",
        "The beginning of the interval in which a time lies.",
        "date_bin(INTERVAL '15 minutes', to_timestamp('2026-11-25T13:22:05Z'))", r#""2026-11-25T13:15:00Z""#,
    ),
    function(
        Group::Times, "date_part", "date_part(part, time)",
        "A part of a time, such as `year`, `month`, `day`, `hour`, `minute`, `second`, `dow` (0 is Sunday), `doy`, `week`, `epoch`.",
        "date_part('hour', to_timestamp('2026-11-25T13:22:05Z'))", "13",
    ),
    function(
        Group::Times, "date_trunc", "date_trunc(precision, time)",
        "The beginning of the `year`, `quarter`, `month`, `week`, `day`, `hour`, `minute` or `second` in which a time lies.",
        "date_trunc('hour', to_timestamp('2026-11-25T13:22:05Z'))", r#""2026-11-25T13:00:00Z""#,
    ),
    function(
        Group::Times, "from_unixtime", "from_unixtime(seconds)",
        "The time that lies this number of seconds after 1970 (UTC).",
        "from_unixtime(1700000000)", r#""2023-11-14T22:13:20Z""#,
    ),
    function(
        Group::Times, "make_date", "make_date(year, month, day)",
        "A date.",
        "make_date(2026, 11, 25)", r#""2026-11-25""#,
    ),
    function(
        Group::Times, "make_time", "make_time(hour, minute, second)",
        "A time of day.",
        "make_time(13, 22, 5)", r#""13:22:05""#,
    ),
    function(
        Group::Times, "now", "now()",
        "The time, the same for all messages of a batch.",
        "now() > to_timestamp('2020-01-01')", "true",
    ),
    function(
        Group::Times, "to_char", "to_char(time, format)",
        "A time as text, with the elements of `strftime`.",
        "to_char(to_timestamp('2026-11-25T13:22:05Z'), '%d %b %Y %H:%M')", r#""25 Nov 2026 13:22""#,
    ),
    function(
        Group::Times, "to_date", "to_date(text[, format, ...])",
        "A date from text, by default `2026-11-25`.",
        "to_date('25.11.2026', '%d.%m.%Y')", r#""2026-11-25""#,
    ),
    function(
        Group::Times, "to_local_time", "to_local_time(time)",
        "The time of the clock in the zone of a time, without the zone.",
        "to_local_time(to_timestamp('2026-11-25T13:22:05Z'))", r#""2026-11-25T13:22:05Z""#,
    ),
    function(
        Group::Times, "to_time", "to_time(text[, format, ...])",
        "A time of day from text.",
        "to_time('13:22:05')", r#""13:22:05""#,
    ),
    function(
        Group::Times, "to_timestamp", "to_timestamp(value[, format, ...])",
        "A time from text (RFC 3339, or the first format that matches), or from seconds since 1970.",
        "to_timestamp('25/Nov/2026:13:22:05 +0000', '%d/%b/%Y:%H:%M:%S %z')", r#""2026-11-25T13:22:05Z""#,
    ),
    function(
        Group::Times, "to_timestamp_micros", "to_timestamp_micros(value[, format, ...])",
        "A time from text, or from microseconds since 1970.",
        "to_timestamp_micros(1700000000000000)", r#""2023-11-14T22:13:20Z""#,
    ),
    function(
        Group::Times, "to_timestamp_millis", "to_timestamp_millis(value[, format, ...])",
        "A time from text, or from milliseconds since 1970.",
        "to_timestamp_millis(1700000000123)", r#""2023-11-14T22:13:20.123Z""#,
    ),
    function(
        Group::Times, "to_timestamp_nanos", "to_timestamp_nanos(value[, format, ...])",
        "A time from text, or from nanoseconds since 1970.",
        "to_timestamp_nanos(1700000000000000000)", r#""2023-11-14T22:13:20Z""#,
    ),
    function(
        Group::Times, "to_timestamp_seconds", "to_timestamp_seconds(value[, format, ...])",
        "A time from text, or from seconds since 1970.",
        "to_timestamp_seconds(1700000000)", r#""2023-11-14T22:13:20Z""#,
    ),
    function(
        Group::Times, "to_unixtime", "to_unixtime(value[, format, ...])",
        "The seconds since 1970 of a time, or of a text that is a time.",
        "to_unixtime('2026-11-25T13:22:05Z')", "1795612925",
    ),
    function(
        Group::Json, "json_extract", "json_extract(json, 'path.to[0].x')",
        "The value at a path in JSON text, as JSON.",
        r#"json_extract('{"u": {"tags": ["a", "b"]}}', 'u.tags')"#, r#"["a", "b"]"#,
    ),
    function(
        Group::Json, "json_get", "json_get(json, 'path.to[0].x')",
        "The value at a path in JSON text: a string without quotes, any other value as JSON. Without a path, the whole text.",
        r#"json_get('{"u": {"name": "Ann"}}', 'u.name')"#, r#""Ann""#,
    ),
    function(
        Group::Json, "json_get_bool", "json_get_bool(json, 'path.to[0].x')",
        "The value at a path in JSON text; NULL if it is neither true nor false.",
        r#"json_get_bool('{"ok": true}', 'ok')"#, "true",
    ),
    function(
        Group::Json, "json_get_float", "json_get_float(json, 'path.to[0].x')",
        "The value at a path in JSON text; NULL if it is not a number.",
        r#"json_get_float('{"t": 21.5}', 't')"#, "21.5",
    ),
    function(
        Group::Json, "json_get_int", "json_get_int(json, 'path.to[0].x')",
        "The value at a path in JSON text; NULL if it is not a whole number.",
        r#"json_get_int('{"a": [10, 20]}', 'a[1]')"#, "20",
    ),
    function(
        Group::Choice, "arrow_typeof", "arrow_typeof(value)",
        "The type of a value, as a text.",
        "arrow_typeof(1)", r#""Int64""#,
    ),
    function(
        Group::Choice, "coalesce", "coalesce(value[, ...])",
        "The first value that is not NULL.",
        "coalesce(NULL, 'unknown')", r#""unknown""#,
    ),
    function(
        Group::Choice, "greatest", "greatest(value[, ...])",
        "The greatest of the values. NULL is left out.",
        "greatest(3, 7, NULL)", "7",
    ),
    function(
        Group::Choice, "least", "least(value[, ...])",
        "The least of the values. NULL is left out.",
        "least(3, 7, NULL)", "3",
    ),
    function(
        Group::Choice, "nullif", "nullif(a, b)",
        "NULL if both are equal, otherwise the first.",
        "nullif('-', '-')", "null",
    ),
    function(
        Group::Choice, "nvl", "nvl(value, otherwise)",
        "The value, or the other one if it is NULL.",
        "nvl(NULL, 0)", "0",
    ),
    function(
        Group::Choice, "nvl2", "nvl2(value, then, otherwise)",
        "The second value if the first is not NULL, otherwise the third.",
        "nvl2('x', 'set', 'missing')", r#""set""#,
    ),
    function(
        Group::Encoding, "decode", "decode(text, format)",
        "The bytes of a text in `hex`, `base64` or `base64pad`.",
        "decode('6869', 'hex')", r#""hi""#,
    ),
    function(
        Group::Encoding, "encode", "encode(text, format)",
        "The text in `hex`, `base64` or `base64pad`.",
        "encode('hi', 'base64pad')", r#""aGk=""#,
    ),
];
