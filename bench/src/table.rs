//! Tables of figures: for each case one line per contender. A table is printed as text. If `THALWEG_SEEDS` is
//! the path of a folder, it is also saved there as JSON, from which `tools/seeds.py` writes `docs/seeds.md`
//! and draws the plots. Raw figures stay in the repository with the machine that they were measured on, so a
//! later run can be compared with them. Drawing in this program was rejected: the tables of the Python
//! package need the same plots.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::report::grouped;

/// The variable with the folder in which tables are saved.
const FOLDER: &str = "THALWEG_SEEDS";

/// A table of one of the seeds.
pub struct Table {
    seed: &'static str,
    name: &'static str,
    title: String,
    /// The meaning of the first column, such as `block size, bytes`.
    case: &'static str,
    columns: Vec<&'static str>,
    rows: Vec<Row>,
    /// The columns that are drawn as bars.
    plots: Vec<&'static str>,
    notes: Vec<String>,
}

struct Row {
    case: String,
    contender: String,
    figures: Vec<Option<f64>>,
}

impl Table {
    /// Creates an empty table. `seed` is the name of the system, `name` that of the table in file names.
    pub fn new(
        seed: &'static str,
        name: &'static str,
        title: impl Into<String>,
        case: &'static str,
        columns: &[&'static str],
    ) -> Self {
        Self {
            seed,
            name,
            title: title.into(),
            case,
            columns: columns.to_vec(),
            rows: Vec::new(),
            plots: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds the line of a contender. `None` is a figure that the contender does not have.
    pub fn row(&mut self, case: impl Into<String>, contender: &str, figures: &[Option<f64>]) {
        self.rows.push(Row { case: case.into(), contender: contender.to_owned(), figures: figures.to_vec() });
    }

    /// Adds a plot of a column: a group of bars for each case, on a logarithmic scale.
    pub fn plot(&mut self, column: &'static str) {
        self.plots.push(column);
    }

    /// Adds a remark below the table.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Prints the table, and saves it if a folder is named.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn finish(self) -> Result<(), String> {
        println!("{}", self.text());
        let Some(folder) = std::env::var_os(FOLDER) else { return Ok(()) };
        let path = Path::new(&folder).join(format!("{}-{}.json", self.seed, self.name));
        let mut text = format!("{:#}", self.json(&Machine::here()));
        text.push('\n');
        std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|error| format!("`{}` cannot be written: {error}", path.display()))
    }

    fn text(&self) -> String {
        let widths: Vec<usize> = self.columns.iter().map(|column| column.len().max(12) + 2).collect();
        let mut text = format!("{}\n\n  {:<44}", self.title, self.case);
        for (column, width) in self.columns.iter().zip(&widths) {
            text.push_str(&format!("{column:>width$}"));
        }
        let mut case = None;
        for row in &self.rows {
            if case != Some(&row.case) {
                text.push_str(&format!("\n  {}", row.case));
                case = Some(&row.case);
            }
            text.push_str(&format!("\n    {:<42}", row.contender));
            for (figure, width) in row.figures.iter().zip(&widths) {
                let figure = figure.map_or_else(|| "-".to_owned(), shown);
                text.push_str(&format!("{figure:>width$}"));
            }
        }
        text.push('\n');
        for note in &self.notes {
            text.push_str(&format!("  {note}\n"));
        }
        text
    }

    fn json(&self, machine: &Machine) -> Value {
        let rows = self
            .rows
            .iter()
            .map(|row| json!({ "case": row.case, "contender": row.contender, "figures": row.figures }));
        let plots = self.plots.iter().map(|column| json!({ "column": column, "shape": "bars" }));
        json!({
            "seed": self.seed,
            "name": self.name,
            "title": self.title,
            "case": self.case,
            "columns": self.columns,
            "rows": rows.collect::<Vec<_>>(),
            "plots": plots.collect::<Vec<_>>(),
            "notes": self.notes,
            "machine": { "processor": machine.processor, "cores": machine.cores, "kernel": machine.kernel },
            "measured": machine.time,
        })
    }
}

/// Formats a figure with three significant digits, or with all digits before the point.
fn shown(figure: f64) -> String {
    match figure.abs() {
        size if size >= 100.0 || size == 0.0 => grouped(figure),
        size if size >= 10.0 => format!("{figure:.1}"),
        size if size >= 0.1 => format!("{figure:.2}"),
        _ => format!("{figure:.2e}"),
    }
}

/// The machine and the time of a measurement.
struct Machine {
    processor: String,
    cores: usize,
    kernel: String,
    /// Seconds since 1970.
    time: u64,
}

impl Machine {
    fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let processors = read("/proc/cpuinfo");
        let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
        Self {
            processor: model.unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new("gollum", "history", "Title", "test", &["messages/s", "user, s"]);
        table.row("raw", "thalweg", &[Some(71_000_000.4), Some(0.25)]);
        table.row("raw", "gollum", &[None, Some(12.34)]);
        table.plot("messages/s");
        table.note("A note.");
        table
    }

    #[test]
    fn contenders_stand_below_their_case_with_a_dash_for_a_missing_figure() {
        let text = table().text();
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(lines[0], "Title");
        assert_eq!(lines[3], "  raw");
        assert_eq!(lines[4].split_whitespace().collect::<Vec<_>>(), ["thalweg", "71,000,000", "0.25"]);
        assert_eq!(lines[5].split_whitespace().collect::<Vec<_>>(), ["gollum", "-", "12.3"]);
        assert_eq!(lines[6], "  A note.");
    }

    #[test]
    fn figures_keep_their_sign() {
        assert_eq!(
            [shown(-168.4), shown(-1_234.0), shown(-82.6), shown(0.0)],
            ["-168", "-1,234", "-82.6", "0"]
        );
    }

    #[test]
    fn a_saved_table_has_all_figures_and_its_machine() {
        let machine =
            Machine { processor: "Xeon".to_owned(), cores: 2, kernel: "6.1".to_owned(), time: 1_700_000_000 };
        let saved = table().json(&machine);
        assert_eq!(
            saved["rows"][1],
            json!({ "case": "raw", "contender": "gollum", "figures": [null, 12.34] })
        );
        assert_eq!(saved["plots"][0], json!({ "column": "messages/s", "shape": "bars" }));
        assert_eq!(saved["machine"]["cores"], 2);
    }
}
