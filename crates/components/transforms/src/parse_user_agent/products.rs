//! The content of a user agent: products with versions, and comments in parentheses (RFC 9110, section
//! 10.1.5).

/// A product, its version, and the parts of the comment after it.
#[derive(Debug, Default, PartialEq)]
struct Product<'a> {
    name: &'a str,
    version: Option<&'a str>,
    comment: Vec<&'a str>,
}

/// The products of a user agent.
#[derive(Debug)]
pub(super) struct Products<'a>(Vec<Product<'a>>);

impl<'a> Products<'a> {
    /// Parses a text. Any text is accepted: parts that do not fit the grammar are skipped.
    pub(super) fn of(text: &'a str) -> Self {
        let mut products: Vec<Product<'a>> = Vec::new();
        let mut rest = text.trim_ascii_start();
        while let Some(first) = rest.chars().next() {
            let end = match first {
                '(' => {
                    let (comment, end) = enclosed(rest, '(', ')');
                    let parts = comment.split(';').map(str::trim).filter(|part| !part.is_empty());
                    match products.last_mut() {
                        Some(product) => product.comment.extend(parts),
                        None => products.push(Product { comment: parts.collect(), ..Product::default() }),
                    }
                    end
                }
                // Some vendors' applications add a part in brackets.
                '[' => enclosed(rest, '[', ']').1,
                _ => {
                    let end = rest.find([' ', '\t', '(']).unwrap_or(rest.len());
                    let token = rest.get(..end).unwrap_or_default();
                    let (name, version) = match token.split_once('/') {
                        Some((name, version)) => (name, Some(version).filter(|version| !version.is_empty())),
                        None => (token, None),
                    };
                    products.push(Product { name, version, comment: Vec::new() });
                    end
                }
            };
            rest = rest.get(end..).unwrap_or_default().trim_ascii_start();
        }
        Self(products)
    }

    fn named(&self, name: &str) -> Option<&Product<'a>> {
        self.0.iter().find(|product| product.name == name)
    }

    /// Returns the first comment, which says most about the system.
    fn comment(&self) -> &[&'a str] {
        self.0.first().map(|product| product.comment.as_slice()).unwrap_or_default()
    }

    /// Returns the first product and its version.
    pub(super) fn first(&self) -> Option<(&'a str, Option<&'a str>)> {
        let first = self.0.first()?;
        (!first.name.is_empty()).then_some((first.name, first.version))
    }

    /// Returns the version of Mozilla that the user agent claims to be.
    pub(super) fn mozilla(&self) -> Option<&'a str> {
        self.0.first().filter(|product| product.name == "Mozilla")?.version
    }

    /// Returns the platform: usually the first part of the comment.
    pub(super) fn platform(&self) -> Option<&'a str> {
        const FAMILIES: [&str; 3] = ["Windows", "Symbian", "webOS"];
        let comment = self.comment();
        let family = |part: &str| FAMILIES.into_iter().find(|family| part.starts_with(family));
        match *comment.first()? {
            // Old user agents wrote `compatible` first, and the platform later.
            "compatible" => comment.iter().find_map(|part| family(part)),
            "BB10" => Some("BlackBerry"),
            first if first.starts_with('+') || first.contains("://") => None,
            first => family(first).or(Some(first)),
        }
    }

    /// Returns the operating system as it is written. Versions of Windows get their common names.
    pub(super) fn os(&self) -> Option<String> {
        let comment = self.comment();
        let first = *comment.first()?;
        // `Windows` alone may come before `Windows NT 5.1`.
        if let Some(part) =
            comment.iter().filter(|part| part.starts_with("Windows")).max_by_key(|part| part.len())
        {
            return Some(windows(part).unwrap_or(part).to_owned());
        }
        if first.starts_with("Android") {
            return Some(first.to_owned());
        }
        if matches!(first, "Mobile" | "Tablet") && self.named("Firefox").is_some() {
            return Some("FirefoxOS".to_owned());
        }
        self.platform()?;
        let says_nothing = |part: &str| {
            matches!(part, "U" | "I" | "N" | "compatible" | "Mobile" | "Tablet" | "arm_64" | "wv")
                || part.starts_with("rv:")
                || part.contains("://")
                || is_language(part)
        };
        comment.iter().skip(1).find(|part| !says_nothing(part)).map(|part| (*part).to_owned())
    }

    /// Returns the language, if there is one: `en`, `en-US`.
    pub(super) fn language(&self) -> Option<&'a str> {
        self.comment().iter().skip(1).copied().find(|part| is_language(part))
    }

    /// Returns the rendering engine and its version.
    pub(super) fn engine(&self) -> Option<(&'a str, Option<&'a str>)> {
        let comment = self.comment();
        if let Some(version) = comment.iter().find_map(|part| part.strip_prefix("Trident/")) {
            return Some(("Trident", Some(version)));
        }
        if comment.iter().any(|part| part.starts_with("MSIE ")) {
            return Some(("Trident", None));
        }
        if let Some(edge) = self.named("Edge") {
            return Some(("EdgeHTML", edge.version));
        }
        let engines = ["AppleWebKit", "Presto", "Goanna", "Gecko"].into_iter();
        let product =
            engines.filter_map(|name| self.named(name)).find(|product| product.version.is_some())?;
        Some((product.name, product.version))
    }

    /// True if a name is that of a crawler.
    pub(super) fn is_bot(&self) -> bool {
        let names = self.0.iter().map(|product| product.name).chain(self.comment().iter().copied());
        names.filter(|name| !name.contains("://")).any(|name| {
            let name = name.split('/').next().unwrap_or(name).to_ascii_lowercase();
            ["bot", "crawler", "spider"]
                .iter()
                .any(|word| name.ends_with(word) || name.contains(&format!("{word}-")))
        })
    }

    /// True if the text names a mobile device.
    pub(super) fn is_mobile(&self) -> bool {
        self.named("Mobile").is_some()
            || self
                .comment()
                .iter()
                .any(|part| matches!(*part, "Mobile" | "Tablet") || part.starts_with("IEMobile"))
    }
}

