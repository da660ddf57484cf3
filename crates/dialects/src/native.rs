//! thalweg's own form.

use thalweg_config::{Comments, Diagnostics, Document};

use crate::{Conversion, Converted, Dialect, Environment, Selection};

/// thalweg's own form: only variables are replaced.
#[derive(Debug, Clone, Copy)]
pub struct Native;

impl Dialect for Native {
    fn name(&self) -> &'static str {
        "thalweg"
    }

    /// Always true: the mistakes of an unrecognised document are shown in terms of this form.
    fn recognises(&self, _: &Document) -> bool {
        true
    }

    fn is_native(&self) -> bool {
        true
    }

    fn read(
        &self,
        document: &Document,
        environment: Environment<'_>,
        _: Selection<'_>,
    ) -> Result<Converted, Diagnostics> {
        let mut document = document.clone();
        let (mut mistakes, remarks) = (document.diagnostics(), document.diagnostics());
        document.substitute(environment.variable, &mut mistakes);
        let conversion = Conversion { document, comments: Comments::default(), remarks };
        mistakes.into_result(Converted::whole(conversion))
    }
}
