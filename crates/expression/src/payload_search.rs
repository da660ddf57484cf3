//! Searches the payload for a literal without converting it to text.
//!
//! `payload LIKE '%error%'` is the most common condition. Evaluated plainly, every payload is validated as
//! UTF-8, copied to a text column, and searched separately. Instead, [`recognise`] finds such conditions in
//! the planned expression and replaces them with a function of the payload's bytes.
//!
//! The payloads of a batch are usually lines of one block, in order. The whole span of the block is therefore
//! searched in one pass, at memory speed. Each hit is then mapped to its row by advancing through the views.
//! A hit that crosses a row boundary does not count. Rows of up to twelve bytes are stored in their views and
//! searched there. They also exist in the block between other rows, but their position there is unknown.
//!
//! The result is the same for bytes and for text. In the text, bytes that are not UTF-8 become U+FFFD. A
//! literal without that character neither loses nor gains a hit: it begins with the first byte of a
//! character, which ends any broken sequence before it, and it ends with the last byte of a character.

use arrow_array::{Array, BinaryViewArray, BooleanArray, cast::AsArray};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use arrow_schema::DataType;
use datafusion_common::{Column, DataFusionError, Result, ScalarValue, utils::take_function_args};
use datafusion_expr::{
    BinaryExpr, ColumnarValue, Expr, Like, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, expr::ScalarFunction,
};
use memchr::memmem::Finder;
use thalweg_record::PAYLOAD;

/// The column through which a plan reads the payload as bytes. The NUL in its name avoids a collision with a
/// field.
pub(crate) const PAYLOAD_BYTES: &str = "payload\u{0}bytes";

/// Values of up to this many bytes are stored in their view.
const INLINE: usize = 12;

/// The required position of the literal in a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Anchor {
    Anywhere,
    Start,
    End,
    Whole,
}

/// The function that replaces a recognised condition.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Search {
    place: Anchor,
    literal: Vec<u8>,
    signature: Signature,
}

/// Returns the search that is equivalent to a condition on the column `payload`, if there is one.
pub(crate) fn recognise(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Like(like) => of_like(like),
        Expr::ScalarFunction(call) => of_call(call),
        Expr::BinaryExpr(binary) => of_comparison(binary),
        _ => None,
    }
}

fn of_like(Like { negated, expr, pattern, escape_char, case_insensitive }: &Like) -> Option<Expr> {
    if *case_insensitive || escape_char.is_some() || !is_payload(expr) {
        return None;
    }
    let pattern = text(pattern)?;
    let (place, literal) = match (pattern.strip_prefix('%'), pattern.strip_suffix('%')) {
        (Some(_), Some(_)) => (Anchor::Anywhere, pattern.get(1..pattern.len().checked_sub(1)?)?),
        (None, Some(start)) => (Anchor::Start, start),
        (Some(end), None) => (Anchor::End, end),
        (None, None) => (Anchor::Whole, pattern),
    };
    if literal.contains(['%', '_', '\\']) {
        return None;
    }
    let found = search(place, literal)?;
    Some(if *negated { Expr::Not(found.into()) } else { found })
}

fn of_call(call: &ScalarFunction) -> Option<Expr> {
    let place = match call.name() {
        "contains" => Anchor::Anywhere,
        "starts_with" => Anchor::Start,
        "ends_with" => Anchor::End,
        _ => return None,
    };
    match call.args.as_slice() {
        [of, literal] if is_payload(of) => search(place, text(literal)?),
        _ => None,
    }
}

fn of_comparison(BinaryExpr { left, op, right }: &BinaryExpr) -> Option<Expr> {
    if matches!(op, Operator::Eq | Operator::NotEq) {
        let literal = match (is_payload(left), is_payload(right)) {
            (true, false) => text(right),
            (false, true) => text(left),
            _ => None,
        };
        if let Some(literal) = literal {
            let found = search(Anchor::Whole, literal)?;
            return Some(if *op == Operator::NotEq { Expr::Not(found.into()) } else { found });
        }
    }
    // `strpos(payload, 'x') > 0`, and equivalent comparisons.
    let Expr::ScalarFunction(call) = left.as_ref() else { return None };
    let Expr::Literal(ScalarValue::Int64(Some(bound)), _) = right.as_ref() else { return None };
    let found = match (op, bound) {
        (Operator::Gt | Operator::NotEq, 0) | (Operator::GtEq, 1) => true,
        (Operator::Eq | Operator::LtEq, 0) | (Operator::Lt, 1) => false,
        _ => return None,
    };
    match call.args.as_slice() {
        [of, literal] if call.name() == "strpos" && is_payload(of) => {
            let search = search(Anchor::Anywhere, text(literal)?)?;
            Some(if found { search } else { Expr::Not(search.into()) })
        }
        _ => None,
    }
}

