//! Which clauses of the contract hold for which component.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::io;
use std::path::Path;

/// The result of a clause for a component.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cell {
    /// How often it held.
    pub held: u64,
    /// How often it did not, as is known.
    pub known: u64,
    /// How often it did not.
    pub broken: u64,
    /// How often it could not be tested: the point was never passed.
    pub unreached: u64,
}

impl Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.held, self.known, self.broken) {
            (0, 0, 0) => write!(f, "-"),
            (held, 0, 0) => write!(f, "{held}"),
            (held, known, 0) => write!(f, "{held} ({known} known holes)"),
            (held, _, broken) => write!(f, "{held} ({broken} BROKEN)"),
        }
    }
}

/// A table of cases and clauses, in Markdown.
#[derive(Debug, Clone, Default)]
pub struct Table {
    cells: BTreeMap<(String, String), Cell>,
}

impl Table {
    /// Returns the cell of a case and a clause.
    pub fn cell(&mut self, case: &str, clause: &str) -> &mut Cell {
        self.cells.entry((case.to_owned(), clause.to_owned())).or_default()
    }

    /// Writes it to a file, whose folder is made.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, self.to_string())
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut clauses: Vec<&String> = self.cells.keys().map(|(_, clause)| clause).collect();
        clauses.sort();
        clauses.dedup();
        let mut cases: Vec<&String> = self.cells.keys().map(|(case, _)| case).collect();
        cases.dedup();
        write!(f, "| case |")?;
        clauses.iter().try_for_each(|clause| write!(f, " {clause} |"))?;
        write!(f, "\n| --- |")?;
        clauses.iter().try_for_each(|_| write!(f, " --- |"))?;
        for case in cases {
            write!(f, "\n| {case} |")?;
            for clause in &clauses {
                match self.cells.get(&(case.clone(), (*clause).clone())) {
                    Some(cell) => write!(f, " {cell} |")?,
                    None => write!(f, " |")?,
                }
            }
        }
        writeln!(f)
    }
}
