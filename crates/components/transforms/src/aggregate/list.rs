//! The values themselves, up to a number of them.

use serde::{Deserialize, Serialize};

use crate::scalar::{Scalar, View};

/// The most values of a list.
pub(super) const LONGEST: usize = 10_000;

/// The first values in an order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct List {
    /// The most values.
    most: usize,
    /// The places of messages in the order, and the values.
    values: Vec<(i64, Scalar)>,
    /// The bytes of all texts.
    text: usize,
}

impl List {
    pub(super) fn new(most: usize) -> Self {
        Self { most, values: Vec::new(), text: 0 }
    }

    /// Adds a value behind those whose place is not later. Returns the number of values beyond the most.
    pub(super) fn add(&mut self, value: View<'_>, at: i64) -> u64 {
        let place = self.values.partition_point(|(known, _)| *known <= at);
        if place >= self.most {
            return 1;
        }
        self.text += value.heap();
        self.values.insert(place, (at, value.to_scalar()));
        if self.values.len() <= self.most {
            return 0;
        }
        if let Some((_, last)) = self.values.pop() {
            self.text -= last.view().heap();
        }
        1
    }

    /// Adds the values of another list. Returns the number of values beyond the most.
    pub(super) fn merge(&mut self, other: Self) -> u64 {
        self.values.extend(other.values);
        // Stable, and linear for two sorted lists.
        self.values.sort_by_key(|(at, _)| *at);
        let beyond = self.values.len().saturating_sub(self.most);
        self.values.truncate(self.most);
        self.text = self.texts();
        beyond as u64
    }

    fn texts(&self) -> usize {
        self.values.iter().map(|(_, value)| value.view().heap()).sum()
    }

    /// Returns a JSON array, or NULL if there is no value.
    pub(super) fn result(&self) -> Scalar {
        if self.values.is_empty() {
            return Scalar::Null;
        }
        let mut text = String::with_capacity(self.text + 4 * self.values.len());
        for (_, value) in &self.values {
            text.push(if text.is_empty() { '[' } else { ',' });
            text.push_str(value.to_json().as_deref().unwrap_or("null"));
        }
        text.push(']');
        Scalar::Json(text.into())
    }

    /// The bytes on the heap.
    pub(super) fn heap(&self) -> usize {
        self.values.capacity() * size_of::<(i64, Scalar)>() + self.text
    }

    /// True if it can be used: a state may be damaged.
    pub(super) fn is_valid(&self, most: usize) -> bool {
        self.most == most
            && self.values.len() <= most
            && self.text == self.texts()
            && self.values.is_sorted_by_key(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(most: usize, values: &[(i64, i64)]) -> (List, u64) {
        let mut list = List::new(most);
        let beyond = values.iter().map(|(at, value)| list.add(View::Int(*value), *at)).sum();
        (list, beyond)
    }

    proptest! {
        #[test]
        fn a_list_has_the_first_values_however_it_is_merged(
            values in prop::collection::vec((0..9_i64, 0..99_i64), 0..40),
            most in 1..20_usize,
            is_second in prop::collection::vec(any::<bool>(), 40),
        ) {
            let mut sorted = values.clone();
            sorted.sort_by_key(|(at, _)| *at);
            let (list, beyond) = of(most, &values);
            let found: Vec<i64> = list.values.iter().map(|(at, _)| *at).collect();
            let expected: Vec<i64> = sorted.iter().take(most).map(|(at, _)| *at).collect();
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(beyond as usize, values.len().saturating_sub(most));
            let part = |second: bool| {
                let values = values.iter().zip(&is_second).filter(|(_, is_second)| **is_second == second);
                values.map(|(value, _)| *value).collect::<Vec<_>>()
            };
            let ((mut merged, first), (rest, second)) = (of(most, &part(false)), of(most, &part(true)));
            let beyond = first + second + merged.merge(rest);
            prop_assert_eq!(beyond as usize, values.len().saturating_sub(most));
            prop_assert!(merged.is_valid(most));
            prop_assert_eq!(merged.values.iter().map(|(at, _)| *at).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn a_list_of_one_place_has_the_values_that_come_first_as_json() {
        let mut list = List::new(3);
        assert_eq!(list.result(), Scalar::Null);
        let values = [View::Text("a\""), View::Int(1), View::Json("{\"b\":2}"), View::Bool(true)];
        let beyond: Vec<u64> = values.iter().map(|value| list.add(*value, 0)).collect();
        assert_eq!(beyond, [0, 0, 0, 1]);
        assert_eq!(list.result(), Scalar::Json("[\"a\\\"\",1,{\"b\":2}]".into()));
        let saved = serde_json::to_value(&list).unwrap().to_string();
        let restored: List = serde_json::from_str(&saved).unwrap();
        assert!(restored == list && restored.is_valid(3) && !restored.is_valid(2));
        list.text += 1;
        assert!(!list.is_valid(3));
    }
}