fn is_payload(expr: &Expr) -> bool {
    matches!(expr, Expr::Column(column) if column.name == PAYLOAD)
}

fn text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

/// Returns the search function for a literal. The plain evaluation handles the empty literal and U+FFFD,
/// which may represent other bytes.
fn search(place: Anchor, literal: &str) -> Option<Expr> {
    if literal.is_empty() || literal.contains('\u{fffd}') {
        return None;
    }
    let function = ScalarUDF::from(Search {
        place,
        literal: literal.as_bytes().to_vec(),
        signature: Signature::exact(vec![DataType::BinaryView], Volatility::Immutable),
    });
    let payload = Expr::Column(Column::new_unqualified(PAYLOAD_BYTES));
    Some(Expr::ScalarFunction(ScalarFunction::new_udf(function.into(), vec![payload])))
}

impl ScalarUDFImpl for Search {
    fn name(&self) -> &str {
        "payload_search"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let [payload] = take_function_args(self.name(), args.args)?;
        let payload = payload.into_array(rows)?;
        let payload = payload
            .as_binary_view_opt()
            .ok_or_else(|| DataFusionError::Execution("the payload is not bytes".to_owned()))?;
        let found = self.run(payload);
        Ok(ColumnarValue::Array(std::sync::Arc::new(BooleanArray::new(found, payload.nulls().cloned()))))
    }
}

impl Search {
    fn run(&self, payload: &BinaryViewArray) -> BooleanBuffer {
        let literal = self.literal.as_slice();
        let each = |test: &dyn Fn(&[u8]) -> bool| {
            BooleanBuffer::collect_bool(payload.len(), |row| test(payload.value(row)))
        };
        match self.place {
            Anchor::Anywhere => contains(payload, literal),
            Anchor::Start => each(&|value| value.starts_with(literal)),
            Anchor::End => each(&|value| value.ends_with(literal)),
            Anchor::Whole => each(&|value| value == literal),
        }
    }
}

/// A decoded view: its length, and the position of its bytes if they are not inline.
#[derive(Clone, Copy)]
struct View {
    length: usize,
    buffer: u32,
    start: usize,
}

impl View {
    #[inline]
    fn of(view: u128) -> Self {
        // The Arrow format: length, first bytes, buffer index and offset, 32 bits each.
        Self {
            length: view as u32 as usize,
            buffer: (view >> 64) as u32,
            start: (view >> 96) as u32 as usize,
        }
    }

    #[inline]
    fn is_inline(self) -> bool {
        self.length <= INLINE
    }

    #[inline]
    fn end(self) -> usize {
        self.start + self.length
    }
}

/// Returns the payloads that contain `literal`, as a bit for each row.
fn contains(payload: &BinaryViewArray, literal: &[u8]) -> BooleanBuffer {
    let views = payload.views();
    let finder = Finder::new(literal);
    let mut found = BooleanBufferBuilder::new(views.len());
    found.append_n(views.len(), false);
    let mut row = 0;
    while row < views.len() {
        row = search_run(payload, row, &finder, &mut found);
    }
    found.finish()
}

/// Searches the rows from `first` on that are stored in order in one buffer. Returns the row after them.
fn search_run(
    payload: &BinaryViewArray,
    first: usize,
    finder: &Finder,
    found: &mut BooleanBufferBuilder,
) -> usize {
    let views = payload.views();
    let mut buffer = None;
    let (mut start, mut end, mut bytes) = (0, 0, 0);
    let mut next = first;
    while let Some(&view) = views.get(next) {
        let view = View::of(view);
        if view.is_inline() {
            if view.length >= finder.needle().len() && finder.find(payload.value(next)).is_some() {
                found.set_bit(next, true);
            }
        } else {
            match buffer {
                None => (buffer, start) = (Some(view.buffer), view.start),
                Some(buffer) if buffer == view.buffer && view.start >= end => {}
                Some(_) => break,
            }
            end = view.end();
            bytes += view.length;
        }
        next += 1;
    }
    let Some(buffer) = buffer else { return next };
    let block = payload.data_buffers().get(buffer as usize).and_then(|block| block.get(..end));
    match block {
        // If most of the span belongs to no row, as after a filter, searching all of it wastes time.
        Some(block) if (end - start) / 2 <= bytes => {
            search_span(views, first..next, block, start, finder, found)
        }
        _ => {
            for (row, &view) in views.iter().enumerate().take(next).skip(first) {
                if !View::of(view).is_inline() && finder.find(payload.value(row)).is_some() {
                    found.set_bit(row, true);
                }
            }
        }
    }
    next
}

