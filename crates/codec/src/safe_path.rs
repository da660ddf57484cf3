//! Paths that messages decide: none leads out of its folder, and each is one that a file system accepts.
//!
//! All sinks that name files or objects by columns use this rule, so that a message that one of them accepts
//! fits all.

/// The suffix of a file that is being written.
pub const PART: &str = ".part";
/// The text before that suffix if the file was finished before and is continued.
pub const CONTINUED: &str = ".continued";

/// The longest file or folder name, in bytes, that common file systems accept.
const LONGEST_NAME: usize = 255;
/// The longest path, in bytes, that systems accept, with a margin for suffixes.
const LONGEST_PATH: usize = 4000;

/// Checks a name rendered from a message's values, and returns it.
///
/// The name may not lead out of the folder that the configuration names. That folder is `fixed`, the common
/// beginning of all names, up to its last `/`. The name must also be one that the system accepts.
///
/// # Errors
/// The reason for its rejection.
pub fn safe<'a>(rendered: &'a [u8], fixed: &str) -> Result<&'a str, String> {
    let shown = || String::from_utf8_lossy(&rendered[..rendered.len().min(200)]).escape_debug().to_string();
    let Ok(name) = std::str::from_utf8(rendered) else {
        return Err(format!("the file name `{}` is not UTF-8", shown()));
    };
    let root = fixed.rfind('/').map_or(0, |at| at + 1);
    let free = name.get(root..).unwrap_or_default();
    if name.contains('\0') {
        return Err(format!("the file name `{}` holds a NUL byte", shown()));
    }
    if name.len() > LONGEST_PATH {
        return Err(format!("the file name `{}...` is {} bytes long", shown(), name.len()));
    }
    let longest = LONGEST_NAME - CONTINUED.len() - PART.len() - NUMBER_ROOM;
    let mut may_hide = fixed.get(root..).is_some_and(|rest| rest.starts_with('.'));
    for part in free.split('/') {
        match part {
            "" => return Err(format!("the file name `{}` has an empty part", shown())),
            "." | ".." => return Err(format!("the file name `{}` has `{part}` in it", shown())),
            _ if part.starts_with('.') && !may_hide => {
                return Err(format!("the file name `{}` has a part that begins with `.`", shown()));
            }
            _ if part.len() > longest => {
                let length = part.len();
                return Err(format!("the file name `{}...` is {length} bytes long", shown()));
            }
            _ if is_reserved(part) => {
                return Err(format!(
                    "the file name `{}` ends in `{PART}` or `{CONTINUED}`, like that of an unfinished file",
                    shown()
                ));
            }
            _ => {}
        }
        may_hide = false;
    }
    Ok(name)
}

/// True if another file could have this name while it is being written.
pub fn is_reserved(name: &str) -> bool {
    name.ends_with(PART) || name.ends_with(CONTINUED)
}

/// The maximum number of bytes that a number adds to a name.
const NUMBER_ROOM: usize = 11;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_that_leads_out_or_cannot_be_is_refused_with_the_reason() {
        let refused = |name: &[u8]| safe(name, "out/x-").unwrap_err();
        assert_eq!(safe(b"out/x-a/b.jsonl", "out/x-").unwrap(), "out/x-a/b.jsonl");
        assert_eq!(safe(b"../logs/a", "../logs/").unwrap(), "../logs/a");
        assert_eq!(
            refused(b"out/x-/../../etc/passwd"),
            "the file name `out/x-/../../etc/passwd` has `..` in it"
        );
        assert_eq!(refused(b"out/x-/"), "the file name `out/x-/` has an empty part");
        assert_eq!(refused(b"out/x-\0"), "the file name `out/x-\\0` holds a NUL byte");
        assert_eq!(refused(b"out/x-\xff"), "the file name `out/x-\u{fffd}` is not UTF-8");
        assert_eq!(
            refused(b"out/x-a.part"),
            "the file name `out/x-a.part` ends in `.part` or `.continued`, like that of an unfinished file"
        );
        assert!(refused(format!("out/x-{}", "é".repeat(130)).as_bytes()).ends_with("is 262 bytes long"));
        assert_eq!(
            safe(b"out/.jsonl", "out/").unwrap_err(),
            "the file name `out/.jsonl` has a part that begins with `.`"
        );
        assert_eq!(safe(b"out/.a/b", "out/."), Ok("out/.a/b"));
        let hidden = "the file name `out/.a/.b` has a part that begins with `.`";
        assert_eq!(safe(b"out/.a/.b", "out/."), Err(hidden.to_owned()));
        for (name, fixed) in [("/etc/passwd", ""), ("out//abs", "out/"), ("", "")] {
            let expected = format!("the file name `{name}` has an empty part");
            assert_eq!(safe(name.as_bytes(), fixed), Err(expected));
        }
    }

    proptest! {
        #[test]
        fn no_value_leads_out_of_the_folder(value in "[a./\\x00é]{0,12}") {
            if let Ok(name) = safe(format!("out/{value}").as_bytes(), "out/") {
                let mut parts = Path::new(name).components();
                prop_assert_eq!(parts.next(), Some(std::path::Component::Normal("out".as_ref())));
                prop_assert!(parts.clone().next().is_some());
                prop_assert!(parts.all(|part| matches!(part, std::path::Component::Normal(_))));
            }
        }
    }
}
