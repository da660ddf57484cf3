//! Templates of file names, with the names of files in them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use thalweg_engine::testing::file_of;
use thalweg_files::file_template::FileTemplate;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "file_template",
    components: &["rename_file"],
    longest: 2 << 10,
    words: &[
        "{name}",
        "{stem}",
        "{suffix}",
        "{folder}",
        "{mime_suffix}",
        "{{",
        "}}",
        "{date}",
        "{id}",
        "../",
    ],
    run,
};

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let text = input.text_line();
    let name = input.line();
    let mut file = file_of(&OsStr::from_bytes(name).to_string_lossy(), input.0);
    let Ok(template) = text.parse::<FileTemplate>() else { return };
    let rendered =
        bounded((1 << 20) + 100 * bytes.len() * bytes.len().min(64), || template.render(&mut file));
    let plain = !text.contains(['{', '}']);
    assert!(!plain || rendered.is_ok_and(|rendered| *rendered == *text), "a text without braces");
}
