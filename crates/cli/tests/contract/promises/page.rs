//! The sentences and table rows of a page in Markdown.

/// Returns the sentences and table rows of a page in Markdown, with single spaces. Headings and the heads of
/// tables promise nothing.
pub(super) fn promises_of(page: &str) -> Vec<String> {
    let (mut found, mut paragraph, mut row) = (Vec::new(), String::new(), 0);
    for line in page.lines().map(str::trim).chain([""]) {
        row = if line.starts_with('|') { row + 1 } else { 0 };
        let item = line.strip_prefix("- ");
        let ends = line.is_empty() || line.starts_with('#') || row > 0 || item.is_some();
        if ends {
            found.extend(sentences(&std::mem::take(&mut paragraph)));
        }
        // The first two rows are the head of the table and a rule.
        if row > 2 {
            found.push(line.to_owned());
        } else if row == 0 && !line.starts_with('#') {
            paragraph = format!("{paragraph} {}", item.unwrap_or(line));
        }
    }
    found
}

/// Divides a text at each full stop before a space and the start of a sentence.
fn sentences(text: &str) -> Vec<String> {
    let (mut found, mut sentence) = (Vec::new(), String::new());
    for word in text.split_whitespace() {
        let is_end = sentence.trim_end_matches("**").ends_with('.');
        let is_start = word.starts_with(|first: char| first.is_ascii_uppercase() || "`\"*".contains(first));
        if is_end && is_start {
            found.push(std::mem::take(&mut sentence));
        }
        if !sentence.is_empty() {
            sentence.push(' ');
        }
        sentence += word;
    }
    found.extend((!sentence.is_empty()).then_some(sentence));
    found
}

#[test]
fn sentences_and_rows_are_told_apart() {
    let page = "# A page\n\nOne `a.b` is\n0.1 s. **Two.** Three (a...) goes on:\n\n- four;\n- five.\n\n\
                | head | b |\n| --- | --- |\n| six. Seven. | 8 |\n\n## End\n\"Nine\" is last.\n";
    let expected = [
        "One `a.b` is 0.1 s.",
        "**Two.**",
        "Three (a...) goes on:",
        "four;",
        "five.",
        "| six. Seven. | 8 |",
        "\"Nine\" is last.",
    ];
    assert_eq!(promises_of(page), expected);
}