/// Returns the text between a pair of brackets at the beginning of `text`, which may contain further pairs,
/// and the end of the pair.
fn enclosed(text: &str, open: char, close: char) -> (&str, usize) {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        if c == open {
            depth += 1;
        } else if c == close {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                return (text.get(1..at).unwrap_or_default(), at + 1);
            }
        }
    }
    (text.get(1..).unwrap_or_default(), text.len())
}

/// True for a language, perhaps with a region: `de`, `pt-BR`, `zh_cn`.
fn is_language(part: &str) -> bool {
    let (language, region) = match part.split_once(['-', '_']) {
        Some((language, region)) => (language, Some(region)),
        None => (part, None),
    };
    let is_letters = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_alphabetic());
    let is_lower = language.bytes().all(|byte| byte.is_ascii_lowercase());
    is_letters(language) && is_lower && language != "wv" && region.is_none_or(is_letters)
}

/// Returns the common name of a version of Windows.
fn windows(part: &str) -> Option<&'static str> {
    Some(match part.strip_prefix("Windows NT ")? {
        "5.0" => "Windows 2000",
        "5.01" => "Windows 2000, Service Pack 1 (SP1)",
        "5.1" => "Windows XP",
        "5.2" => "Windows XP x64 Edition",
        "6.0" => "Windows Vista",
        "6.1" => "Windows 7",
        "6.2" => "Windows 8",
        "6.3" => "Windows 8.1",
        "10.0" => "Windows 10",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn products_have_versions_and_comments() {
        let products = Products::of("a/1 (x; y (z); ) b [c/2] d/ (e");
        let product =
            |name, version, comment: &[&'static str]| Product { name, version, comment: comment.to_vec() };
        assert_eq!(
            products.0,
            [product("a", Some("1"), &["x", "y (z)"]), product("b", None, &[]), product("d", None, &["e"])]
        );
        assert_eq!(Products::of(" (x) y").first(), None);
    }

    #[test]
    fn systems_are_told_apart() {
        let parsed = |text: &str| {
            let products = Products::of(text);
            let text = |found: Option<&str>| found.unwrap_or("-").to_owned();
            format!(
                "{} | {} | {}",
                text(products.platform()),
                text(products.os().as_deref()),
                text(products.language())
            )
        };
        for (agent, expected) in [
            (
                "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15",
                "Macintosh | Intel Mac OS X 10_15_7 | -",
            ),
            ("Mozilla/5.0 (Windows; U; Windows NT 5.1; de; rv:1.9) Gecko/2008", "Windows | Windows XP | de"),
            ("Mozilla/4.0 (compatible; MSIE 8.0; Windows NT 6.1; Trident/4.0)", "Windows | Windows 7 | -"),
            (
                "Mozilla/5.0 (Android 13; Mobile; rv:109.0) Gecko/109.0 Firefox/118.0",
                "Android 13 | Android 13 | -",
            ),
            ("Mozilla/5.0 (Mobile; rv:26.0) Gecko/26.0 Firefox/26.0", "Mobile | FirefoxOS | -"),
            ("Mozilla/5.0 (Linux; Android 7.0; SM-G892A; wv) AppleWebKit/537.36", "Linux | Android 7.0 | -"),
            ("Opera/9.80 (X11; Linux i686; U; en-GB) Presto/2.7", "X11 | Linux i686 | en-GB"),
            ("curl/8.0", "- | - | -"),
            ("bot/1 (+https://example.org)", "- | - | -"),
        ] {
            assert_eq!(parsed(agent), expected, "{agent}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[()\\[\\];/ aé.1+-]{0,40}") {
            let products = Products::of(&text);
            let _ = (products.os(), products.platform(), products.language(), products.engine(), products.mozilla());
            let _ = (products.is_bot(), products.is_mobile(), products.first());
        }
    }
}
