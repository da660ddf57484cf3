//! Placeholders of other programs in texts with columns: `%Y-%m-%d` of Vector, `%{[host]}` of Logstash. Here
//! they are plain text, so a file would have that name.

use thalweg_config::Mistake;

/// The letters after `%` that write a part of a point in time.
const PARTS: &str = "YymdHMSjFTGVeBb";
/// Those that begin no escaped byte of a URL, such as `%d0`.
const CERTAIN: &str = "YymHMSjTGV";

/// The end of a placeholder, over which no format of a time reaches.
const END: char = '\0';

/// Returns the remark on an option whose text has a placeholder as another program writes it.
pub fn remark(option: &'static str, text: &str) -> Option<Mistake> {
    let (mut rest, mut literal) = (text, String::new());
    while let Some((before, after)) = rest.split_once('{') {
        literal.push_str(before);
        literal.push(END);
        if let Some(after) = after.strip_prefix('{') {
            rest = after;
            continue;
        }
        let Some((inside, after)) = after.split_once('}') else { break };
        if let Some(help) = of_logstash(inside, before.ends_with('%')) {
            let sign = if before.ends_with('%') { "%" } else { "" };
            let message = format!("`{sign}{{{inside}}}` in `{option}` is the notation of another program.");
            return Some(Mistake::new(option, message).help(help));
        }
        rest = after;
    }
    literal.push_str(rest);
    let format = literal.split(END).find_map(format_in)?;
    let message = format!("`{format}` in `{option}` is plain text: a time is written in braces.");
    Some(Mistake::new(option, message).help(time(format)))
}

/// Returns how a time of this format is written here.
fn time(format: &str) -> String {
    format!(
        "Write `{{time:{format}}}` with the name of the field that has the time, or `{{now:{format}}}` for the \
         current time."
    )
}

/// Returns how a placeholder of Logstash is written here.
fn of_logstash(inside: &str, follows_percent: bool) -> Option<String> {
    if let Some(format) = inside.strip_prefix('+') {
        return Some(time(&strftime(format)));
    }
    let path = inside.strip_prefix('[').and_then(|path| path.strip_suffix(']'));
    let name = path.map(|path| path.replace("][", ".")).or(follows_percent.then(|| inside.to_owned()))?;
    Some(format!("Write `{{{name}}}`."))
}

/// Returns a format of Java, such as `YYYY.MM.dd`, in the notation of strftime.
fn strftime(format: &str) -> String {
    const WORDS: [(&str, &str); 11] = [
        ("YYYY", "%Y"),
        ("yyyy", "%Y"),
        ("xxxx", "%G"),
        ("DDD", "%j"),
        ("YY", "%y"),
        ("yy", "%y"),
        ("MM", "%m"),
        ("dd", "%d"),
        ("HH", "%H"),
        ("mm", "%M"),
        ("ss", "%S"),
    ];
    let (mut rest, mut written) = (format, String::new());
    while let Some(first) = rest.chars().next() {
        let word = WORDS.iter().find_map(|(theirs, ours)| Some((ours, rest.strip_prefix(theirs)?)));
        match word {
            Some((ours, after)) => {
                written.push_str(ours);
                rest = after;
            }
            None => {
                written.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    written
}

/// Returns the part of a text from the first part of a time in the notation of strftime to the last.
fn format_in(text: &str) -> Option<&str> {
    let parts = text.match_indices('%').filter_map(|(at, _)| {
        let letter = text[at + 1..].chars().next().filter(|letter| PARTS.contains(*letter))?;
        Some((at, letter))
    });
    let parts: Vec<(usize, char)> = parts.collect();
    if !parts.iter().any(|(_, letter)| CERTAIN.contains(*letter)) {
        return None;
    }
    let ((first, _), (last, _)) = (parts.first()?, parts.last()?);
    text.get(*first..last + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Option<(String, String)> {
        let Mistake { message, help, .. } = remark("path", text)?;
        Some((message, help.unwrap_or_default()))
    }

    #[test]
    fn placeholders_of_other_programs_are_told_with_ours() {
        let time = |format: &str| {
            format!(
                "Write `{{time:{format}}}` with the name of the field that has the time, or `{{now:{format}}}` for \
                 the current time."
            )
        };
        for (text, message, help) in [
            (
                "out/log-%Y-%m-%d.log",
                "`%Y-%m-%d` in `path` is plain text: a time is written in braces.",
                time("%Y-%m-%d"),
            ),
            (
                "{host}/%Y/%H.log",
                "`%Y/%H` in `path` is plain text: a time is written in braces.",
                time("%Y/%H"),
            ),
            (
                "logs-%{+YYYY.MM.dd}",
                "`%{+YYYY.MM.dd}` in `path` is the notation of another program.",
                time("%Y.%m.%d"),
            ),
            (
                "out/%{[host]}.log",
                "`%{[host]}` in `path` is the notation of another program.",
                "Write `{host}`.".to_owned(),
            ),
            (
                "{[agent][name]}",
                "`{[agent][name]}` in `path` is the notation of another program.",
                "Write `{agent.name}`.".to_owned(),
            ),
            (
                "a-%{host}",
                "`%{host}` in `path` is the notation of another program.",
                "Write `{host}`.".to_owned(),
            ),
        ] {
            assert_eq!(said(text), Some((message.to_owned(), help)), "{text}");
        }
    }

    #[test]
    fn our_own_placeholders_and_escaped_bytes_have_no_remark() {
        for text in
            ["out/{time:%Y-%m-%d}.log", "a%20b", "%d0%be", "100%", "{host}%", "{{%", "", "{", "%é", "a%{{b}}"]
        {
            assert_eq!(said(text), None, "{text}");
        }
    }
}
