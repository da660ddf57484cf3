//! Names that are numbered where they would occur twice: `status`, `status_2`.

use std::collections::HashMap;

/// The names of fields that are taken.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Each name, with the last number that was tried after it. Without that number, a thousand fields of one
    /// name would try a thousand numbers each.
    taken: HashMap<String, usize>,
}

impl Names {
    /// Marks a name as taken.
    pub(crate) fn take(&mut self, name: &str) {
        self.taken.entry(name.to_owned()).or_insert(1);
    }

    /// Returns the name if it is free, or else the first free one of `NAME_2`, `NAME_3` and so on.
    pub(crate) fn give(&mut self, name: &str) -> String {
        let Some(&tried) = self.taken.get(name) else {
            self.take(name);
            return name.to_owned();
        };
        let mut number = tried + 1;
        let mut numbered = format!("{name}_{number}");
        while self.taken.contains_key(&numbered) {
            number += 1;
            numbered = format!("{name}_{number}");
        }
        self.taken.insert(name.to_owned(), number);
        self.take(&numbered);
        numbered
    }
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn each_name_is_given_once() {
        let mut names = Names::default();
        names.take("b");
        let given = ["a", "a", "a_2", "a", "b", "a_2"].map(|name| names.give(name));
        assert_eq!(given, ["a", "a_2", "a_2_2", "a_3", "b_2", "a_2_3"]);
    }

    /// Each name tried all numbers of those before it.
    #[test]
    fn many_equal_names_are_numbered_in_linear_time() {
        let mut names = Names::default();
        let last = (0..200_000).map(|_| names.give("a")).last();
        assert_eq!(last.as_deref(), Some("a_200000"));
    }
}
