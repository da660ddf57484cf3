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

/// Like [`options`], for tests of rejected options: returns the mistakes as a user would see them.
///
/// # Errors
/// The mistakes.
pub fn try_options<C: serde::de::DeserializeOwned + schemars::JsonSchema>(yaml: &str) -> Result<C, String> {
    let document = crate::Document::parse("test.yaml", yaml).map_err(|d| d.render(false))?;
    let mut diagnostics = crate::Diagnostics::new("test.yaml", yaml);
    crate::decode(document.root(), &mut diagnostics).ok_or_else(|| diagnostics.render(false))
}
