//! Numbers: the numeric value of a node, and the bounds of a schema.

use std::cmp::Ordering;

use serde_json::Value as Json;

use super::schema::Layers;
use super::wording::subject;
use super::{Checker, Context, Found};
use crate::{Diagnostic, Node, Value, scalar};

/// A keyword that bounds numbers, the comparison with the bound that violates it, and its words in a message.
type Bound = (&'static str, fn(Ordering) -> bool, &'static str);

const BOUNDS: [Bound; 4] = [
    ("minimum", Ordering::is_lt, "at least"),
    ("exclusiveMinimum", Ordering::is_le, "more than"),
    ("maximum", Ordering::is_gt, "at most"),
    ("exclusiveMaximum", Ordering::is_ge, "less than"),
];

/// A number. A whole number keeps all its digits.
pub(super) enum Number {
    Whole(i128),
    Fraction(f64),
}

impl Number {
    /// Compares this number with a number of a schema.
    pub(super) fn partial_cmp(&self, bound: &Json) -> Option<Ordering> {
        let bound = bound.as_number()?;
        let exact = bound.as_i128();
        match (self, exact) {
            (Self::Whole(value), Some(bound)) => Some(value.cmp(&bound)),
            (Self::Whole(value), None) => (*value as f64).partial_cmp(&bound.as_f64()?),
            (Self::Fraction(value), _) => value.partial_cmp(&bound.as_f64()?),
        }
    }
}

/// Returns the number that a node holds, or that its text spells.
pub(super) fn number(node: &Node) -> Option<Number> {
    let typed;
    let (value, text) = match &node.value {
        Value::String(text) => {
            typed = scalar::number(text.trim())?;
            (&typed, Some(text.trim()))
        }
        value => (value, node.raw.as_deref()),
    };
    match value {
        Value::Integer(value) => Some(Number::Whole((*value).into())),
        Value::Float(value) => Some(match text.and_then(|text| text.parse().ok()) {
            Some(whole) => Number::Whole(whole),
            // A float holds every whole number up to 2^53. `1e6` is one of them.
            None if value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0 => {
                Number::Whole(*value as i128)
            }
            None => Number::Fraction(*value),
        }),
        _ => None,
    }
}

impl<'s> Checker<'s> {
    /// Checks the bounds of a number.
    pub(super) fn number(
        &self,
        node: &Node,
        number: &Number,
        layers: &Layers<'s>,
        context: &Context<'_>,
        mistakes: &mut Found,
    ) {
        let name = subject(context);
        let mut wrong = |message: String| mistakes.push(Diagnostic::new(node.span, message));
        let bound = |keyword: &str| layers.iter().find_map(|layer| layer.get(keyword));
        for (keyword, is_broken, words) in BOUNDS {
            if let Some(bound) = bound(keyword)
                && number.partial_cmp(bound).is_some_and(is_broken)
            {
                return wrong(format!(
                    "{name} must be {words} {bound}, but it is {}.",
                    self.shown(node, context)
                ));
            }
        }
        let format = bound("format").and_then(Json::as_str).unwrap_or("");
        let (least, most): (i128, i128) = match format {
            "int8" => (i8::MIN.into(), i8::MAX.into()),
            "int16" => (i16::MIN.into(), i16::MAX.into()),
            "int32" => (i32::MIN.into(), i32::MAX.into()),
            "int64" | "int" => (i64::MIN.into(), i64::MAX.into()),
            "uint8" => (0, u8::MAX.into()),
            "uint16" => (0, u16::MAX.into()),
            "uint32" => (0, u32::MAX.into()),
            "uint64" | "uint" => (0, u64::MAX.into()),
            _ => return,
        };
        let fits = match number {
            Number::Whole(value) => (least..=most).contains(value),
            // A number beyond 128 bits, or a fraction. `fit` has already checked the type.
            Number::Fraction(value) => (least as f64..=most as f64).contains(value),
        };
        if !fits {
            wrong(format!("{name} must be from {least} to {most}, but it is {}.", self.shown(node, context)));
        }
    }
}
