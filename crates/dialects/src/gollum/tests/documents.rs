//! Whole files: those that gollum's performance was measured with, and graphs of all sorts.

use super::*;

macro_rules! measured {
    ($($name:ident $file:literal)*) => {$(
        #[test]
        fn $name() {
            assert_snapshot!(converted(include_str!(concat!("../../../../../bench/gollum/", $file, ".conf"))));
        }
    )*};
}

measured! {
    v060_json "v060-json"
    v050_raw "v050-raw"
    v050_format "v050-format"
    v050_multi "v050-multi"
    v050_json "v050-json"
    v046_raw "v046-raw"
    v046_format "v046-format"
    v046_multi "v046-multi"
    v046_json "v046-json"
}
