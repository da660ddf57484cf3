//! Files of passwords. Hashes are only parsed, as bcrypt is slow by design.

use thalweg_net::web::htpasswd::{Htpasswd, credentials};

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "htpasswd",
    components: &[],
    longest: 8 << 10,
    words: &["a:$2y$05$", "a:$apr1$salt$", "a:{SHA}", "#", ":"],
    run,
};

fn run(bytes: &[u8]) {
    let text = Input(bytes).text();
    if let Err((line, _)) = bounded((1 << 20) + 500 * bytes.len(), || Htpasswd::parse(text)) {
        assert!((1..=text.lines().count()).contains(&line), "line {line} of {text:?}");
    }
    credentials(bytes);
}
