//! Functions and operators of other languages, and how they are written here.

/// The functions of other languages, each list with the sentence that helps.
const FUNCTIONS: [(&[&str], &str); 22] = [
    (&["isnull", "is_null"], "Write `a IS NULL`, or `coalesce(a, b)` to put a value in its place."),
    (&["defined", "isset", "is_defined", "is_not_null"], "Write `a IS NOT NULL`."),
    (&["if", "iff", "iif", "cond", "ternary"], "Write `CASE WHEN condition THEN a ELSE b END`."),
    (&["int", "integer", "to_int", "toint", "parse_int", "int64"], "Write `CAST(a AS BIGINT)`."),
    (&["float", "double", "to_float", "number", "to_number", "tonumber"], "Write `CAST(a AS DOUBLE)`."),
    (&["str", "string", "to_string", "tostring", "text"], "Write `CAST(a AS VARCHAR)`."),
    (&["bool", "boolean", "to_bool"], "Write `CAST(a AS BOOLEAN)`."),
    (
        &["json_extract_scalar", "json_value", "parse_json", "from_json"],
        "Use `json_get`, or a path such as `a.b`.",
    ),
    (&["first", "nth", "element_at"], "An element of a JSON list is written `a[0]`."),
    (&["len", "size", "sizeof"], "Use `length`."),
    (&["lowercase", "downcase", "lcase"], "Use `lower`."),
    (&["uppercase", "upcase", "ucase"], "Use `upper`."),
    (&["index", "indexof", "locate"], "Use `strpos`."),
    (
        &["match", "matches", "regexp_match", "regexp_matches", "regex_match", "regex_matches", "rlike"],
        "Use `regexp_like`, or write `a ~ 'expression'`.",
    ),
    (
        &["regexp_extract", "regexp_substr", "capture", "extract_all"],
        "Use `regexp_replace`, or the transform `parse_regex` with named groups.",
    ),
    (
        &["datediff", "date_diff", "timestampdiff", "timestamp_diff", "age"],
        "Write `(CAST(b AS BIGINT) - CAST(a AS BIGINT)) / 1e6` for seconds, or compare `b - a` with `INTERVAL '1 day'`.",
    ),
    (
        &["dateadd", "date_add", "timestampadd", "timestamp_add", "adddate", "date_sub"],
        "Write `a + INTERVAL '1 day'` or `a - INTERVAL '1 day'`.",
    ),
    (&["split", "string_to_array"], "Use `split_part(text, separator, n)`, or the transform `split_fields`."),
    (&["strftime", "format_date", "format_timestamp"], "Use `to_char`."),
    (
        &["parse_date", "parse_timestamp", "strptime", "to_datetime", "timestamp", "datetime", "date"],
        "Use `to_timestamp`, which also takes formats of `strftime`.",
    ),
    (
        &[
            "sha256", "sha2", "sha1", "sha", "md5", "hash", "hmac", "crc32", "xxhash", "xxh3", "digest",
            "encrypt",
        ],
        "Use the transform `hash_text`, with a `secret` for pseudonyms; `redact` hides parts of a text.",
    ),
    (&["format", "sprintf", "printf", "template"], "Join texts with `||`, or use the transform `template`."),
];

/// Returns a sentence on how a function of another language is written here. The name is in lower case.
pub(crate) fn function(name: &str) -> Option<&'static str> {
    FUNCTIONS.iter().find(|(names, _)| names.contains(&name)).map(|(_, sentence)| *sentence)
}

/// Returns a sentence on how an operator of another language, which is a word there, is written here.
pub(crate) fn operator(word: &str) -> Option<&'static str> {
    Some(match word.to_lowercase().as_str() {
        "eq" | "equals" | "is_equal" => "Equality is written `=`.",
        "ne" | "neq" => "Inequality is written `<>` or `!=`.",
        "gt" | "greater" | "above" => "Write `a > b`.",
        "ge" | "gte" => "Write `a >= b`.",
        "lt" | "less" | "below" => "Write `a < b`.",
        "le" | "lte" => "Write `a <= b`.",
        "contains" | "includes" => "Write `a LIKE '%text%'`, or `strpos(a, 'text') > 0`.",
        "startswith" | "starts_with" => "Write `starts_with(a, 'text')`.",
        "endswith" | "ends_with" => "Write `ends_with(a, 'text')`.",
        "matches" | "match" | "regex" => "Write `a ~ 'expression'`.",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::is_known;

    #[test]
    fn names_of_other_languages_are_not_ours() {
        let known: Vec<_> =
            FUNCTIONS.iter().flat_map(|(names, _)| *names).filter(|name| is_known(name)).collect();
        assert!(known.is_empty(), "{known:?}");
    }
}
