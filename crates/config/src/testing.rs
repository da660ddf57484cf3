//! For tests: options as a user writes them.

/// Reads a component's options as written in a configuration (the part after `name:`), in YAML.
///
/// # Panics
/// With the rendered mistakes, if there are any.
pub fn options<C: serde::de::DeserializeOwned + schemars::JsonSchema>(yaml: &str) -> C {
    match try_options(yaml) {
        Ok(config) => config,
        Err(mistakes) => panic!("{mistakes}"),
    }
}

/// Reads options as [`options`] does, and returns the rendered mistakes of invalid ones.
///
/// # Errors
/// The mistakes.
pub fn try_options<C: serde::de::DeserializeOwned + schemars::JsonSchema>(yaml: &str) -> Result<C, String> {
    let document = crate::Document::parse("test.yaml", yaml).map_err(|d| d.render(false))?;
    let mut diagnostics = crate::Diagnostics::new("test.yaml", yaml);
    crate::decode(document.root(), &mut diagnostics).ok_or_else(|| diagnostics.render(false))
}

/// Returns the mistakes of invalid options, one line each: the message and the help.
///
/// # Panics
/// If the options are valid.
pub fn refused<C: serde::de::DeserializeOwned + schemars::JsonSchema>(yaml: &str) -> String {
    let document = crate::Document::parse("test.yaml", yaml).expect("valid YAML");
    let mut diagnostics = crate::Diagnostics::new("test.yaml", yaml);
    let decoded: Option<C> = crate::decode(document.root(), &mut diagnostics);
    assert!(decoded.is_none(), "the options are valid: {yaml}");
    let line = |mistake: &crate::Diagnostic| match &mistake.help {
        Some(help) => format!("{} {help}", mistake.message),
        None => mistake.message.clone(),
    };
    diagnostics.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the messages of what a check found, to be compared with a list.
pub fn messages(mistakes: impl IntoIterator<Item = crate::Mistake>) -> Vec<String> {
    mistakes.into_iter().map(|mistake| mistake.message).collect()
}