/// Searches `block` from `start` on, and sets the bit of each row in `rows` that has a hit.
fn search_span(
    views: &[u128],
    rows: std::ops::Range<usize>,
    block: &[u8],
    start: usize,
    finder: &Finder,
    found: &mut BooleanBufferBuilder,
) {
    let length = finder.needle().len();
    let mut from = start;
    let mut rows = rows.filter_map(|row| {
        let view = View::of(*views.get(row)?);
        (!view.is_inline()).then_some((row, view))
    });
    let Some((mut row, mut view)) = rows.next() else { return };
    while let Some(hit) = block.get(from..).and_then(|rest| finder.find(rest)).map(|at| from + at) {
        while view.end() <= hit {
            match rows.next() {
                Some(next) => (row, view) = next,
                None => return,
            }
        }
        if hit < view.start {
            // The hit is between rows: in a delimiter, a row that was filtered out, or a row stored in its
            // view.
            from = view.start;
            continue;
        }
        if hit + length <= view.end() {
            found.set_bit(row, true);
        }
        // Either this row has its hit, or its remaining bytes are too short for one.
        match rows.next() {
            Some(next) => (row, view) = next,
            None => return,
        }
        from = view.start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_select::{concat::concat, take::take};
    use proptest::prelude::*;
    use thalweg_record::{PayloadWriter, ViewBuilder};

    fn plainly(payload: &BinaryViewArray, literal: &[u8]) -> Vec<bool> {
        payload
            .iter()
            .map(|value| value.unwrap().windows(literal.len()).any(|part| part == literal))
            .collect()
    }

    fn lines(lines: &[String]) -> BinaryViewArray {
        let mut writer = PayloadWriter::default();
        lines.iter().for_each(|line| writer.push(line.as_bytes()));
        writer.finish()
    }

    proptest! {
        #[test]
        fn the_search_of_the_span_finds_what_the_search_of_each_row_finds(
            first in prop::collection::vec("[ab]{0,30}", 0..20),
            second in prop::collection::vec("[ab]{0,30}", 0..20),
            picked in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
            sorted in any::<bool>(),
            literal in "[ab\\n]{1,6}",
        ) {
            let (first, second) = (lines(&first), lines(&second));
            let both = concat(&[&first, &second]).unwrap();
            let mut payload = both.as_binary_view().clone();
            if !payload.is_empty() && picked.len() > 3 {
                let mut rows: Vec<u32> = picked.iter().map(|row| row.index(payload.len()) as u32).collect();
                if sorted {
                    rows.sort_unstable();
                    rows.dedup();
                }
                payload = take(&payload, &arrow_array::UInt32Array::from(rows), None).unwrap().as_binary_view().clone();
            }
            let found: Vec<bool> = contains(&payload, literal.as_bytes()).iter().collect();
            prop_assert_eq!(found, plainly(&payload, literal.as_bytes()));
        }

        #[test]
        fn rows_that_touch_do_not_share_a_hit(
            text in "[ab]{0,200}",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
            literal in "[ab]{1,5}",
        ) {
            let block = arrow_buffer::Buffer::from_vec(text.into_bytes());
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(block.len() + 1)).collect();
            cuts.extend([0, block.len()]);
            cuts.sort_unstable();
            let mut builder = ViewBuilder::over(std::slice::from_ref(&block), cuts.len());
            cuts.windows(2).for_each(|cut| builder.push(&block[cut[0]..cut[1]]));
            let payload = builder.finish();
            let found: Vec<bool> = contains(&payload, literal.as_bytes()).iter().collect();
            prop_assert_eq!(found, plainly(&payload, literal.as_bytes()));
        }
    }
}
