//! PostgreSQL: rows in the binary format of `COPY`, and the messages of a server. An input chooses the types
//! of the columns, and has rows, each after its length.

use arrow_array::Array;
use thalweg_postgres::fuzzing::{messages, rows};

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "postgres",
    components: &["postgres"],
    longest: 4 << 10,
    words: &[
        "\0\u{1}\0\0\0\u{4}",
        "\0\u{2}",
        "\u{1}{}",
        "\0\u{1}\0\0\0\0\0\0\0\u{1}",
        "d\0\0\0\u{6}",
        "Z\0\0\0\u{5}I",
        "PGCOPY\n",
    ],
    run,
};

/// The most columns.
const COLUMNS: usize = 8;

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    if input.choice(2) == 0 {
        let piece = input.choice(256);
        let is_whole = bounded(1 << 20, || messages(input.0, usize::MAX));
        assert_eq!(messages(input.0, piece), is_whole, "how messages are cut does not matter");
        return;
    }
    let count = input.choice(COLUMNS);
    let Some((kinds, rest)) = input.0.split_at_checked(count) else { return };
    let cut = cut(rest);
    bounded((1 << 20) + 200 * bytes.len(), || {
        let Some((columns, faults)) = rows(kinds, &cut) else { return };
        assert!(columns.num_columns() == count && columns.num_rows() == cut.len() && faults <= cut.len());
        assert!(columns.columns().iter().all(|column| column.len() == cut.len()));
    });
}

/// Returns rows, each after its length.
fn cut(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut rows = Vec::new();
    while let Some((length, rest)) = bytes.split_first() {
        let (row, after) = rest.split_at(usize::from(*length).min(rest.len()));
        rows.push(row);
        bytes = after;
    }
    rows
}
